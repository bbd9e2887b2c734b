//! `xpu-top collectives`: the last NCCL calls of every rank in order, and where they diverge.

mod document;
mod flight;
mod pickle;
mod text;

use std::{path::Path, process::ExitCode, time::Duration};

use tokio::time::{Instant, timeout_at};
use xpu_client::follow::Following;
use xpu_model::{job::Job, status::ExitCode as Code};
use xpu_wire::{
    frame::RankRecord,
    id::{JobName, Rank},
};

use super::{
    living::Connection,
    output::{print, print_json},
    query::{Answered, Query},
};
use crate::args::{CollectivesArgs, JobArgs};

/// Interval of requests while a rank has not answered, because one may have been lost.
const ASK_AGAIN: Duration = Duration::from_secs(2);

pub fn collectives(args: &CollectivesArgs) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.flight_recorder {
        flight::check(folder)?;
    }
    let query = Query {
        command: "collectives",
        of: &args.of,
        replay: args.replay.as_deref(),
        at: args.at.as_deref(),
        without: ": its ranks are not shown",
    };
    let found = query.run(async |connection, job| gather(connection, job, args.wait).await)?;
    let Some(job) = found.as_ref().and_then(Answered::job) else {
        return Ok(ExitCode::from(Code::NoData as u8));
    };
    output(job, args, || {
        match &args.replay {
        Some(path) => format!(
            "{}: it has no records at that time: stacks and records are read when a job hangs",
            path.display()
        ),
        None => "no rank has answered: its collector may be too old for records, or busy; try again, with a longer --wait"
            .to_owned(),
    }
    })
}

/// Writes the records at the end of a recording for the analyser of PyTorch's flight recorder.
pub(super) fn write_flight_recorder(file: &Path, folder: &Path) -> anyhow::Result<ExitCode> {
    collectives(&CollectivesArgs {
        of: JobArgs::default(),
        rank: Vec::new(),
        last: None,
        json: false,
        flight_recorder: Some(folder.to_owned()),
        replay: Some(file.to_owned()),
        at: None,
        wait: 0,
    })
}

/// Asks until every rank has answered or the time is up. All ranks are asked, because finding the divergence
/// needs all records.
pub(super) async fn gather(connection: &mut Connection, name: &JobName, seconds: u32) {
    let Connection { following, live, arrivals } = connection;
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
        print_json(&document::Document::of(job, &records, args.last))?;
    } else if args.flight_recorder.is_none() {
        print(&text::of(job, &records, args.last, args.rank.is_empty()))?;
    }
    Ok(ExitCode::SUCCESS)
}
