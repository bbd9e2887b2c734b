//! Waits for a finding, to capture its steps.

use std::{fmt, sync::atomic::Ordering::Relaxed, time::Duration};

use anyhow::Context as _;
use tokio::time::{Instant, MissedTickBehavior, interval};
use xpu_client::{arrival::Arrivals, capture::Stop, follow::Following, interactive::key_that_ends};
use xpu_model::finding::{self, Kind};
use xpu_wire::{id::JobName, unit::Moment};

/// The awaited kinds of findings, and the time limit: none by default.
pub(super) struct Trigger<'a> {
    /// The awaited kinds; empty for any kind.
    pub(super) kinds: &'a [Kind],
    pub(super) within: Option<Duration>,
}

impl fmt::Display for Trigger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(|kind| kind.word()).collect();
        let what = if kinds.is_empty() { "a finding".to_owned() } else { kinds.join(" or ") };
        write!(f, "waiting for {what}{}", key_that_ends("; Ctrl-C ends that"))
    }
}

/// Interval of checks.
const LOOK: Duration = Duration::from_secs(1);

/// The finding in one line; `None` if the time limit passed.
pub(super) async fn wait_for(
    trigger: &Trigger<'_>,
    job: &JobName,
    following: &mut Following,
    arrivals: &mut Arrivals,
    stop: &Stop,
) -> anyhow::Result<Option<String>> {
    let end = trigger.within.map(|within| Instant::now() + within);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            arrival = arrivals.recv() => following.take(arrival.context("the connection to the collectors ended")?),
            _ = look.tick() => {
                if stop.swap(false, Relaxed) || end.is_some_and(|end| Instant::now() >= end) {
                    return Ok(None);
                }
                let Some(job) = following.jobs().get(job) else { continue };
                let found = finding::examine(job, Moment::now()).into_iter()
                    .find(|found| trigger.kinds.is_empty() || trigger.kinds.contains(&found.kind));
                if let Some(found) = found {
                    return Ok(Some(format!("{}: {}", found.kind.word(), found.evidence)));
                }
            }
        }
    }
}
