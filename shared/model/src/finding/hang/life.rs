//! A communicator is being created or destroyed, or ranks wait for each other before that, and some ranks do not
//! take part.

use std::time::Duration;

use xpu_wire::{
    frame::{CommunicatorState, Life},
    ledger::Call,
};

use super::super::evidence::hang::{Forming, Missing, Together};
use super::{
    Class, Confidence, Doing, EARLY_PATIENCE, Evidence, Finding, GPU_WAITS, Kind, LONG_PATIENCE, Rank,
    Severity, WORKING_PATIENCE, has_begun, has_stepped,
    rendezvous::{self, Position},
};
use crate::job::{Job, RankView};

/// The creation of a communicator. Until the first step is done, ranks may join late.
pub(super) fn making(job: &Job, deadline: Duration) -> Option<Finding> {
    let patience = match has_begun(job) {
        true => deadline,
        false if never_completes(job) => EARLY_PATIENCE,
        false => LONG_PATIENCE,
    };
    waiting(job, Together::Create, patience, |_, view| inside_for(view, Call::CommunicatorInit))
}

/// A rendezvous before the first step, for instance PyTorch's `init_process_group`.
pub(super) fn initializing(job: &Job) -> Option<Finding> {
    if job.world_size() < 2 || has_begun(job) || has_stepped(job) {
        return None;
    }
    let mut place = None;
    for (rank, view) in job.ranks() {
        match rendezvous::position(job, rank, view) {
            // It may wait there too.
            Position::Unknown => return None,
            Position::Meets(at) => place = place.or(Some(at)),
            Position::Elsewhere => {}
        }
    }
    waiting(job, Together::Meet(place?), LONG_PATIENCE, |rank, view| {
        let meets = matches!(rendezvous::position(job, rank, view), Position::Meets(_));
        meets.then(|| view.idle_for().min(view.stalled_for()).as_secs_f64())
    })
}

/// Whether the ranks outside the call certainly do not join: one has ended, or all wait for collectives that
/// the ranks inside have not entered. A rank that loads or compiles looks the same as one that is stuck.
fn never_completes(job: &Job) -> bool {
    let (inside, outside): (Vec<_>, Vec<_>) = job
        .ranks()
        .map(|(_, view)| view)
        .partition(|view| view.is_alive() && is_inside(view, Call::CommunicatorInit));
    let is_whole = job.is_whole();
    let has_ended = |view: &&RankView| view.life() == Life::Ended;
    let waits_for_them = |view: &&RankView| {
        let lines = view.latest().into_iter().flat_map(|digest| &digest.communicators);
        let mut unfinished = lines.filter(|line| line.completed < line.entered);
        let waits = GPU_WAITS.iter().any(|&call| is_inside(view, call));
        waits && unfinished.any(|line| inside.iter().any(|other| has_not_entered(other, line)))
    };
    is_whole && !outside.is_empty() && (outside.iter().any(has_ended) || outside.iter().all(waits_for_them))
}

fn is_inside(view: &RankView, call: Call) -> bool {
    view.latest().is_some_and(|digest| digest.inside.iter().any(|inside| inside.call == call))
}

/// Whether it has entered fewer collectives of this communicator.
fn has_not_entered(view: &RankView, line: &CommunicatorState) -> bool {
    let mut own = view.latest().into_iter().flat_map(|digest| &digest.communicators);
    own.any(|own| own.id == line.id && own.entered < line.entered)
}

pub(super) fn ending(job: &Job, deadline: Duration) -> Option<Finding> {
    waiting(job, Together::Destroy, deadline, |_, view| inside_for(view, Call::CommunicatorEnd))
}

/// The time for which a living rank has been inside this call, in seconds.
fn inside_for(view: &RankView, call: Call) -> Option<f64> {
    let inside = view.latest().filter(|_| view.life() == Life::Alive)?.inside.iter();
    inside.filter(|inside| inside.call == call).map(|inside| inside.waited.seconds()).max_by(f64::total_cmp)
}

/// Some ranks have waited together for this long; `waited` gives the seconds of each rank that does.
fn waiting(
    job: &Job,
    what: Together,
    patience: Duration,
    waited: impl Fn(Rank, &RankView) -> Option<f64>,
) -> Option<Finding> {
    let since_s = job
        .ranks()
        .filter_map(|(rank, view)| waited(rank, view))
        .filter(|waited| *waited >= patience.as_secs_f64())
        .max_by(f64::total_cmp)?;
    let (inside, absent): (Vec<_>, Vec<_>) = job
        .ranks()
        .filter(|(_, view)| view.is_alive())
        .partition(|&(rank, view)| waited(rank, view).is_some());
    let works = |view: &RankView| view.idle_for() < patience.min(Duration::from_secs_f64(since_s)) / 2;
    // A working rank may still join.
    let joins_within = if matches!(what, Together::Meet(_)) { WORKING_PATIENCE } else { LONG_PATIENCE };
    if absent.iter().any(|(_, view)| works(view)) && since_s < joins_within.as_secs_f64() {
        return None;
    }
    let ends = what == Together::Destroy;
    let ranks_inside: Vec<Rank> = inside.iter().map(|&(rank, _)| rank).collect();
    let finding = |ranks: Vec<Rank>, confidence, missing, advice: &str| Finding {
        kind: Kind::Hang,
        class: if ends { Class::Finalize } else { Class::Init },
        ranks,
        confidence,
        since_s,
        evidence: Evidence::Forming(Forming { what, inside: ranks_inside.clone(), hung_s: since_s, missing }),
        advice: advice.to_owned(),
        collective: None,
        severity: Severity::Critical,
        cost: None,
    };
    // A rank that has ended is missing, independent of what other ranks do.
    let ended: Vec<_> = job.ranks().filter(|(_, view)| view.life() == Life::Ended).collect();
    let absent = if !ends && absent.is_empty() { ended } else { absent };
    if absent.is_empty() {
        let unseen: Vec<Rank> =
            (0..job.world_size()).map(Rank).filter(|&process| job.of_process(process).is_none()).collect();
        let advice = match what {
            Together::Meet(_) => {
                "check that all ranks start, with the same address and port of the rendezvous (MASTER_ADDR, MASTER_PORT, WORLD_SIZE), and reach it (firewalls)"
            }
            Together::Create | Together::Destroy => {
                "check that all ranks start and reach each other (NCCL_SOCKET_IFNAME, firewalls; NCCL_DEBUG=INFO shows more)"
            }
        };
        // A viewer of a few hosts of the job does not see most ranks.
        let named = if unseen.is_empty() || unseen.len() >= inside.len() { &ranks_inside } else { &unseen };
        let (named, missing) =
            (named.clone(), if unseen.is_empty() { Missing::Nobody } else { Missing::Unseen(unseen) });
        return Some(finding(named, Confidence::Likely, missing, advice));
    }
    // Perhaps not all of them belong to the communicator. A rank inside another call waits for others itself.
    let is_idle = |view: &RankView| Doing::of(view) == Doing::Outside && !works(view);
    let idle: Vec<_> = absent.iter().copied().filter(|(_, view)| is_idle(view)).collect();
    let missing = if absent.len() < inside.len() || idle.is_empty() { absent } else { idle };
    let Some((rank, first)) = missing.first().filter(|_| missing.len() < inside.len().max(2)) else {
        let advice = "look at the stacks of the other ranks";
        return Some(finding(ranks_inside.clone(), Confidence::Guess, Missing::Unknown, advice));
    };
    let ranks: Vec<Rank> = missing.iter().map(|&(rank, _)| rank).collect();
    let doing = Doing::closely(job, *rank, first);
    let missing = Missing::Ranks { ranks: ranks.clone(), doing };
    // If at least as many ranks are in other calls, those may be the correct ones.
    let is_open = ranks.len() >= inside.len() && !is_idle(first);
    let confidence = if is_open { Confidence::Guess } else { Confidence::Likely };
    let advice = if ranks.len() == 1 { "look at that rank's stack" } else { "look at those ranks' stacks" };
    Some(finding(ranks, confidence, missing, advice))
}
