//! Collectives that GPUs have not reached, by the events before them on their streams.

use std::collections::BTreeSet;

use xpu_wire::{
    frame::{CallSite, CallState, RankRecord, RecordedCall},
    id::CommunicatorId,
};

use super::{
    super::evidence::hang::{After, NotStarted},
    Class, Confidence, Evidence, Finding, Place, Rank, StalledCommunicator, Witness, device, finding,
};
use crate::job::Job;

/// Ranks that wait for no other rank, and whose GPUs have not reached the collective that other GPUs have
/// reached.
pub(super) fn ranks(job: &Job, stalled: &[StalledCommunicator<'_>]) -> Option<Finding> {
    let mut waiting = BTreeSet::new();
    let mut queues = Vec::new();
    for stalled in stalled {
        let all_progress: Vec<_> =
            stalled.places.iter().map(|place| GpuProgress::of(job, stalled.id, place)).collect();
        let started = |number: u64| all_progress.iter().filter(move |progress| progress.has_started(number));
        for progress in &all_progress {
            let Some(last) = progress.begun else { continue };
            if started(last).count() < stalled.places.len() {
                waiting.insert(progress.rank);
            }
        }
        let queued = all_progress.iter().filter_map(|progress| Some((progress.rank, progress.queued?)));
        let awaited: Vec<_> = queued.filter(|&(_, number)| started(number).count() > 0).collect();
        if let Some(first) = awaited.iter().map(|&(_, number)| number).min() {
            queues.push((stalled, awaited, first, started(first).count()));
        }
    }
    let is_root = |rank: &Rank| !waiting.contains(rank);
    let roots =
        |awaited: &[(Rank, u64)]| awaited.iter().map(|&(rank, _)| rank).filter(is_root).collect::<Vec<_>>();
    let of = |queue: &&(_, Vec<_>, _, usize)| !roots(&queue.1).is_empty();
    let (stalled, awaited, number, started) = queues.iter().filter(of).max_by_key(|queue| queue.3)?;
    let ranks = roots(awaited);
    let is_named = |place: &&Place<'_>| ranks.contains(&place.rank);
    let collective = stalled.collective(*number, stalled.places.iter());
    let advice = if stalled.places.iter().filter(is_named).all(|place| device::is_without_xid(place.view)) {
        "look at what these ranks launched before it: a kernel that does not end (a GPU core dump names it), or a wait for an event that nothing records; the driver reported no Xid error"
    } else {
        "look for Xid errors in dmesg on that host, and at what these ranks launched before it"
    };
    let evidence = Evidence::NotStarted(NotStarted {
        ranks: ranks.clone(),
        started: *started,
        collective: collective.clone(),
        hung_s: stalled.stalled_for.as_secs_f64(),
        witness: Witness::Event,
        after: After::of(job, stalled.id, *number, ranks[0]),
    });
    Some(finding(Class::NotStarted, ranks, Confidence::Likely, stalled, evidence, advice, Some(collective)))
}

/// The ranks whose GPUs have not reached a collective that all ranks launched, if it is unknown whether the
/// other ranks' GPUs have. Their GPUs wait for no other rank: all their earlier NCCL calls have ended.
pub(super) fn by_own_work(job: &Job, stalled: &StalledCommunicator<'_>, found: &Finding) -> Option<Finding> {
    let collective = found.collective.clone()?;
    let number = collective.number;
    let all_progress: Vec<_> =
        stalled.places.iter().map(|place| GpuProgress::of(job, stalled.id, place)).collect();
    let is_queued = |progress: &&GpuProgress| progress.queued == Some(number);
    if all_progress.iter().any(|progress| progress.begun.is_some()) {
        return None;
    }
    let ranks: Vec<Rank> = all_progress.iter().filter(is_queued).map(|progress| progress.rank).collect();
    let is_own = |&rank: &Rank| has_ended_all_before(job, stalled.id, number, rank);
    if ranks.is_empty() || ranks.len() == stalled.places.len() || !ranks.iter().all(is_own) {
        return None;
    }
    let evidence = Evidence::NotStarted(NotStarted {
        started: 0,
        collective: collective.clone(),
        hung_s: stalled.stalled_for.as_secs_f64(),
        witness: Witness::Event,
        after: After::of(job, stalled.id, number, ranks[0]),
        ranks: ranks.clone(),
    });
    let advice = "look at what these ranks launched before it: a kernel that does not end (a GPU core dump names it), or a wait for an event that nothing records";
    Some(finding(Class::NotStarted, ranks, Confidence::Guess, stalled, evidence, advice, Some(collective)))
}

/// Whether the record has the calls before this collective, and none of them may still be running.
fn has_ended_all_before(job: &Job, communicator: CommunicatorId, number: u64, rank: Rank) -> bool {
    let ended = |call: &RecordedCall| {
        matches!(call.state, CallState::Done | CallState::Refused | CallState::Captured)
    };
    recorded(job, communicator, number, rank).is_some_and(|(record, at)| record.calls[..at].iter().all(ended))
}

/// The fresh record of this rank, and the place of this collective in it.
fn recorded(
    job: &Job,
    communicator: CommunicatorId,
    number: u64,
    rank: Rank,
) -> Option<(&RankRecord, usize)> {
    let record = job.record(rank).filter(|_| job.has_fresh_record(rank))?;
    let is_it = |call: &RecordedCall| {
        let of = record.communicator(call);
        of.is_some_and(|one| one.id == communicator)
            && call.number == Some(number)
            && call.operation.is_collective()
    };
    Some((record, record.calls.iter().rposition(is_it)?))
}

impl After {
    /// Reads it from the record of this rank. `None` if the record has no such call, or if no earlier call on
    /// its stream is known to have ended.
    pub(super) fn of(job: &Job, communicator: CommunicatorId, number: u64, rank: Rank) -> Option<Self> {
        let (record, at) = recorded(job, communicator, number, rank)?;
        let call = &record.calls[at];
        let is_over =
            |before: &&RecordedCall| before.stream == call.stream && before.state == CallState::Done;
        let before = record.calls[..at].iter().rfind(is_over)?;
        let [place, until] = places([before, call].map(|call| record.site(call)));
        Some(Self { operation: before.operation, place, until })
    }
}

/// The places of two calls, unless one address in native code is all that is known of both. That is so for
/// DDP, whose calls come from autograd's thread.
fn places(sites: [Option<&CallSite>; 2]) -> [Option<String>; 2] {
    let has_frame = sites.iter().flatten().any(|site| site.frame().is_some());
    let places = sites.map(|site| site.and_then(CallSite::place));
    if !has_frame && places[0] == places[1] { [None, None] } else { places }
}

/// The progress of a rank's GPU in a communicator. Only some of its collectives have an event before them.
struct GpuProgress {
    rank: Rank,
    /// Number of collectives known to be done.
    done: u64,
    /// The last collective that has started and is not known to be done, and the first that has not started.
    begun: Option<u64>,
    queued: Option<u64>,
}

impl GpuProgress {
    fn of(job: &Job, communicator: CommunicatorId, place: &Place<'_>) -> Self {
        let mut progress = Self { rank: place.rank, done: place.state.completed, begun: None, queued: None };
        let fresh = place.is_alive() && job.has_fresh_record(place.rank);
        let Some(record) = job.record(place.rank).filter(|_| fresh) else { return progress };
        let is_of = |call: &&RecordedCall| {
            let of = record.communicator(call);
            call.operation.is_collective()
                && of.is_some_and(|one| (one.id, one.member) == (communicator, place.state.rank))
        };
        for call in record.calls.iter().filter(is_of) {
            match (call.state, call.number) {
                (CallState::Begun, Some(number)) => progress.begun = progress.begun.max(Some(number)),
                (CallState::Queued, Some(number)) if progress.queued.is_none() => {
                    progress.queued = Some(number);
                }
                _ => {}
            }
        }
        progress
    }

    fn has_started(&self, number: u64) -> bool {
        number < self.done || self.begun.is_some_and(|begun| begun >= number)
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::StackFrame;

    use super::*;

    #[test]
    fn one_native_address_of_both_calls_is_no_place() {
        let site = |native: &str, line: Option<u32>| CallSite {
            frames: line
                .map(|line| StackFrame { function: "log".into(), file: "train.py".into(), line })
                .into_iter()
                .collect(),
            returns_to: 0,
            native: native.to_owned(),
        };
        let of = |one: &CallSite, other: &CallSite| places([Some(one), Some(other)]);
        let torch = site("libtorch_cuda.so+0x1", None);
        assert_eq!(of(&torch, &torch), [None, None]);
        let other = site("libtorch_cuda.so+0x2", None);
        assert_eq!(of(&torch, &other), [torch.place(), other.place()]);
        let python = site("libtorch_cuda.so+0x1", Some(3));
        assert_eq!(of(&python, &python), [python.place(), python.place()], "a loop");
    }
}
