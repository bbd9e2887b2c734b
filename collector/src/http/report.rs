//! The report of a capture: what `xpu-top report` prints, and its table of functions.

use std::{
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{process::Command, time::timeout};

use super::{
    app::App,
    capture::{Phase, program},
    error::Problem,
};

/// Time limit of a report. It is shorter than the limit of all requests (`gate::ANSWER`), because its own
/// error says what to do instead.
const LONGEST: Duration = Duration::from_secs(25);

pub(super) async fn show(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let text = made(&app, &id, &[]).await?;
    let kind = "text/plain; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The part of a report that has the functions.
#[derive(Deserialize)]
struct Functions {
    behaviour: Value,
}

/// The functions of all ranks, compared: `behaviour` of the report as JSON.
pub(super) async fn functions(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let report = made(&app, &id, &["--json"]).await?;
    let report: Functions = serde_json::from_slice(&report).map_err(|error| failed(error.to_string()))?;
    Ok(Json(report.behaviour))
}

/// What `xpu-top report` prints about a capture.
async fn made(app: &App, id: &str, options: &[&str]) -> Result<Vec<u8>, Problem> {
    let capture = app.captures.get(id)?;
    if capture.state == Phase::Recording {
        let next = "ask again when GET /api/v1/capture reports it done";
        return Err(Problem::new(StatusCode::CONFLICT, "the capture is still running", next));
    }
    // One report at a time: each occupies a core for a while.
    let _turn = app.reports.try_lock().map_err(|_busy| {
        let next = "try again in a few seconds";
        Problem::new(StatusCode::CONFLICT, "another report is being made", next)
    })?;
    let mut command = Command::new(program()?);
    command.arg("report").arg(&capture.path).args(options).env_remove("LD_PRELOAD").stdin(Stdio::null());
    let made = output(command, LONGEST).await?;
    if made.status.success() {
        return Ok(made.stdout);
    }
    let said = String::from_utf8_lossy(&made.stderr).replace(&capture.path.display().to_string(), "the file");
    Err(failed(said.trim().to_owned()))
}

/// The output of the command. A command that exceeds the limit is killed.
async fn output(mut command: Command, limit: Duration) -> Result<Output, Problem> {
    match timeout(limit, command.kill_on_drop(true).output()).await {
        Ok(made) => made.map_err(|error| failed(error.to_string())),
        Err(_late) => Err(failed("the report takes too long".to_owned())),
    }
}

fn failed(why: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, why, "fetch the file, and run `xpu-top report FILE`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_takes_too_long_is_refused_with_advice() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = |script: &str, limit| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::null());
            runtime.block_on(output(command, limit))
        };
        assert_eq!(run("echo steps", Duration::from_mins(1)).unwrap().stdout, b"steps\n");
        let problem = run("sleep 60", Duration::from_millis(10)).unwrap_err();
        let said = serde_json::to_string(&problem.body()).unwrap();
        assert!(said.contains("takes too long") && said.contains("xpu-top report FILE"), "{said}");
    }
}
