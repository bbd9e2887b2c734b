//! `xpu-top kineto`: traces the same steps of all ranks with PyTorch's own profiler, into a folder.

use std::{process::ExitCode, time::Duration};

use tokio::time::Instant;
use xpu_client::{
    capture::Stop,
    follow::Following,
    kineto::{self, News, Subject, Wanted},
    new_file,
};
use xpu_model::{job::Job, status::ExitCode as Code};
use xpu_wire::{
    frame::KinetoOptions,
    id::{JobName, Rank},
};

use super::{
    capture::{named_or_living, stop_on_signals},
    living::{Connection, LOOK, connect, report_no_job, report_unreachable, take_until, the_job},
};
use crate::args::{KinetoArgs, UsageError};

/// Exit code: a requested rank gave no trace.
const NOT_ALL: u8 = 1;

/// Kineto 37fada9a (2026-03-24) corrects this. PyTorch 2.11 does not have that commit.
const CAUTION: &str = "with PyTorch 2.11 and older, if the program itself uses torch.profiler after this trace, Kineto may end it with SIGSEGV (docs/kineto.md, Limits)";

pub fn kineto(args: &KinetoArgs) -> anyhow::Result<ExitCode> {
    new_file::check_absent(kineto::files(&args.output, &[]))?;
    let Connection { mut following, live, mut arrivals } = connect(&args.of)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = Stop::default();
    runtime.block_on(async {
        stop_on_signals(&stop)?;
        let complete = |following: &Following| following.is_complete();
        take_until(&mut following, &mut arrivals, Instant::now() + LOOK, complete).await;
        report_unreachable(&following, ": its ranks are not traced");
        let Some(job) = the_job(&following, args.of.job.as_ref())? else {
            report_no_job(args.of.job.as_ref());
            return Ok(ExitCode::from(Code::NoData as u8));
        };
        let ranks = match &args.pids {
            Some(pids) => of_processes(pids, &following, &job)?,
            None => named_or_living(args.ranks.as_ref(), args.filter.as_ref(), &following, &job)?,
        };
        new_file::check_absent(kineto::files(&args.output, &ranks))?;
        eprintln!("xpu-top: {CAUTION}");
        let subject = Subject { job, ranks, following, arrivals, live };
        let outcome = kineto::trace(&args.output, subject, wanted(args), stop, &mut show).await?;
        for line in &outcome.complaints {
            eprintln!("xpu-top: {line}");
        }
        println!("{}", outcome.summary);
        Ok(if outcome.is_whole { ExitCode::SUCCESS } else { ExitCode::from(NOT_ALL) })
    })
}

/// The ranks of these processes, on any host.
fn of_processes(pids: &[u32], following: &Following, job: &JobName) -> Result<Vec<Rank>, UsageError> {
    let known = || following.jobs().get(job).into_iter().flat_map(Job::ranks);
    if let Some(stranger) = pids.iter().find(|&&pid| !known().any(|(_, view)| view.pid().0 == pid)) {
        return Err(UsageError::Value(format!(
            "--pids: process {stranger} is no rank of this job; `xpu-top status --json` has the pid of each rank"
        )));
    }
    Ok(known().filter(|(_, view)| pids.contains(&view.pid().0)).map(|(rank, _)| rank).collect())
}

fn show(news: News) {
    match news {
        News::Line(line) => eprintln!("xpu-top: {line}"),
        News::Planned(_) => {}
    }
}

fn wanted(args: &KinetoArgs) -> Wanted {
    Wanted {
        steps: args.steps,
        duration: args.duration,
        start_in: args.start_in,
        wait: args.wait.map(|wait| Duration::from_secs(wait.into())),
        options: KinetoOptions {
            record_shapes: args.record_shapes,
            profile_memory: args.profile_memory,
            with_stack: args.with_stack,
            with_flops: args.with_flops,
            with_modules: args.with_modules,
        },
    }
}
