//! A communicator being created or destroyed, to which some ranks do not come.

use std::time::Duration;

use xpu_wire::{frame::Life, ledger::Call};

use super::super::evidence::hang::{Forming, Missing};
use super::{Class, Confidence, Doing, Evidence, Finding, Kind, LONG_PATIENCE, Rank, Severity, has_begun};
use crate::job::{Job, RankView};

/// Its creation: until the first step is done, ranks may come late.
pub(super) fn making(job: &Job, deadline: Duration) -> Option<Finding> {
    let patience = if has_begun(job) { deadline } else { LONG_PATIENCE };
    waiting(job, Call::CommunicatorInit, patience)
}

pub(super) fn ending(job: &Job, deadline: Duration) -> Option<Finding> {
    waiting(job, Call::CommunicatorEnd, deadline)
}

fn waiting(job: &Job, call: Call, patience: Duration) -> Option<Finding> {
    let waited = |view: &RankView| {
        let inside = view.latest().filter(|_| view.life() == Life::Alive)?.inside.iter();
        inside
            .filter(|inside| inside.call == call)
            .map(|inside| inside.waited.seconds())
            .max_by(f64::total_cmp)
    };
    let since_s = job
        .ranks()
        .filter_map(|(_, view)| waited(view))
        .filter(|waited| *waited >= patience.as_secs_f64())
        .max_by(f64::total_cmp)?;
    let (inside, absent): (Vec<_>, Vec<_>) =
        job.ranks().filter(|(_, view)| view.is_alive()).partition(|(_, view)| waited(view).is_some());
    // A working rank may still come.
    let works =
        absent.iter().any(|(_, view)| view.idle_for() < patience.min(Duration::from_secs_f64(since_s)) / 2);
    if works && since_s < LONG_PATIENCE.as_secs_f64() {
        return None;
    }
    let makes = call == Call::CommunicatorInit;
    let ranks_inside: Vec<Rank> = inside.iter().map(|&(rank, _)| rank).collect();
    let finding = |ranks: Vec<Rank>, confidence, missing, advice: &str| Finding {
        kind: Kind::Hang,
        class: if makes { Class::Init } else { Class::Finalize },
        ranks,
        confidence,
        since_s,
        evidence: Evidence::Forming(Forming {
            makes,
            inside: ranks_inside.clone(),
            stands_s: since_s,
            missing,
        }),
        advice: advice.to_owned(),
        collective: None,
        severity: Severity::Critical,
        cost: None,
    };
    let Some((_, first)) = absent.first() else {
        let missing = match job.world_size() as usize - inside.len().min(job.world_size() as usize) {
            0 => Missing::Nobody,
            unseen => Missing::Unseen(unseen),
        };
        let advice = "check that all ranks start and reach each other (NCCL_SOCKET_IFNAME, firewalls; NCCL_DEBUG=INFO shows more)";
        return Some(finding(ranks_inside.clone(), Confidence::Likely, missing, advice));
    };
    if absent.len() >= inside.len() {
        // Perhaps only some belong to it: the missing ones are unknown.
        let advice = "look at the stacks of the other ranks";
        return Some(finding(ranks_inside.clone(), Confidence::Guess, Missing::Unknown, advice));
    }
    let ranks: Vec<Rank> = absent.iter().map(|&(rank, _)| rank).collect();
    let missing = Missing::Ranks { ranks: ranks.clone(), doing: Doing::of(first) };
    Some(finding(ranks, Confidence::Likely, missing, "look at those ranks' stacks"))
}
