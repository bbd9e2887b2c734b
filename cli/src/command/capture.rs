//! `xpu-top capture`: records every operation of a few steps, or of a period, on all ranks, in a file; now,
//! or when a finding occurs.

pub(super) mod kineto;
mod progress;
mod trigger;

use std::{
    path::Path,
    process::ExitCode,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::Context as _;
use kineto::Beside;
use progress::Progress;
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    time::Instant,
};
use trigger::{Trigger, wait_for};
use xpu_client::{
    arrival::Arrivals,
    capture::{Begin, Plan, Request, Sampling, Stop, Taking, Wanted},
    filter::Filter,
    follow::Following,
    live::{self, Live},
    new_file,
    recording_writer::header,
};
use xpu_model::{
    job::{Job, RankView},
    status::ExitCode as Code,
};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use super::{
    hang_up::HangUp,
    living::{LOOK, report_no_job, report_unreachable, selected, take_until, the_job},
};
use crate::args::{CaptureArgs, RankList, UsageError};

/// Exit code: a rank is missing, or did not reach the last step.
const NOT_ALL: u8 = 1;

/// Default time limit of the command, in addition to the captured period.
const WAIT: Duration = Duration::from_mins(2);

/// Steps before a finding that are captured too.
const BEFORE_A_FINDING: u32 = 20;

pub fn capture(args: &CaptureArgs) -> anyhow::Result<ExitCode> {
    let hosts = args.of.hosts()?;
    let key = args.of.connection.key()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    new_file::check([&args.output])?;
    if args.kineto {
        new_file::check_absent([kineto::folder(&args.output)])?;
    }
    let header = header(args.of.job.as_ref(), &hosts.endpoints);
    let mut following = Following::new(hosts.endpoints.iter().cloned(), args.of.job.clone());
    following.remember(Vec::new());
    let (live, mut arrivals) = live::connect_briefly(hosts.endpoints, key, args.of.job.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = Stop::default();
    runtime.block_on(async {
        stop_on_signals(&stop)?;
        let until = |following: &Following| following.is_complete();
        take_until(&mut following, &mut arrivals, Instant::now() + LOOK, until).await;
        let Some(job) = the_job(&following, args.of.job.as_ref())? else {
            report_unreachable(&following, ": its ranks are not captured");
            report_no_job(args.of.job.as_ref());
            return Ok(ExitCode::from(Code::NoData as u8));
        };
        report_unreachable(&following, ": its ranks are not captured");
        wanted(args, &following, &job)?;
        report_unseen(args, &following, &job);
        let mut progress = Progress::default();
        if let Some(trigger) = &args.on_finding {
            let trigger = Trigger { kinds: &trigger.0, within: args.within };
            progress.say(&trigger.to_string());
            let found = wait_for(&trigger, &job, &mut following, &mut arrivals, &stop).await?;
            progress.end();
            let Some(found) = found else {
                eprintln!("xpu-top: no finding in time: nothing was captured");
                return Ok(ExitCode::from(Code::NoData as u8));
            };
            eprintln!("xpu-top: {found}");
        }
        take(args, &header, job, &mut following, &mut arrivals, &live, stop, progress).await
    })
}

async fn take(
    args: &CaptureArgs,
    header: &xpu_recording::Header,
    job: JobName,
    following: &mut Following,
    arrivals: &mut Arrivals,
    live: &Live,
    stop: Stop,
    mut progress: Progress,
) -> anyhow::Result<ExitCode> {
    let path = &args.output;
    // Some of the named ranks may have ended since.
    let ranks = wanted(args, following, &job)?;
    // The argument group ensures that exactly one is given.
    let what = args.length.map_or_else(|| Wanted::Steps(args.steps.unwrap_or(1)), Wanted::Time);
    let before = match what {
        Wanted::Steps(_) if args.on_finding.is_some() => BEFORE_A_FINDING,
        Wanted::Steps(_) | Wanted::Time(_) => 0,
    };
    let wait = args.wait.map(|wait| Duration::from_secs(wait.into()));
    let wait = wait.unwrap_or_else(|| WAIT + args.length.unwrap_or_default());
    let ended = Arc::clone(&stop);
    let mut beside = None;
    if args.kineto {
        beside = Some(Beside::begin(args, &job, &ranks, what, &stop).await?);
    }
    let plan = Plan {
        what,
        begin: beside.as_ref().map_or(Begin::Soon, Beside::when),
        before: args.before.unwrap_or(before),
        activity: args.kernels,
        functions: !args.light,
        functions_only: args.functions_only,
        python: args.python.map(|rate| sampling(rate, args.native)),
        wait,
        watch: !args.no_watch,
    };
    let mut show = |news| progress.show(news);
    let request = Request { path, header, job, ranks, plan, stop };
    let taking = Taking::begin(request, following, live, &mut show).map_err(|error| not_new(path, &error))?;
    let outcome = taking.take(arrivals).await.with_context(|| format!("cannot write {}", path.display()))?;
    progress.end();
    for line in &outcome.complaints {
        eprintln!("xpu-top: {line}");
    }
    println!("{outcome}");
    if let Some(beside) = &mut beside
        && !beside.end(&ended).await
        && outcome.whole > 0
    {
        return Ok(ExitCode::from(NOT_ALL));
    }
    Ok(ExitCode::from(match outcome.whole {
        0 => Code::NoData as u8,
        _ if outcome.done < outcome.ranks => NOT_ALL,
        _ => 0,
    }))
}

fn sampling(rate: u32, natively: bool) -> Sampling {
    let usual = if natively { Sampling::NATIVE_RATE } else { Sampling::RATE };
    Sampling { rate: if rate == 0 { usual } else { rate }, natively }
}

fn not_new(path: &Path, error: &std::io::Error) -> UsageError {
    UsageError::Value(format!("cannot capture to {}: {}", path.display(), new_file::why_not(error)))
}

/// The first Ctrl-C ends a capture with the data so far. The second ends it without waiting for data. A
/// closing terminal has the same effect.
pub(super) fn stop_on_signals(stop: &Stop) -> std::io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hang_up = HangUp::install()?;
    let stop = Arc::clone(stop);
    tokio::spawn(async move {
        loop {
            select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = hang_up.received() => {}
            }
            stop.store(true, Relaxed);
        }
    });
    Ok(())
}

/// Warns about ranks that are not on the given hosts, because a capture of half a job is mostly unintended.
fn report_unseen(args: &CaptureArgs, following: &Following, job: &JobName) {
    let Some(view) = following.jobs().get(job).filter(|_| args.ranks.is_none()) else { return };
    let (known, of) = (view.ranks().len(), view.world_size());
    if known < of as usize {
        eprintln!(
            "xpu-top: {known} of the {of} ranks of {job} run on the given hosts: name the other hosts too, with --hosts or --job-hosts"
        );
    }
}

/// The requested ranks: the named ones, or all living ones.
fn wanted(args: &CaptureArgs, following: &Following, job: &JobName) -> Result<Vec<Rank>, UsageError> {
    named_or_living(args.ranks.as_ref(), args.filter.as_ref(), following, job)
}

/// The named ranks, or all living ones, one per process.
pub(super) fn named_or_living(
    named: Option<&RankList>,
    filter: Option<&Filter>,
    following: &Following,
    job: &JobName,
) -> Result<Vec<Rank>, UsageError> {
    // A process answers once; a process with several GPUs answers as its first GPU.
    let all = following.jobs().get(job).into_iter().flat_map(Job::processes);
    let Some(named) = named else {
        let living: Vec<_> = all.filter(|(_, view)| RankView::is_alive(view)).map(|(rank, _)| rank).collect();
        return match filter {
            Some(filter) => selected(filter, following, Moment::now(), job, |rank| living.contains(&rank)),
            None => Ok(living),
        };
    };
    let known: Vec<_> = all.map(|(rank, _)| rank).collect();
    let is_known = |rank: &Rank| known.iter().any(|known| known.process() == rank.process());
    let strangers: Vec<_> =
        named.0.iter().filter(|rank| !is_known(rank)).take(8).map(ToString::to_string).collect();
    if strangers.is_empty() {
        let is_named = |known: &Rank| named.0.iter().any(|rank| rank.process() == known.process());
        return Ok(known.into_iter().filter(is_named).collect());
    }
    Err(UsageError::Value(format!(
        "--ranks: no rank {} is in this job; `xpu-top status` lists those that are",
        strangers.join(", ")
    )))
}
