//! Answers xpu-timer's requests at `/HostingService/`, for existing scripts. The output is a capture in this
//! program's own folder: a path in a request is ignored.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use xpu_model::{job::Job, stack};
use xpu_wire::{
    endpoint::host_name,
    frame::CaptureOrder,
    id::{HostName, Rank},
};

use super::{
    api::{Answer, find, read_stacks, seen},
    app::App,
    capture::{self, Wanted},
    error::Problem,
};

/// Operations requested by default.
const OPERATIONS: u32 = 1000;

/// Longest time until a dump begins.
const LATEST: Duration = Duration::from_hours(1);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Dump {
    #[serde(rename = "dump_count")]
    count: u32,
    /// Seconds since 1970.
    #[serde(rename = "dump_time")]
    time: i64,
    reset: bool,
    #[serde(rename = "dump_path")]
    path: Option<serde_json::Value>,
    #[serde(rename = "dump_kernel_type")]
    kinds: u32,
}

/// All kinds: GEMMs, collectives and memory. 0 also means all.
const ALL: u32 = 7;

impl Dump {
    /// Requested options without effect.
    fn ignored(&self) -> Vec<&'static str> {
        let path = self.path.is_some().then_some("dump_path: fetch the capture from /file below its address");
        let some = !matches!(self.kinds, 0 | ALL);
        let kinds = some.then_some("dump_kernel_type: a capture holds all kinds");
        path.into_iter().chain(kinds).collect()
    }
}

/// xpu-timer's tools send a body with GET as well, with more fields than are used here.
fn read<T: DeserializeOwned>(headers: &HeaderMap, bytes: &Bytes) -> Result<T, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.to_ascii_lowercase().starts_with("application/json") {
        let next = "send JSON with `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the Content-Type is not JSON", next));
    }
    let text = if bytes.is_empty() { &b"{}"[..] } else { &bytes[..] };
    serde_json::from_slice(text).map_err(|error| {
        let next = "send a JSON object, as xpu-timer's own tools do";
        Problem::new(StatusCode::BAD_REQUEST, format!("invalid request: {error}"), next)
    })
}

pub(super) async fn dump_kernel_trace(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Answer {
    let dump: Dump = read(&headers, &bytes)?;
    let says = |msg: &str, more: serde_json::Value| {
        let mut answer = json!({ "node": host_name(), "msg": msg });
        if let (Some(answer), serde_json::Value::Object(more)) = (answer.as_object_mut(), more) {
            answer.extend(more);
        }
        Ok(Json(answer))
    };
    if dump.reset {
        return says("Resetting status", json!({}));
    }
    if app.captures.is_recording() {
        return says("The process is dumping, skip", json!({}));
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let after = Duration::from_secs(u64::try_from(dump.time).unwrap_or(0)).saturating_sub(since);
    if after > LATEST {
        let error = format!("dump_time is {} s from now", after.as_secs());
        return Err(Problem::new(StatusCode::BAD_REQUEST, error, "start within an hour"));
    }
    let ignored = dump.ignored();
    let count = if dump.count == 0 { OPERATIONS } else { dump.count };
    let steps = seen(&app, move |known| find(known, None).map(|job| steps_of(job, count))).await?;
    let begun = capture::start(&app, Wanted::plain(None, steps), after).await?;
    let address = format!("/api/v1/capture/{}", begun["id"]);
    says("Starting dumping", json!({ "capture": address, "steps": steps, "ignored": ignored }))
}

/// Number of steps with about this number of operations, by the rank's launches per step so far.
fn steps_of(job: &Job, operations: u32) -> u32 {
    let of_rank = job.ranks().filter_map(|(_, view)| {
        let digest = view.latest()?;
        let steps = digest.step?.0.max(1);
        let launches = digest.launches;
        Some((launches.gemms + launches.collectives + launches.point_to_point) / steps)
    });
    let in_step = of_rank.max().unwrap_or(0).max(1);
    u64::from(operations).div_ceil(in_step).clamp(1, u64::from(CaptureOrder::STEPS)) as u32
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Stacktrace {
    pid: i64,
    rank: Option<i64>,
}

pub(super) async fn dump_string_stacktrace(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Answer {
    let wanted: Stacktrace = read(&headers, &bytes)?;
    let (job, rank) = seen(&app, move |known| {
        let job = find(known, None)?;
        let found = rank_meant(job, &wanted, &host_name()).ok_or_else(|| {
            let next = "name a rank of the job, or a pid that exists on only one of its hosts; GET /api/v1/ranks lists them";
            Problem::new(StatusCode::NOT_FOUND, "this process is not a rank", next)
        })?;
        Ok((job.name().clone(), found))
    })
    .await?;
    let read = read_stacks(&app, job, vec![rank], true).await?;
    Ok(Json(json!({ "stacktrace": stack::text(&read.tree) })))
}

/// The rank that the request means. Only processes of ranks are read. xpu-timer's own requests have a pid; -1
/// and 0 mean none. If several hosts behind a relay have a process with this pid, the request's rank decides,
/// else this host.
fn rank_meant(job: &Job, wanted: &Stacktrace, here: &HostName) -> Option<Rank> {
    let mut ranks = job.ranks().filter(|(_, view)| view.is_alive());
    let is_named = |rank: Rank| wanted.rank == Some(i64::from(rank.process().0));
    if wanted.pid <= 0 {
        return ranks.find(|(rank, _)| is_named(*rank)).map(|(rank, _)| rank);
    }
    let found: Vec<_> = ranks.filter(|(_, view)| i64::from(view.pid().0) == wanted.pid).collect();
    let meant = match &found[..] {
        [one] => Some(one),
        several => {
            let named = several.iter().find(|(rank, _)| is_named(*rank));
            named.or_else(|| several.iter().find(|(_, view)| view.host() == here))
        }
    };
    meant.map(|(rank, _)| *rank)
}

#[cfg(test)]
mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;
    use xpu_wire::{frame::Body, id::Pid};

    use super::*;

    /// Two pods behind a relay each have a process with the same number. Another process has a different
    /// number.
    #[test]
    fn a_process_is_found_by_its_number_on_its_host_or_by_its_rank() {
        let (simulation, mut jobs) = (Simulation::new(7, 2, 2), Jobs::default());
        for mut frame in simulation.snapshots(60) {
            let Body::Snapshot(snapshot) = &mut frame.body else { continue };
            for rank in &mut snapshot.jobs[0].ranks {
                let pid = Pid(if rank.info.rank == Rank(3) { 101 } else { 100 });
                (rank.info.pid, rank.digest.pid) = (pid, pid);
            }
            jobs.fold(&frame);
        }
        let job = jobs.foremost().unwrap();
        let meant =
            |pid, rank, here: &HostName| rank_meant(job, &Stacktrace { pid, rank }, here).map(|rank| rank.0);
        let [first, second] = [0, 1].map(|host| simulation.host(host));
        let relay = HostName::from("relay");
        assert_eq!((meant(100, None, &second), meant(100, Some(1), &second)), (Some(2), Some(1)));
        assert_eq!((meant(100, None, &relay), meant(100, Some(2), &relay)), (None, Some(2)));
        assert_eq!((meant(101, None, &relay), meant(101, Some(0), &first)), (Some(3), Some(3)));
        assert_eq!((meant(-1, Some(2), &first), meant(0, Some(7), &first)), (Some(2), None));
        assert_eq!((meant(7, Some(1), &first), meant(-1, Some(-1), &first)), (None, None));
        assert_eq!(meant(0, None, &first), None);
    }

    #[test]
    fn unsupported_parts_of_a_dump_are_named() {
        let ignored = |path: Option<&str>, kinds| {
            let dump = Dump { path: path.map(Into::into), kinds, ..Dump::default() };
            dump.ignored().iter().filter_map(|why| why.split(':').next()).collect::<Vec<_>>()
        };
        assert_eq!(ignored(None, 0), [""; 0]);
        assert_eq!(ignored(None, ALL), [""; 0]);
        assert_eq!(ignored(Some("/root/output"), ALL), ["dump_path"]);
        for some in 1..ALL {
            assert_eq!(ignored(None, some), ["dump_kernel_type"], "{some}");
        }
    }
}
