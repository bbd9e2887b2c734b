//! `xpu-top collectives`: the last NCCL calls of every rank in order, and where they diverge.

mod document;
mod flight;
mod pickle;
mod text;

use std::{path::Path, process::ExitCode, time::Duration};

use tokio::time::{Instant, timeout_at};
use xpu_client::{arrival::Arrivals, follow::Following, live::Live};
use xpu_model::{job::Job, status::ExitCode as Code};
use xpu_wire::{
    frame::RankRecord,
    id::{JobName, Rank},
};

use super::{
    living::{Connection, LOOK, connect, nobody, report_kept, report_unreachable, take_until},
    output::print,
    past,
};
use crate::args::{CollectivesArgs, UsageError};

/// Interval of requests while a rank has not answered, because one may have been lost.
const ASK_AGAIN: Duration = Duration::from_secs(2);

pub fn collectives(args: &CollectivesArgs) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.flight_recorder {
        flight::check(folder)?;
    }
    if let Some(path) = &args.replay {
        let (following, _) = past::followed(path, args.at.as_deref(), args.of.job.as_ref(), None)?;
        let Some(job) = following.job() else {
            eprintln!("xpu-top: {}: it has no job at that time", path.display());
            return Ok(ExitCode::from(Code::NoData as u8));
        };
        return output(job, args, || {
            format!(
                "{}: it has no records at that time: stacks and records are read when a job hangs",
                path.display()
            )
        });
    }
    let Connection { mut following, live, mut arrivals } = connect(&args.of)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(take_until(
        &mut following,
        &mut arrivals,
        Instant::now() + LOOK,
        Following::has_answered,
    ));
    let Some(name) = selected_job(&following, args.of.job.as_ref())? else {
        report_unreachable(&following, ": its ranks are not shown");
        eprintln!("xpu-top: {}", nobody(args.of.job.as_ref()));
        report_kept("collectives", args.of.job.as_ref());
        return Ok(ExitCode::from(Code::NoData as u8));
    };
    runtime.block_on(gather(&mut following, &mut arrivals, &live, &name, args.wait));
    report_unreachable(&following, ": its ranks are not shown");
    let Some(job) = following.jobs().get(&name) else { return Ok(ExitCode::from(Code::NoData as u8)) };
    output(job, args, || {
        "no rank has answered: its collector may be too old for records, or busy; try again, with a longer --wait"
            .to_owned()
    })
}

/// The named job, the only one, or the only living one; a job is never guessed. A job that has ended can be
/// queried too.
pub(super) fn selected_job(
    following: &Following,
    named: Option<&JobName>,
) -> Result<Option<JobName>, UsageError> {
    let known = || following.jobs().iter();
    if let Some(named) = named {
        return Ok(known().any(|job| job.name() == named).then(|| named.clone()));
    }
    let living: Vec<_> = known().filter(|job| job.living() > 0).collect();
    let all: Vec<_> = known().collect();
    match (&living[..], &all[..]) {
        ([one], _) | ([], [one]) => Ok(Some(one.name().clone())),
        ([], []) => Ok(None),
        _ => {
            let names: Vec<_> = all.iter().map(|job| job.name().as_str()).collect();
            Err(UsageError::Value(format!(
                "there are {} jobs: choose one with --job: {}",
                names.len(),
                names.join(", ")
            )))
        }
    }
}

/// Asks until every rank has answered or the time is up. All ranks are asked, because finding the divergence
/// needs all records.
pub(super) async fn gather(
    following: &mut Following,
    arrivals: &mut Arrivals,
    live: &Live,
    name: &JobName,
    seconds: u32,
) {
    let missing = |following: &Following| -> Vec<Rank> {
        let job = following.jobs().get(name);
        let came = |job: &Job, rank| job.record(rank).is_some();
        job.map(|job| job.processes().map(|(rank, _)| rank).filter(|&rank| !came(job, rank)).collect())
            .unwrap_or_default()
    };
    let deadline = Instant::now() + Duration::from_secs(seconds.into());
    loop {
        let ranks = missing(following);
        if ranks.is_empty() || Instant::now() >= deadline {
            return;
        }
        live.records(name.clone(), ranks);
        let pause = deadline.min(Instant::now() + ASK_AGAIN);
        while !missing(following).is_empty() {
            match timeout_at(pause, arrivals.recv()).await {
                Ok(Some(arrival)) => following.take(arrival),
                Ok(None) => return,
                Err(_late) => break,
            }
        }
    }
}

fn output(job: &Job, args: &CollectivesArgs, none: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
    let named = |rank: Rank| args.rank.is_empty() || args.rank.contains(&rank);
    let all: Vec<&RankRecord> = job.records().filter(|record| named(record.rank)).collect();
    for record in all.iter().filter(|record| !record.why.is_empty()) {
        eprintln!("xpu-top: {}", record.why);
    }
    for rank in args.rank.iter().filter(|&&rank| job.record(rank).is_none()) {
        eprintln!("xpu-top: rank {rank} has not answered; `xpu-top status` lists the ranks there are");
    }
    let records: Vec<_> = all.into_iter().filter(|record| record.why.is_empty()).collect();
    if records.is_empty() {
        if job.records().next().is_none() {
            eprintln!("xpu-top: {}", none());
        }
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    if let Some(folder) = &args.flight_recorder {
        flight::write(Path::new(folder), job, &records)?;
    }
    if args.json {
        let document = document::Document::of(job, &records, args.last);
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else if args.flight_recorder.is_none() {
        print(&text::of(job, &records, args.last, args.rank.is_empty()))?;
    }
    Ok(ExitCode::SUCCESS)
}
