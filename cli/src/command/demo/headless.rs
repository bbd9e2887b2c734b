//! A demo without a screen: runs to its end, or until it makes no progress, and prints the last status.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::Context as _;
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval},
};
use xpu_analysis::flame;
use xpu_client::{
    arrival::{Arrivals, Endpoint},
    follow::Following,
    live::Live,
};
use xpu_model::{finding, job::Job, status};
use xpu_wire::{frame::Life, unit::Moment};

use super::{
    Plan, Processes,
    rank::{self, Worker},
};
use crate::command::{living, stacks::write_to, status::print};

/// A job that completes no step for this long hangs.
const STALL: Duration = Duration::from_secs(20);

/// Time for many ranks to start and connect on a small machine.
const START: Duration = Duration::from_secs(90);

/// How long the others may continue after a rank failed; mostly they wait for it.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// How long last messages of ended ranks may take to arrive.
const DRAIN: Duration = Duration::from_secs(3);

/// Interval of checks of the ranks' processes.
const LOOK: Duration = Duration::from_millis(50);

/// Interval of checks whether the job hangs.
const EXAMINE: Duration = Duration::from_millis(500);

/// Time limit for the stacks of a hung job.
const STACKS: Duration = Duration::from_secs(10);

/// The connection to the collectors.
pub(super) struct Link {
    pub arrivals: Arrivals,
    pub live: Live,
    pub endpoints: Vec<Endpoint>,
}

/// Why the demo ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Every rank ended by itself.
    Over,
    CollectiveCall,
    /// The job hangs, and the reason is known.
    Hang,
    /// The user ended it.
    Signal {
        number: i32,
    },
}

pub(super) async fn follow(
    processes: &mut Processes,
    mut link: Link,
    plan: &Plan,
    json: bool,
    svg: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let mut following = Following::new(link.endpoints.clone(), None);
    let end = run_to_end(&mut following, &mut processes.workers, &mut link.arrivals, plan).await?;
    // With --stay, the user ends a hung demo, so the signal is no failure.
    let was_left = matches!(end, End::Signal { .. }) && plan.stays;
    if matches!(end, End::Hang | End::CollectiveCall) || (was_left && hangs(&following)) {
        living::take_stacks(&mut following, &mut link.arrivals, &link.live, STACKS).await;
    }
    if let End::Signal { number } = end
        && !was_left
    {
        rank::dismiss(&mut processes.workers);
        return Ok(ExitCode::from(128 + number as u8));
    }
    let failed = !was_left && rank::report_failures(&mut processes.workers);
    let status = following.status(Moment::now());
    if end == End::CollectiveCall {
        eprintln!("demo: steps have stopped: ending");
    }
    if end == End::Hang {
        eprintln!("demo: the job hangs: ending");
    }
    rank::dismiss(&mut processes.workers);
    print(&status, None, json)?;
    if let (Some(path), Some(stacks)) = (svg, &status.stacks) {
        let written = flame::svg(&stacks.tree, &status.job).and_then(|picture| write_to(path, &picture));
        // The exit code reports the findings, even if the flame graph cannot be written.
        if let Err(error) = written {
            eprintln!("demo: {error:#}");
        }
    }
    Ok(match status.exit_code() {
        status::ExitCode::Healthy if failed || end == End::CollectiveCall => {
            ExitCode::from(status::ExitCode::Hang as u8)
        }
        code => ExitCode::from(code as u8),
    })
}

async fn run_to_end(
    following: &mut Following,
    workers: &mut [Worker],
    arrivals: &mut Arrivals,
    plan: &Plan,
) -> anyhow::Result<End> {
    let mut signals = Signals::new()?;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut progress, mut patience) = (0, Instant::now() + START);
    let (mut failed, mut drain_until) = (false, None);
    let mut second = Instant::now();
    loop {
        select! {
            arrival = arrivals.recv() => following.take(arrival.context("the connection to the collectors ended")?),
            number = signals.next() => return Ok(End::Signal { number }),
            _ = look.tick() => {
                let now = Instant::now();
                let steps = steps(following);
                if steps > progress {
                    let limit = if failed { AFTER_FAILURE } else { STALL };
                    (progress, patience) = (steps, now + limit);
                }
                if second.elapsed() >= EXAMINE {
                    second = now;
                    if !plan.stays && hangs(following) {
                        return Ok(End::Hang);
                    }
                }
                if !failed && workers.iter_mut().any(|worker| worker.failure().is_some()) {
                    (failed, patience) = (true, patience.min(now + AFTER_FAILURE));
                }
                if workers.iter_mut().all(|worker| worker.ended().is_some()) {
                    let until = *drain_until.get_or_insert(now + DRAIN);
                    if now >= until || all_ends_seen(following, plan) {
                        return Ok(End::Over);
                    }
                } else if !plan.stays && now >= patience {
                    return Ok(End::CollectiveCall);
                }
            }
        }
    }
}

/// The sum of steps over all ranks.
fn steps(following: &Following) -> u64 {
    let ranks = following.job().into_iter().flat_map(Job::ranks);
    ranks.filter_map(|(_, view)| view.step()).map(|step| step.0).sum()
}

/// Whether a hang was found. A dead rank is reported after the others had time to end.
fn hangs(following: &Following) -> bool {
    let findings = following.job().map(|job| finding::examine(job, Moment::now())).unwrap_or_default();
    findings.iter().any(|finding| finding.kind == finding::Kind::Hang)
}

fn all_ends_seen(following: &Following, plan: &Plan) -> bool {
    following.job().is_some_and(|job| {
        let ended = job.ranks().filter(|(_, view)| matches!(view.life(), Life::Ended | Life::Died));
        ended.count() >= plan.ranks as usize
    })
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The number of the next signal.
    async fn next(&mut self) -> i32 {
        select! {
            _ = self.interrupt.recv() => libc::SIGINT,
            _ = self.terminate.recv() => libc::SIGTERM,
            _ = self.hang_up.recv() => libc::SIGHUP,
        }
    }
}
