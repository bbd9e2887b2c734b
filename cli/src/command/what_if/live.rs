//! `xpu-top what-if --live`: captures repeatedly, and prints one line per capture.

mod line;
mod scratch;

use std::{
    future::Future,
    io::{self, Write as _},
    path::Path,
    pin::pin,
    process::ExitCode,
    sync::atomic::Ordering::Relaxed,
};

use line::Line;
use scratch::Scratch;
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};
use xpu_analysis::{
    file,
    what_if::{Account, Estimate, Job, WhatIf},
};
use xpu_client::{
    capture::Stop,
    screen_capture::Targets,
    step_capture::{self, Skipped},
};
use xpu_model::status::ExitCode as Code;
use xpu_wire::unit::Moment;

use super::super::{hang_up::HangUp, living::report_no_job};
use crate::args::{UsageError, WhatIfArgs};

pub(super) fn watch(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    let price = args.priced.price()?;
    let hosts = args.of.hosts()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let targets = Targets { endpoints: hosts.endpoints, key: args.of.connection.key()? };
    let scratch = Scratch::make()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut end = End::install()?;
        let (mut job, mut account) = (args.of.job.clone(), Account::default());
        let (mut next, mut turns, since) = (Instant::now(), 0_u32, Moment::now());
        // Whether the job was ever seen, and whether it was missing at the last attempt.
        let (mut seen, mut gone) = (false, false);
        while args.times.is_none_or(|times| turns < times) {
            let path = scratch.file();
            let stop = Stop::default();
            let turn = step_capture::take(&targets, job.as_ref(), args.steps, &path, stop.clone());
            let Some(taken) = end.or_whole(turn, &stop).await else { break };
            turns += 1;
            let was_gone = std::mem::replace(&mut gone, matches!(taken, Err(Skipped::NoJob)));
            let estimate = match taken {
                // A single miss may be due to the network, or to a collector that restarts.
                Err(Skipped::NoJob) if was_gone => break,
                Err(why @ Skipped::NoJob) if seen => Err(why.to_string()),
                Err(Skipped::NoJob) => {
                    report_no_job(args.of.job.as_ref());
                    return Ok(ExitCode::from(Code::NoData as u8));
                }
                Err(why @ Skipped::Several(_)) => return Err(UsageError::Value(why.to_string()).into()),
                Err(Skipped::NotNow(why)) => Err(why),
                Ok(name) => {
                    (job, seen) = (Some(name), true);
                    estimate(&path)
                }
            };
            match &estimate {
                Ok(estimate) => account.add(estimate.clone()),
                Err(_) => account.fail(),
            }
            let at = Moment::now();
            let sum = job.clone().map(|job| account.frame(job, since, at, estimate.as_ref()));
            let line = Line::of(job.as_ref(), [since, at], estimate, account.total(price));
            let text = if args.json { line.json()? } else { line.text(sum.as_ref(), price) };
            if !is_written(&text)? {
                break;
            }
            // For page 5 of every viewer.
            if let Some(sum) = sum
                && end.or(step_capture::publish(&targets, sum)).await.is_none()
            {
                break;
            }
            next = (next + args.every).max(Instant::now());
            if args.times != Some(turns) && end.or(sleep_until(next)).await.is_none() {
                break;
            }
        }
        Ok(if account.last().is_some() { ExitCode::SUCCESS } else { ExitCode::from(Code::NoData as u8) })
    })
}

/// The result of a capture.
fn estimate(path: &Path) -> Result<Estimate, String> {
    let (capture, _damage) = file::open(path)?;
    let job = Job::of_capture(&capture).map_err(|why| why.to_string())?;
    Estimate::of(&WhatIf::of(&job), Moment::now()).ok_or_else(|| "no step was simulated".to_owned())
}

/// Prints a text. Returns `false` if standard output is closed.
fn is_written(text: &str) -> io::Result<bool> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// The signals that end the command: Ctrl-C, SIGTERM and a closed terminal.
struct End {
    interrupt: Signal,
    terminate: Signal,
    hang_up: HangUp,
}

impl End {
    fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: HangUp::install()?,
        })
    }

    /// The result of the work; `None` if a signal ended it.
    async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        select! {
            done = work => Some(done),
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => None,
            () = self.hang_up.received() => None,
        }
    }

    /// The result of a capture; `None` if a signal ended it. A signal first ends the capture on its ranks; a
    /// second Ctrl-C does not wait for that.
    async fn or_whole<T>(&mut self, work: impl Future<Output = T>, stop: &Stop) -> Option<T> {
        let mut work = pin!(work);
        if let Some(done) = self.or(&mut work).await {
            return Some(done);
        }
        stop.store(true, Relaxed);
        self.or(work).await;
        None
    }
}
