//! `/api/v1`: the state as JSON, and requests to a job.
//!
//! A request is validated completely before anything reaches a rank: unknown jobs and ranks are refused here.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State, rejection::JsonRejection, rejection::QueryRejection},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xpu_model::{
    finding,
    job::{Job, RankView},
    stack,
    status::{Status, rank_status},
    step_times::StepTimes,
};
use xpu_wire::{
    frame::{Life, RankStacks},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use super::{
    app::{App, run_blocking},
    ask::{self, Unanswered},
    error::Problem,
};
use crate::follow::Known;

/// Ranks a request may name; naming none means all.
const RANKS: usize = 4096;

/// How long the first request for a rank's shapes waits, in polls of a twentieth of a second.
const LOOKS: u32 = 30;
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

pub(super) type Answer = Result<Json<Value>, Problem>;

/// The job; by default the one with most living ranks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobSelector {
    pub(super) job: Option<String>,
    rank: Option<Rank>,
}

/// The body of a request, or the problem if it is invalid.
pub(super) fn body<T>(read: Result<Json<T>, JsonRejection>) -> Result<T, Problem> {
    read.map(|Json(body)| body).map_err(|rejection| {
        let next = "send JSON with `Content-Type: application/json`; GET /openapi.json describes it";
        Problem::new(rejection.status(), rejection.body_text(), next)
    })
}

pub(super) fn query(read: Result<Query<JobSelector>, QueryRejection>) -> Result<JobSelector, Problem> {
    read.map(|Query(which)| which).map_err(|rejection| {
        Problem::new(rejection.status(), rejection.body_text(), "write ?job=NAME&rank=NUMBER, or neither")
    })
}

pub(super) fn find<'a>(known: &'a Known, name: Option<&str>) -> Result<&'a Job, Problem> {
    let jobs = known.jobs();
    let found = match name {
        Some(name) => jobs.iter().find(|job| job.name().as_str() == name),
        None => jobs.foremost(),
    };
    found.ok_or_else(|| {
        let next = "GET /api/v1/jobs lists the known jobs";
        let error = name.map_or_else(
            || "no job is known here".to_owned(),
            |name| format!("job {name:?} is not known here"),
        );
        Problem::new(StatusCode::NOT_FOUND, error, next)
    })
}

/// The requested ranks: the named ones, or all that have not ended.
pub(super) fn chosen(job: &Job, named: &[u32], may_have_died: bool) -> Result<Vec<Rank>, Problem> {
    if named.len() > RANKS {
        let next = "leave out `ranks` to request all";
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("more than {RANKS} ranks named"), next));
    }
    let can = |view: &RankView| view.is_alive() || (may_have_died && view.life() != Life::Ended);
    // A request names a process by its rank. A process with several GPUs appears as the rank of its first
    // GPU.
    let able: Vec<_> = job.processes().filter(|(_, view)| can(view)).map(|(rank, _)| rank).collect();
    let stranger = named.iter().find(|&&rank| !able.iter().any(|able| able.process().0 == rank));
    if let Some(rank) = stranger {
        let error = format!("no rank {rank} of job {} runs here", job.name());
        return Err(Problem::new(StatusCode::NOT_FOUND, error, "GET /api/v1/ranks lists the known ranks"));
    }
    if able.is_empty() {
        let error = format!("no rank of job {} runs here", job.name());
        return Err(Problem::new(
            StatusCode::CONFLICT,
            error,
            "GET /api/v1/jobs lists jobs with living ranks",
        ));
    }
    if named.is_empty() {
        return Ok(able);
    }
    Ok(able.into_iter().filter(|rank| named.contains(&rank.process().0)).collect())
}

/// The state, read on a blocking thread.
pub(super) async fn seen<T: Send + 'static>(
    app: &Arc<App>,
    see: impl FnOnce(&mut Known) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    run_blocking(move || app.follow.look(see)).await?
}

fn document(value: impl Serialize) -> Answer {
    serde_json::to_value(value).map(Json).map_err(|_unwritable| Problem::fault())
}

pub(super) async fn jobs(State(app): State<Arc<App>>) -> Answer {
    let jobs = seen(&app, |known| {
        let now = known.there(Moment::now());
        let all = known.jobs().iter().map(|job| {
            let status = known.status(job, now);
            json!({
                "job": job.name(), "world_size": job.world_size(), "ranks_seen": status.coverage.ranks_seen,
                "ranks_living": job.living(), "hosts": job.hosts(), "steps": status.steps,
                "findings": status.findings.len(), "exit_code": status.exit_code() as u8,
            })
        });
        Ok(all.collect::<Vec<_>>())
    });
    document(json!({ "jobs": jobs.await? }))
}

pub(super) async fn job(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer {
    document(seen(&app, move |known| status(known, Some(&name))).await?)
}

pub(super) fn status(known: &Known, name: Option<&str>) -> Result<Status, Problem> {
    let job = find(known, name)?;
    let mut status = known.status(job, known.there(Moment::now()));
    status.price(known.pages().price);
    Ok(status)
}

pub(super) async fn ranks(
    State(app): State<Arc<App>>,
    which: Result<Query<JobSelector>, QueryRejection>,
) -> Answer {
    let which = query(which)?;
    let (name, rank) = (which.job.clone(), which.rank);
    for _ in 0..LOOKS {
        let Some(rank) = rank else { break };
        let name = name.clone();
        let is_seen = seen(&app, move |known| {
            let job = find(known, name.as_deref())?.name().clone();
            known.look_at(job.clone(), rank, std::time::Instant::now());
            let view = known.jobs().get(&job).and_then(|job| job.rank(rank));
            // A recording has the shapes at once, or not at all.
            let is_recorded = known.recorded_at().is_some();
            Ok(is_recorded || view.is_none_or(|view| view.summary().is_some() || !view.is_alive()))
        });
        if is_seen.await? {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let found = seen(&app, move |known| {
        let job = find(known, name.as_deref())?;
        if let Some(rank) = rank.filter(|&rank| job.rank(rank).is_none()) {
            let next = "GET /api/v1/ranks lists the known ranks";
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                format!("rank {rank} of it is not known here"),
                next,
            ));
        }
        let now = known.there(Moment::now());
        let findings = finding::examine(job, now);
        let wanted = job.ranks().filter(|(known, _)| rank.is_none_or(|rank| rank == *known));
        let ranks = wanted.map(|(rank, _)| rank_status(job, rank, &findings, now));
        Ok(json!({ "job": job.name(), "ranks": ranks.collect::<Vec<_>>() }))
    });
    Ok(Json(found.await?))
}

pub(super) async fn findings(
    State(app): State<Arc<App>>,
    which: Result<Query<JobSelector>, QueryRejection>,
) -> Answer {
    let name = query(which)?.job;
    let found = seen(&app, move |known| {
        let Status { job, world_size, coverage, findings, ended_findings, .. } =
            &status(known, name.as_deref())?;
        Ok(json!({
            "job": job, "world_size": world_size, "ranks_seen": coverage.ranks_seen, "findings": findings,
            "ended_findings": ended_findings,
        }))
    });
    Ok(Json(found.await?))
}

pub(super) async fn steps(
    State(app): State<Arc<App>>,
    which: Result<Query<JobSelector>, QueryRejection>,
) -> Answer {
    let name = query(which)?.job;
    let found = seen(&app, move |known| {
        let job = find(known, name.as_deref())?.name();
        let points: Vec<_> = known.step_times(job).into_iter().flat_map(StepTimes::points).collect();
        Ok(json!({ "job": job, "points": points }))
    });
    Ok(Json(found.await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hook {
    job: Option<String>,
    on: bool,
}

pub(super) async fn hook(State(app): State<Arc<App>>, hook: Result<Json<Hook>, JsonRejection>) -> Answer {
    let Hook { job, on } = body(hook)?;
    let (job, ranks) = seen(&app, move |known| {
        let job = find(known, job.as_deref())?;
        Ok((job.name().clone(), chosen(job, &[], false)?))
    })
    .await?;
    let (upstream, of) = (app.upstream()?.clone(), job.clone());
    run_blocking(move || ask::switch(&upstream, of, on)).await?.map_err(unanswered)?;
    Ok(Json(json!({ "job": job, "on": on, "ranks": ranks })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stacks {
    job: Option<String>,
    #[serde(default)]
    ranks: Vec<u32>,
    #[serde(default)]
    native: bool,
}

pub(super) async fn stacks(
    State(app): State<Arc<App>>,
    wanted: Result<Json<Stacks>, JsonRejection>,
) -> Answer {
    let Stacks { job, ranks, native } = body(wanted)?;
    if app.follow.upstream().is_none() {
        return document(recorded_stacks(&app, job, &ranks).await?);
    }
    let (job, ranks) = seen(&app, move |known| {
        let job = find(known, job.as_deref())?;
        Ok((job.name().clone(), chosen(job, &ranks, true)?))
    })
    .await?;
    document(read_stacks(&app, job, ranks, native).await?)
}

/// The document that `xpu-top stacks --json` also prints.
#[derive(Debug, Serialize)]
pub(super) struct Merged {
    job: JobName,
    pub(super) tree: stack::Tree,
    folded: String,
    notes: Vec<String>,
    ranks: Vec<OneRank>,
    no_answer: Vec<Rank>,
}

#[derive(Debug, Serialize)]
struct OneRank {
    host: HostName,
    #[serde(flatten)]
    stacks: RankStacks,
}

/// The latest stacks of a recording, of the named ranks or of all.
async fn recorded_stacks(app: &Arc<App>, name: Option<String>, ranks: &[u32]) -> Result<Merged, Problem> {
    let named: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
    seen(app, move |known| {
        let job = find(known, name.as_deref())?;
        let is_named = |stacks: &&RankStacks| named.is_empty() || named.contains(&stacks.rank);
        let came: Vec<_> = job.stacks().filter(is_named).cloned().collect();
        if came.is_empty() {
            let next = "record with `xpu-top record`, and read the stacks meanwhile";
            return Err(Problem::new(StatusCode::CONFLICT, "the recording has no stacks up to here", next));
        }
        let host = |stacks: RankStacks| {
            let host = job.rank(stacks.rank).map(|view| view.host().clone());
            host.map(|host| (host, stacks))
        };
        Ok(Merged::of(job.name().clone(), &named, came.into_iter().filter_map(host).collect()))
    })
    .await
}

pub(super) async fn read_stacks(
    app: &Arc<App>,
    job: JobName,
    ranks: Vec<Rank>,
    native: bool,
) -> Result<Merged, Problem> {
    // One reading at a time: each takes some milliseconds per rank on the ranks' hosts.
    let _turn = app.stacks.try_lock().map_err(|_busy| {
        let next = "try again in a few seconds";
        Problem::new(StatusCode::CONFLICT, "stacks are already being read", next)
    })?;
    let (upstream, of, wanted) = (app.upstream()?.clone(), job.clone(), ranks.clone());
    let came = run_blocking(move || ask::stacks(&upstream, &of, &wanted, native)).await?;
    Ok(Merged::of(job, &ranks, came.map_err(unanswered)?))
}

impl Merged {
    /// Merges the received stacks. Ranks without stacks are listed as unanswered.
    fn of(job: JobName, ranks: &[Rank], came: Vec<(HostName, RankStacks)>) -> Self {
        let (hosts, stacks): (Vec<_>, Vec<_>) = came.into_iter().unzip();
        let has = |rank: &&Rank| stacks.iter().any(|known: &RankStacks| known.rank == **rank);
        let no_answer: Vec<_> = ranks.iter().filter(|rank| !has(rank)).copied().collect();
        let tree = stack::merge(no_answer.iter().copied(), &stacks);
        Self {
            job,
            folded: stack::folded(&tree),
            notes: stack::notes(stacks.iter(), no_answer.iter().copied()),
            tree,
            ranks: hosts.into_iter().zip(stacks).map(|(host, stacks)| OneRank { host, stacks }).collect(),
            no_answer,
        }
    }
}

pub(super) fn unanswered(why: Unanswered) -> Problem {
    match why {
        Unanswered::Refused(why) => {
            Problem::new(StatusCode::CONFLICT, why, "GET /api/v1/jobs lists jobs with living ranks")
        }
        Unanswered::Late => {
            let next = "look at the collector's log and load, and try again";
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "the collector did not answer in time", next)
        }
        Unanswered::Library(error) => {
            let next = "raise `ulimit -n` if descriptors are short, and try again";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("libzmq: {error}"), next)
        }
    }
}
