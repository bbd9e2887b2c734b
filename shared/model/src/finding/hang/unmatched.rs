//! Mismatched sends and receives: they carry no number, but ranks with the same role make equally many calls.

use std::collections::BTreeMap;

use xpu_wire::id::CommunicatorId;

use super::super::evidence::hang::{Exchanging, GpuState, Messages, Unmatched};
use super::{
    Class, Confidence, Evidence, Finding, Place, Rank, StalledCommunicator, finding, gpu_progress,
    waits_for_gpu,
};
use crate::job::Job;

/// All ranks of a communicator wait for their GPUs after equally many sends and receives. Until the records of
/// calls are read, it is unknown whether one of them has no partner. If none lacks its partner, the states of the
/// GPUs show whether some ranks have not reached theirs.
pub(super) fn exchanging(job: &Job, stalled: &[StalledCommunicator<'_>]) -> Option<Finding> {
    let exchanges =
        |place: &Place<'_>| place.view.latest().is_some_and(|digest| digest.launches.point_to_point > 0);
    // If so, its GPU is not in a send or receive.
    let ends_with_collective = |place: &Place<'_>| {
        let record = job.record(place.rank).filter(|_| job.has_fresh_record(place.rank));
        record.and_then(|record| record.calls.last()).is_some_and(|call| call.operation.is_collective())
    };
    let stuck = |stalled: &&StalledCommunicator<'_>| {
        let places = &stalled.places;
        places.len() > 1
            && stalled.is_whole()
            && places.iter().all(|place| exchanges(place) && waits_for_gpu(place))
            && !places.iter().all(ends_with_collective)
    };
    let stalled = stalled.iter().filter(stuck).max_by_key(|stalled| stalled.places.len())?;
    let all: Vec<Rank> = stalled.places.iter().map(|place| place.rank).collect();
    let states = gpu_progress::of_messages(job, stalled);
    let messages = states.map_or(Messages::Unread, |states| {
        let behind = states.iter().filter(|at| at.state == GpuState::Behind);
        let behind: Vec<Rank> = behind.flat_map(|at| at.ranks.iter().copied()).collect();
        // If all are behind earlier work, none of them is known to wait for the others.
        if behind.is_empty() || behind.len() == all.len() {
            Messages::Matched
        } else {
            Messages::NotReached(behind)
        }
    });
    let (class, ranks, confidence) = match &messages {
        Messages::Unread => (Class::Unmatched, all.clone(), Confidence::Guess),
        Messages::Matched => (Class::InKernel, all.clone(), Confidence::Likely),
        Messages::NotReached(behind) => (Class::NotStarted, behind.clone(), Confidence::Likely),
    };
    let advice = match &messages {
        Messages::Unread => "look at the last calls of each rank for one without its partner",
        Messages::Matched => {
            "look for Xid errors in dmesg, and at NVLink and network counters of these ranks; a GPU core dump names the kernels"
        }
        Messages::NotReached(_) => {
            "look at what these ranks launched before it: a kernel that does not end (a GPU core dump names it)"
        }
    };
    let evidence = Evidence::Exchanging(Exchanging {
        ranks: all,
        communicator: stalled.id.to_string(),
        hung_s: stalled.stalled_for.as_secs_f64(),
        messages,
    });
    Some(finding(class, ranks, confidence, stalled, evidence, advice, None))
}

pub(super) fn sends(job: &Job, stalled: &[StalledCommunicator<'_>]) -> Option<Finding> {
    let stuck = stalled.iter().min_by_key(|stalled| stalled.stalled_for)?;
    let mut parts: BTreeMap<Vec<CommunicatorId>, Vec<(Rank, u64)>> = BTreeMap::new();
    for (rank, view) in job.ranks() {
        let Some(digest) = view.latest().filter(|digest| digest.launches.point_to_point > 0) else {
            continue;
        };
        if view.stalled_for() < stuck.stalled_for / 2 {
            return None;
        }
        let mut part: Vec<_> = digest.communicators.iter().map(|state| state.id).collect();
        part.sort_unstable();
        parts.entry(part).or_default().push((rank, digest.launches.point_to_point));
    }
    let fewer = parts.values().find_map(|ranks| {
        let mut counts: Vec<_> = ranks.iter().map(|&(_, count)| count).collect();
        counts.sort_unstable();
        let usual = *counts.get(counts.len() / 2)?;
        let fewer: Vec<_> = ranks.iter().filter(|&&(_, count)| count < usual).copied().collect();
        (!fewer.is_empty()).then_some((fewer, usual, ranks.len()))
    });
    let (fewer, usual, of) = fewer?;
    let ranks: Vec<Rank> = fewer.iter().map(|&(rank, _)| rank).collect();
    let &(_, calls) = fewer.first()?;
    let evidence = Evidence::Unmatched(Unmatched {
        ranks: ranks.clone(),
        calls,
        usual,
        of,
        hung_s: stuck.stalled_for.as_secs_f64(),
    });
    let advice =
        "look for the send or receive that this rank leaves out: its neighbour in the pipeline waits for it";
    let confidence = if of > 2 { Confidence::Likely } else { Confidence::Guess };
    Some(finding(Class::Unmatched, ranks, confidence, stuck, evidence, advice, None))
}
