//! `xpu-top ras`: the statements of NCCL's RAS service about a job, compared with xpu-top's own records.

use std::{collections::BTreeMap, fmt::Write as _, process::ExitCode, time::Duration};

use serde::Serialize;
use tokio::time::Instant;
use xpu_client::follow::Following;
use xpu_model::{
    figure,
    job::Job,
    ras::{Statement, Verdict, Witness},
    status::ExitCode as Code,
};
use xpu_wire::{
    frame::{Inside, RasMissing, RasRank, RasReport},
    id::{JobName, Rank},
    ledger::Call,
    unit::Moment,
};

use super::{
    collectives::gather,
    living::{Connection, take_until},
    output::print_document,
    query::Query,
};
use crate::args::RasArgs;

/// Time limit for the ranks' records, before RAS is asked.
const RECORDS: u32 = 5;

pub fn ras(args: &RasArgs) -> anyhow::Result<ExitCode> {
    let query = Query {
        command: "ras",
        of: &args.of,
        replay: args.replay.as_deref(),
        at: args.at.as_deref(),
        without: ": its ranks are not compared",
    };
    let found = query.run(async |connection, job| ask(connection, job, args.wait).await)?;
    let Some((found, job)) = found.as_ref().and_then(|found| Some((found, found.job()?))) else {
        return Ok(ExitCode::from(Code::NoData as u8));
    };
    if let Some(Some(why)) = &found.answer {
        let witness = Witness::unanswered(why);
        let report =
            RasReport { asked_at: Moment::now(), ..RasReport::unanswered(job.name().clone(), why.clone()) };
        return written(job, args, &report, &witness);
    }
    output(job, args, || {
        match &args.replay {
        Some(path) => {
            format!("{}: it has no answer of RAS at that time: RAS is asked when a job hangs", path.display())
        }
        None => "no answer: no rank of the job lives, or its collector is too old to ask RAS; try again, with a longer --wait"
            .to_owned(),
    }
    })
}

/// Reads the records first, so that RAS's counts are the newer ones; for a job that hangs, both are of the
/// same state. Returns the reason if nothing is asked.
async fn ask(connection: &mut Connection, name: &JobName, seconds: u32) -> Option<String> {
    let deadline = Instant::now() + Duration::from_secs(seconds.into());
    let job = connection.following.jobs().get(name);
    let living = job.into_iter().flat_map(Job::ranks).filter(|(_, view)| view.is_alive());
    let first = living.map(|(rank, _)| rank).min()?;
    gather(connection, name, RECORDS.min(seconds)).await;
    let Connection { following, live, arrivals } = connection;
    if let Some(rank) = following.jobs().get(name).and_then(creating) {
        return Some(format!(
            "rank {rank} is creating a communicator, and RAS may crash when asked then (up to NCCL 2.29.7): try again"
        ));
    }
    live.ras(name.clone(), first);
    let came = |following: &Following| following.jobs().get(name).is_none_or(|job| job.ras().is_some());
    take_until(following, arrivals, deadline, came).await;
    None
}

/// A rank of the job that is creating a communicator. This is checked here too, because the collector that
/// asks sees only the ranks on its own host.
fn creating(job: &Job) -> Option<Rank> {
    let mut living = job.ranks().filter(|(_, view)| view.is_alive());
    let creates = |inside: &Inside| inside.call == Call::CommunicatorInit;
    living
        .find(|(_, view)| view.latest().is_some_and(|digest| digest.inside.iter().any(creates)))
        .map(|(rank, _)| rank)
}

fn output(job: &Job, args: &RasArgs, none: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
    let (Some(report), Some(witness)) = (job.ras(), Witness::of(job)) else {
        eprintln!("xpu-top: {}", none());
        return Ok(ExitCode::from(Code::NoData as u8));
    };
    written(job, args, report, &witness)
}

fn written(job: &Job, args: &RasArgs, report: &RasReport, witness: &Witness) -> anyhow::Result<ExitCode> {
    print_document(&Document::of(job, report, witness), args.json, || text(report, witness))?;
    let has_answer = witness.verdict != Verdict::NoAnswer;
    Ok(if has_answer { ExitCode::SUCCESS } else { ExitCode::from(Code::NoData as u8) })
}

fn text(report: &RasReport, witness: &Witness) -> String {
    let mut text = String::new();
    if report.is_answered() {
        let communicators = figure::counted(report.communicators.len(), "communicator", "communicators");
        let _ = writeln!(
            text,
            "NCCL {}, RAS at {}, asked at {}: {communicators}, collected in {}",
            if report.nccl.is_empty() { "of an unknown version" } else { &report.nccl },
            report.address,
            figure::clock(report.asked_at),
            if report.took.0 == 0 { "less than 1 ms".to_owned() } else { figure::short_time(report.took) },
        );
    }
    for statement in &witness.statements {
        let _ = writeln!(text, "{}", statement.sentence());
    }
    if witness.more > 0 {
        let _ = writeln!(text, "and {} more statements", figure::count(witness.more as u64));
    }
    let verdict = match witness.verdict {
        Verdict::Agrees => "the counts agree",
        Verdict::Differs => "the counts differ",
        Verdict::NotComparable => "not compared with xpu-top's counts",
        Verdict::NoAnswer => return text,
    };
    text + verdict + "\n"
}

/// `xpu-top ras --json`
#[derive(Debug, Serialize)]
struct Document<'a> {
    job: &'a JobName,
    asked_at: Moment,
    address: &'a str,
    nccl: &'a str,
    /// Why there is no answer; `null` otherwise.
    why: Option<&'a str>,
    collected_ms: f64,
    timeouts: u32,
    #[serde(flatten)]
    witness: &'a Witness,
    sentences: Vec<String>,
    communicators: Vec<OneCommunicator<'a>>,
}

#[derive(Debug, Serialize)]
struct OneCommunicator<'a> {
    communicator: String,
    size: u32,
    ranks: Vec<OneRank>,
    missing: &'a [RasMissing],
}

#[derive(Debug, Serialize)]
struct OneRank {
    /// Its rank in the job, if known.
    rank: Option<Rank>,
    #[serde(flatten)]
    of: RasRank,
}

impl<'a> Document<'a> {
    fn of(job: &'a Job, report: &'a RasReport, witness: &'a Witness) -> Self {
        let mut known = BTreeMap::new();
        for (rank, view) in job.ranks() {
            for state in view.latest().iter().flat_map(|digest| &digest.communicators) {
                known.insert((state.id, state.rank), rank);
            }
        }
        let rank = |id, member| known.get(&(id, member)).copied();
        let communicators = report.communicators.iter().map(|one| OneCommunicator {
            communicator: one.id.to_string(),
            size: one.size,
            ranks: one.ranks.iter().map(|&of| OneRank { rank: rank(one.id, of.member), of }).collect(),
            missing: &one.missing,
        });
        Self {
            job: job.name(),
            asked_at: report.asked_at,
            address: &report.address,
            nccl: &report.nccl,
            why: (!report.is_answered()).then_some(&report.why),
            collected_ms: report.took.0 as f64 / 1e6,
            timeouts: report.timeouts,
            witness,
            sentences: witness.statements.iter().map(Statement::sentence).collect(),
            communicators: communicators.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;
    use xpu_wire::{
        frame::{Body, Life},
        unit::Nanoseconds,
    };

    use super::*;

    #[test]
    fn a_living_rank_on_any_host_that_creates_a_communicator_is_named() {
        let simulation = Simulation::new(1, 2, 2);
        let with = |call: Call, life: Life| {
            let mut jobs = Jobs::default();
            for mut frame in simulation.digests(1) {
                let Body::Digest(host) = &mut frame.body else { unreachable!() };
                for digest in &mut host.ranks {
                    digest.inside.clear();
                    if digest.rank == Rank(3) {
                        digest.life = life;
                        digest.inside.push(Inside { thread: 42, call, waited: Nanoseconds(1) });
                    }
                }
                jobs.fold(&frame);
            }
            creating(jobs.get(&simulation.job).unwrap())
        };
        assert_eq!(with(Call::CommunicatorInit, Life::Alive), Some(Rank(3)));
        assert_eq!(with(Call::StreamSynchronize, Life::Alive), None);
        assert_eq!(with(Call::CommunicatorInit, Life::Died), None);
    }
}
