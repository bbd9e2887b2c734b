//! Traces by PyTorch's profiler requested over HTTP: `xpu-top kineto`, as a separate process, into a folder that
//! only its owner can read.

use std::{fs, path::Path, sync::Arc, thread};

use axum::{
    Json,
    body::Body,
    extract::{Path as InPath, State, rejection::JsonRejection},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use xpu_wire::frame::CaptureOrder;

use super::{
    api::{Answer, body, chosen, find, seen},
    app::{App, run_blocking},
    capture::{Capture, Phase, What, Window, command, program},
    error::Problem,
};

/// Longest trace.
const LONGEST_MS: u64 = 3_600_000;

/// Longest time until a trace begins.
const LATEST_MS: u64 = 3_600_000;

/// The largest file that is sent: the file is in memory meanwhile.
const LARGEST: u64 = 1 << 30;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    job: Option<String>,
    steps: Option<u32>,
    /// A period instead of steps.
    duration_ms: Option<u64>,
    /// Least time until the trace begins.
    start_in_ms: Option<u64>,
    #[serde(default)]
    ranks: Vec<u32>,
    #[serde(default)]
    record_shapes: bool,
    #[serde(default)]
    profile_memory: bool,
    #[serde(default)]
    with_stack: bool,
    #[serde(default)]
    with_flops: bool,
    #[serde(default)]
    with_modules: bool,
}

impl Wanted {
    fn window(&self) -> Result<Window, Problem> {
        let refuse =
            |what: &str, next: String| Err(Problem::new(StatusCode::BAD_REQUEST, what.to_owned(), next));
        if self.start_in_ms.is_some_and(|time| !(1..=LATEST_MS).contains(&time)) {
            return refuse("it cannot begin so late", format!("\"start_in_ms\" is 1 to {LATEST_MS}"));
        }
        let most = CaptureOrder::STEPS;
        match (self.steps, self.duration_ms) {
            (Some(steps), None) if (1..=most).contains(&steps) => Ok(Window::Steps(steps)),
            (None, Some(time)) if (1..=LONGEST_MS).contains(&time) => Ok(Window::DurationMs(time)),
            (Some(_), None) => {
                refuse("that many steps cannot be traced", format!("request 1 to {most} steps"))
            }
            (None, Some(_)) => {
                refuse("that period cannot be traced", format!("request 1 to {LONGEST_MS} milliseconds"))
            }
            _ => refuse(
                "a trace covers either steps or a period",
                "name one: \"steps\": 3, or \"duration_ms\": 500".to_owned(),
            ),
        }
    }

    fn arguments(&self, window: Window) -> Vec<String> {
        let mut all = vec![match window {
            Window::Steps(steps) => format!("--steps={steps}"),
            Window::ForMs(time) | Window::DurationMs(time) => format!("--duration={time}ms"),
        }];
        all.extend(self.start_in_ms.map(|time| format!("--start-in={time}ms")));
        let flags = [
            ("--record-shapes", self.record_shapes),
            ("--profile-memory", self.profile_memory),
            ("--with-stack", self.with_stack),
            ("--with-flops", self.with_flops),
            ("--with-modules", self.with_modules),
        ];
        all.extend(flags.into_iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| flag.to_owned()));
        all
    }
}

pub(super) async fn begin(
    State(app): State<Arc<App>>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Result<Response, Problem> {
    app.upstream()?;
    let wanted = body(wanted)?;
    let window = wanted.window()?;
    let (named, ranks) = (wanted.job.clone(), wanted.ranks.clone());
    let (job, ranks) = seen(&app, move |known| {
        let job = find(known, named.as_deref())?;
        let some = if ranks.is_empty() { Vec::new() } else { chosen(job, &ranks, false)? };
        Ok((job.name().clone(), some))
    })
    .await?;
    let way = app.config.captures.clone().ok_or_else(|| {
        let next = "ask the collector of the ranks' host, or run `xpu-top kineto`";
        Problem::new(StatusCode::NOT_IMPLEMENTED, "a relay keeps no traces", next)
    })?;
    let program = program()?;
    let traces = app.traces.make(&way, &job, window)?;
    let document = document(&traces);
    let command = command(&program, &way, What::Kineto, &traces, wanted.arguments(window), &ranks);
    let (making, id) = (Arc::clone(&app), traces.id);
    let spawned =
        thread::Builder::new().name("kineto".to_owned()).spawn(move || making.traces.run(command, &traces));
    spawned.map_err(|error| {
        let error = format!("cannot start a thread: {error}");
        app.traces.fail(id, error.clone());
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error, "raise `ulimit -u`, and try again")
    })?;
    Ok((StatusCode::ACCEPTED, Json(document)).into_response())
}

/// The state of the traces, and the addresses of their files.
fn document(traces: &Capture) -> Value {
    let mut value = json!(traces);
    if traces.state != Phase::Recording {
        let at = |name: String| format!("/api/v1/kineto/{}/{name}", traces.id);
        value["files"] = json!(names(&traces.path).into_iter().map(at).collect::<Vec<_>>());
    }
    value
}

fn names(folder: &Path) -> Vec<String> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = all.filter_map(|file| file.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Answer {
    let all = app.traces.all();
    Ok(Json(json!({ "traces": all.iter().map(document).collect::<Vec<_>>() })))
}

pub(super) async fn show(State(app): State<Arc<App>>, InPath(id): InPath<String>) -> Answer {
    Ok(Json(document(&app.traces.get(&id)?)))
}

/// A file of a trace. The requested name is only compared with the names in the trace's folder.
pub(super) async fn file(
    State(app): State<Arc<App>>,
    InPath((id, name)): InPath<(String, String)>,
) -> Result<Response, Problem> {
    let traces = app.traces.get(&id)?;
    if traces.state == Phase::Recording {
        let next = "ask again when GET /api/v1/kineto reports it done";
        return Err(Problem::new(StatusCode::CONFLICT, "it is still running", next));
    }
    let read = run_blocking(move || {
        let name = names(&traces.path).into_iter().find(|known| *known == name)?;
        let path = traces.path.join(&name);
        let fits = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.len() <= LARGEST);
        Some((fits.then(|| fs::read(&path).ok()).flatten(), name))
    });
    let Some((bytes, name)) = read.await? else {
        let next = "GET /api/v1/kineto/{id} lists its files";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no such file", next));
    };
    let Some(bytes) = bytes else {
        let next = "trace fewer steps, or run `xpu-top kineto`";
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the trace is too large to send", next));
    };
    let is_text = Path::new(&name).extension().is_some_and(|ending| ending == "json");
    let kind = if is_text { "application/json" } else { "application/gzip" };
    let place = format!("attachment; filename=\"{name}\"");
    let headers = [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, place)];
    Ok((headers, Body::from(bytes)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(value: Value) -> Wanted {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_request_is_a_command_line() {
        let request =
            wanted(json!({ "steps": 2, "start_in_ms": 5000, "record_shapes": true, "with_stack": true }));
        let window = request.window().unwrap();
        assert_eq!(
            request.arguments(window),
            ["--steps=2", "--start-in=5000ms", "--record-shapes", "--with-stack"]
        );
        let request = wanted(json!({ "duration_ms": 500 }));
        assert_eq!(request.arguments(request.window().unwrap()), ["--duration=500ms"]);
        for wrong in [
            json!({}),
            json!({ "steps": 0 }),
            json!({ "steps": 2, "duration_ms": 5 }),
            json!({ "duration_ms": 0 }),
            json!({ "steps": 2, "start_in_ms": 0 }),
        ] {
            assert!(wanted(wrong.clone()).window().is_err(), "{wrong}");
        }
    }
}
