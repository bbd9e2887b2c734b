//! A job without progress, and the rank that causes it. Only the first divergence is reported: later ones
//! follow from it.

mod compilation;
mod doing;
mod elsewhere;
mod gpu_progress;
mod idle;
mod kernel;
mod life;
mod mismatch;
mod not_entered;
mod not_started;
mod recorded;
mod rendezvous;
mod stopped;
mod unmatched;
mod witness;

use std::time::Duration;

use xpu_wire::{
    frame::Life,
    id::Rank,
    ledger::Call,
    unit::{Moment, Nanoseconds},
};

pub use doing::Doing;
pub(super) use gpu_progress::with_kernels;
pub use rendezvous::meeting_place;
pub use witness::Witness;

use super::{
    Class, CollectiveCall, Confidence, Evidence, Finding, Kind, Severity, device,
    wait::{self, Place, StalledCommunicator, Waits, held},
};
use crate::job::{Job, RankView};

/// Shortest time without progress after which a job hangs. A little less than ten seconds, because digests
/// come once a second.
pub(super) const PATIENCE: Duration = Duration::from_millis(9_500);

/// Multiple of its usual step for which a job must make no progress.
const STEPS: u32 = 5;

/// The patience until the first steps are done, because libraries are loaded and kernels compiled before
/// that.
const LONG_PATIENCE: Duration = Duration::from_mins(1);

/// The patience for a rank that others wait for and that works: it launches, computes on its CPU, or reads or
/// writes files. A checkpoint may take a minute or more.
const WORKING_PATIENCE: Duration = Duration::from_mins(2);

/// The patience once each rank has done a whole step: it has then loaded and compiled most of what it needs.
pub const EARLY_PATIENCE: Duration = Duration::from_secs(12);

/// Calls in which a thread waits for its GPU.
pub const GPU_WAITS: [Call; 4] =
    [Call::StreamSynchronize, Call::DeviceSynchronize, Call::EventSynchronize, Call::Query];

/// Longest time for which some of a job's ranks may continue while others hang.
const SETTLING: Duration = Duration::from_secs(3);

/// Time since a rank moved within which the others may have waited for it.
const RESUMED: Duration = Duration::from_millis(2_500);

/// Steps after which a rank counts as training, if none are marked.
const WARM: u64 = 10;

pub(super) fn examine(job: &Job, now: Moment) -> Option<Finding> {
    with_cause(job, now).or_else(|| elsewhere::ranks(job))
}

fn with_cause(job: &Job, now: Moment) -> Option<Finding> {
    let deadline = deadline(job);
    if let Some(found) = early(job, deadline) {
        return Some(found);
    }
    let stalled = wait::stalled(job, deadline);
    if !has_settled(job, &stalled, deadline) {
        return None;
    }
    let found = stopped::ranks(job, &stalled, deadline, now)
        .or_else(|| life::making(job, deadline))
        .or_else(|| life::ending(job, deadline))
        .or_else(|| life::initializing(job))
        .or_else(|| recorded::divergence(job, &stalled))
        .or_else(|| stalled.iter().find_map(mismatch::called))
        .or_else(|| stalled.iter().find_map(kernel::not_launched))
        .or_else(|| waiting(job, &stalled))
        .or_else(|| idle::ranks(job, deadline))?;
    Some(gpu_progress::with_gpus(job, &stalled, found))
}

/// Whether the job may hang, because it has made no progress for some time, whatever its ranks seem to do: the
/// records of their calls, or before the first step their stacks, may show the cause.
pub(super) fn may_hang(job: &Job) -> bool {
    let deadline = deadline(job);
    let stalled = wait::stalled(job, deadline);
    let stands_at_start = || {
        let has_started = has_begun(job) || has_stepped(job);
        let mut living = job.ranks().map(|(_, view)| view).filter(|view| view.is_alive());
        !has_started && job.world_size() > 1 && living.all(|view| view.stalled_for() >= LONG_PATIENCE)
    };
    (!stalled.is_empty() && has_settled(job, &stalled, deadline)) || stands_at_start()
}

/// A hang before the first step is done. If all ranks wait for their GPUs, none of them loads or compiles. If
/// their calls also diverge, none will continue.
fn early(job: &Job, deadline: Duration) -> Option<Finding> {
    let is_whole = job.is_whole();
    if deadline <= EARLY_PATIENCE
        || !is_whole
        || !job.ranks().all(|(_, view)| view.is_alive() && waits_for_its_gpu(view))
    {
        return None;
    }
    let stalled = wait::stalled(job, EARLY_PATIENCE);
    if !has_settled(job, &stalled, EARLY_PATIENCE) {
        return None;
    }
    Some(gpu_progress::with_gpus(job, &stalled, recorded::divergence(job, &stalled)?))
}

/// Whether the visible part of a job hangs: all its living ranks do. The dependencies and the work of the
/// other ranks are unknown, so a rank that is in no waiting call gets more time.
pub(super) fn part(job: &Job) -> bool {
    let deadline = deadline(job);
    let stalled = wait::stalled(job, deadline);
    let Some(longest) = stalled.iter().map(|stalled| stalled.stalled_for).max() else { return false };
    let alive = || job.ranks().map(|(_, view)| view).filter(|view| view.is_alive());
    let works = alive().any(|view| view.idle_for() < longest / 2);
    let waits =
        alive().any(|view| held(view).is_some_and(|(_, seconds)| seconds >= deadline.as_secs_f64() / 2.0));
    let patience = match (works, waits) {
        (true, _) => WORKING_PATIENCE.max(deadline),
        (false, true) => deadline,
        (false, false) => LONG_PATIENCE.max(deadline),
    };
    !job.is_whole() && alive().all(|view| view.stalled_for() >= patience)
}

/// Some ranks wait for others, or all ranks wait for work that does not end.
fn waiting(job: &Job, stalled: &[StalledCommunicator<'_>]) -> Option<Finding> {
    if not_entered::is_working(stalled) {
        return None;
    }
    not_started::ranks(job, stalled)
        .or_else(|| not_entered::ranks(job, stalled))
        .or_else(|| unmatched::sends(job, stalled))
        .or_else(|| kernel::longest(job, stalled))
        .or_else(|| unmatched::exchanging(job, stalled))
}

/// Whether all ranks hang, so that dependencies are known. Ranks stop one after another, and hosts report
/// this at different times.
fn has_settled(job: &Job, stalled: &[StalledCommunicator<'_>], deadline: Duration) -> bool {
    let Some(longest) = stalled.iter().map(|stalled| stalled.stalled_for).max() else { return true };
    let alive = || job.ranks().filter(|(_, view)| view.life() == Life::Alive);
    let stand = alive().filter(|(_, view)| view.stalled_for() >= deadline).count();
    // If one rank has just moved, the others may not have reported their progress yet.
    let resumed = longest < LONG_PATIENCE && alive().any(|(_, view)| view.stalled_for() < RESUMED);
    stand == alive().count() || (longest >= deadline + SETTLING && !resumed)
}

fn deadline(job: &Job) -> Duration {
    let usual = patience(has_begun(job) || has_stepped(job), slowest(job));
    if has_begun(job) { usual } else { usual.max(EARLY_PATIENCE) }
}

fn slowest(job: &Job) -> Option<Nanoseconds> {
    job.ranks().filter_map(|(_, view)| view.pace()).max()
}

/// Time for which a job may pause: it depends on whether its first step is done, and on the step time of its
/// slowest rank.
pub fn patience(begun: bool, slowest: Option<Nanoseconds>) -> Duration {
    if !begun {
        return LONG_PATIENCE;
    }
    slowest.map_or(PATIENCE, |pace| PATIENCE.max(Duration::from_nanos(pace.0) * STEPS))
}

/// Number of first steps, which compile kernels and set up connections.
const FIRST: u64 = 2;

/// Whether the first steps are done.
fn has_begun(job: &Job) -> bool {
    job.ranks().filter_map(|(_, view)| view.latest()).any(|digest| match digest.step {
        Some(step) => step.0 > FIRST,
        None => digest.communicators.iter().any(|state| state.completed >= WARM),
    })
}

/// Whether every rank has done a step.
fn has_stepped(job: &Job) -> bool {
    let mut digests = job.ranks().filter_map(|(_, view)| view.latest());
    job.is_whole() && digests.all(|digest| digest.step.is_some_and(|step| step.0 > 0))
}

/// A finding about a hung communicator.
fn finding(
    class: Class,
    ranks: Vec<Rank>,
    confidence: Confidence,
    stalled: &StalledCommunicator<'_>,
    evidence: Evidence,
    advice: &str,
    collective: Option<CollectiveCall>,
) -> Finding {
    let since_s = stalled.stalled_for.as_secs_f64();
    let advice = advice.to_owned();
    Finding {
        kind: Kind::Hang,
        class,
        ranks,
        confidence,
        severity: Severity::Critical,
        since_s,
        evidence,
        advice,
        collective,
        cost: None,
    }
}

/// Whether any rank is blocked in a waiting call.
fn anyone_held<'a>(places: impl IntoIterator<Item = &'a Place<'a>>) -> bool {
    places.into_iter().any(|place| place.is_alive() && held(place.view).is_some())
}

fn waits_for_gpu(place: &Place<'_>) -> bool {
    waits_for_its_gpu(place.view)
}

fn waits_for_its_gpu(view: &RankView) -> bool {
    held(view).is_some_and(|(call, _)| GPU_WAITS.contains(&call))
}
