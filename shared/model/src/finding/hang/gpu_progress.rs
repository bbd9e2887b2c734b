//! The progress of each rank's GPU in the collective that does not end, or in the send or receive without its
//! partner. The sources are its calls, the events on its stream, NCCL's RAS, and the driver, in this order.

use xpu_wire::{
    frame::{CallState, RankRecord, RecordedCall, ThreadStack},
    id::{CommunicatorId, Rank},
    unit::Moment,
};

use super::{
    super::evidence::hang::{By, GpuState, GpusAt, culprits_kernel},
    Class, Evidence, Finding, Place, StalledCommunicator,
    witness::{self, Load},
};
use crate::{divergence::Divergence, job::Job, ras};

/// Number of groups that are listed; ranks in further states are in no group.
const GROUPS: usize = 32;

/// Share of its power limit below which a busy GPU runs a kernel that only waits: computing and moving data
/// take more.
const WAITING_POWER: f64 = 0.35;

/// Largest difference between the clocks of launches and calls.
const CLOCKS: u64 = 20_000_000;

/// Adds to a finding the state of each rank's GPU in the operation concerned.
pub(super) fn with_gpus(job: &Job, stalled: &[StalledCommunicator<'_>], mut finding: Finding) -> Finding {
    let groups = match &finding.collective {
        Some(collective) => stalled
            .iter()
            .find(|stalled| stalled.id.to_string() == collective.communicator)
            .map(|of| groups(job, of, collective.number)),
        None if matches!(finding.evidence, Evidence::Exchanging(_)) => {
            let of =
                stalled.iter().find(|of| of.places.iter().any(|place| finding.ranks.contains(&place.rank)));
            of.and_then(|of| of_messages(job, of)).map(|states| grouped(job, states.into_iter()))
        }
        None => job.divergence().and_then(|found| match finding.class {
            // If the calls on two communicators are in another order, selects the collective that not all
            // ranks have called.
            Class::Deadlock | Class::Mismatch if found.ends.is_empty() => {
                let open = |of: &&StalledCommunicator<'_>| of.id == found.id && of.least() < of.most();
                stalled.iter().find(open).map(|of| groups(job, of, of.least()))
            }
            Class::Unmatched | Class::Mismatch => Some(of_message(job, stalled, found)),
            _ => None,
        }),
    };
    if let Some(groups) = groups.filter(|groups| !groups.is_empty()) {
        finding.evidence = Evidence::OnGpus(Box::new(finding.evidence), groups);
        advise(&mut finding);
    }
    finding
}

/// Adds the kernels that a core dump has named since then.
pub(in super::super) fn with_kernels(job: &Job, mut finding: Finding) -> Finding {
    fn named(job: &Job, evidence: Evidence) -> Evidence {
        match evidence {
            Evidence::At(of, places) => Evidence::At(Box::new(named(job, *of)), places),
            Evidence::OnGpus(of, groups) => {
                let single = |group: &GpusAt, rank| GpusAt { ranks: vec![rank], ..group.clone() };
                let states = groups.iter().flat_map(|of| of.ranks.iter().map(move |&rank| single(of, rank)));
                Evidence::OnGpus(of, grouped(job, states))
            }
            other => other,
        }
    }
    finding.evidence = named(job, finding.evidence);
    advise(&mut finding);
    finding
}

/// The kernel of the ranks that the finding names is the next thing to look at.
fn advise(finding: &mut Finding) {
    if let Some(kernel) = culprits_kernel(&finding.ranks, finding.evidence.gpus()) {
        finding.advice = format!("look at what launches {kernel}, and at why it does not end");
    }
}

/// The states in collective `number`, the fewest ranks first.
fn groups(job: &Job, stalled: &StalledCommunicator<'_>, number: u64) -> Vec<GpusAt> {
    let ras_agrees =
        ras::Witness::of_communicator(job, stalled.id).is_some_and(|said| said.agrees == Some(true));
    // If ranks share a GPU, the driver's figures for one include those of the other.
    let are_alone = witness::have_own_devices(&stalled.places);
    let idle = witness::not_started(&stalled.places).map(|(ranks, _)| ranks).unwrap_or_default();
    let states = stalled.places.iter().map(|place| {
        let mut one = by_calls(job, stalled.id, place, number);
        if ras_agrees && one.by == By::Calls && one.state <= GpuState::NotLaunched {
            one.by = By::CallsAndRas;
        }
        if let Some(load) = Load::of(place.view).filter(|_| are_alone && place.is_alive()) {
            by_the_driver(&mut one, load, idle.contains(&place.rank));
        }
        one
    });
    grouped(job, states)
}

/// The states of both ranks of a send or receive.
fn of_message(job: &Job, stalled: &[StalledCommunicator<'_>], found: &Divergence) -> Vec<GpusAt> {
    let of = stalled.iter().find(|stalled| stalled.id == found.id);
    let are_alone = of.is_some_and(|of| witness::have_own_devices(&of.places));
    let states = found.ends.iter().map(|&(rank, call)| {
        let record = job.record(rank).filter(|_| job.has_fresh_record(rank));
        let mut one = match (record, call) {
            (_, None) => at(rank, GpuState::NotCalled, By::Calls),
            (Some(record), Some(order)) => match record.calls.iter().position(|call| call.order == order) {
                Some(place) => by_record(job, rank, record, place),
                None => at(rank, GpuState::Launched, By::Calls),
            },
            (None, Some(_)) => at(rank, GpuState::Launched, By::Calls),
        };
        let place = of.and_then(|of| of.places.iter().find(|place| place.rank == rank));
        let alive = place.filter(|place| are_alone && place.is_alive());
        if let Some(load) = alive.and_then(|place| Load::of(place.view)) {
            by_the_driver(&mut one, load, false);
        }
        one
    });
    grouped(job, states)
}

/// The state of each rank of a communicator in its first send or receive that has not ended; the rank is left out
/// if all have. `None` if the records do not show all of them.
pub(super) fn of_messages(job: &Job, stalled: &StalledCommunicator<'_>) -> Option<Vec<GpusAt>> {
    let of_rank = |place: &Place<'_>| {
        let record = job.record(place.rank).filter(|_| job.has_fresh_record(place.rank))?;
        let is_message = |call: &&RecordedCall| {
            let of = record.communicator(call);
            !call.operation.is_collective() && of.is_some_and(|one| one.id == stalled.id)
        };
        // A graph's launch does not list its sends.
        let is_hidden = |call: &RecordedCall| call.replays > 0 || call.state == CallState::Captured;
        if !record.why.is_empty() || record.calls.iter().filter(is_message).any(is_hidden) {
            return None;
        }
        let is_open = |call: &RecordedCall| {
            is_message(&call) && !matches!(call.state, CallState::Done | CallState::Refused)
        };
        let open = record.calls.iter().position(is_open);
        Some(open.map(|at_call| by_record(job, place.rank, record, at_call)))
    };
    let states: Option<Vec<_>> = stalled.places.iter().map(of_rank).collect();
    Some(states?.into_iter().flatten().collect())
}

/// Ranks in the same state together, the fewest first.
fn grouped(job: &Job, states: impl Iterator<Item = GpusAt>) -> Vec<GpusAt> {
    let mut groups: Vec<GpusAt> = Vec::new();
    for mut one in states {
        one.kernels = kernels(job, one.ranks[0]);
        let is_alike = |known: &GpusAt| {
            (known.state, known.by, &known.work, &known.kernels)
                == (one.state, one.by, &one.work, &one.kernels)
        };
        match groups.iter().position(is_alike) {
            Some(known) => groups[known].ranks.extend(one.ranks),
            None if groups.len() < GROUPS => groups.push(one),
            None => {}
        }
    }
    groups.sort_by_key(|group| (group.ranks.len(), group.state));
    groups
}

/// The names of the kernels on a rank's GPUs, by the core dump of its process, which the first rank of the process
/// has. A core dump numbers the GPUs as the process does.
fn kernels(job: &Job, rank: Rank) -> Option<Vec<String>> {
    let of_process = || job.ranks().filter(|(other, _)| other.process() == rank.process());
    let stacks = job.stacks_of(rank).or_else(|| of_process().find_map(|(other, _)| job.stacks_of(other)))?;
    let gpus = stacks.threads.iter().filter_map(|thread| Some((thread.gpu()?, thread)));
    let is_own = |gpu| rank.gpu().is_none_or(|own| own == gpu);
    let mut gpus = gpus.filter(|&(gpu, _)| is_own(gpu)).map(|(_, thread)| thread).peekable();
    gpus.peek()?;
    let mut names: Vec<_> = gpus
        .filter_map(|gpu| gpu.frames.first())
        .map(|kernel| kernel.function.clone())
        .filter(|name| name != ThreadStack::NO_KERNEL)
        .collect();
    names.dedup();
    Some(names)
}

fn at(rank: Rank, state: GpuState, by: By) -> GpusAt {
    GpusAt {
        ranks: vec![rank],
        state,
        by,
        work: None,
        launched_s: None,
        busy_pct: None,
        power_w: None,
        kernels: None,
    }
}

fn by_calls(job: &Job, id: CommunicatorId, place: &Place<'_>, number: u64) -> GpusAt {
    let at = |state, by| at(place.rank, state, by);
    let counts = place.state;
    match () {
        () if counts.entered <= number => return at(GpuState::NotCalled, By::Calls),
        () if counts.enqueued <= number => return at(GpuState::NotLaunched, By::Calls),
        () if counts.completed > number => return at(GpuState::Done, By::Events),
        () => {}
    }
    let record = job.record(place.rank).filter(|_| job.has_fresh_record(place.rank));
    let is_it = |call: &RecordedCall, record: &RankRecord| {
        let of = record.communicator(call);
        call.operation.is_collective()
            && of.is_some_and(|one| (one.id, one.member) == (id, counts.rank))
            && call.number == Some(number)
    };
    let found = record.and_then(|record| {
        let place = record.calls.iter().rposition(|call| is_it(call, record))?;
        Some((record, place))
    });
    match found {
        Some((record, at_call)) => by_record(job, place.rank, record, at_call),
        None => at(GpuState::Launched, By::Calls),
    }
}

/// The state of a call in a record. A group has the event before its first call of the communicator.
fn by_record(job: &Job, rank: Rank, record: &RankRecord, at_call: usize) -> GpusAt {
    let at = |state, by| at(rank, state, by);
    // The record is read once, and the hang lasts on.
    let now = job.rank(rank).map_or(record.read_at, |view| view.last_report().max(record.read_at));
    let call = &record.calls[at_call];
    let has_event = |other: &RecordedCall| matches!(other.state, CallState::Begun | CallState::Queued);
    let in_group = |other: &RecordedCall| {
        call.group.is_some() && (other.group, other.communicator) == (call.group, call.communicator)
    };
    let first = record.calls.iter().position(|other| in_group(other) && has_event(other));
    let at_event = first.filter(|_| !has_event(call)).unwrap_or(at_call);
    match (call.state, record.calls[at_event].state) {
        (CallState::Entered, _) => at(GpuState::NotLaunched, By::Calls),
        (CallState::Done, _) => at(GpuState::Done, By::Events),
        (_, CallState::Begun) => at(GpuState::Begun, By::Events),
        (_, CallState::Queued) => {
            let (work, launched) = work_before(record, at_event).unzip();
            let launched_s = launched.flatten().map(|launched| now.since(launched).as_secs_f64());
            GpusAt { work, launched_s, ..at(GpuState::Behind, By::Events) }
        }
        _ => at(GpuState::Launched, By::Calls),
    }
}

/// The last work that was launched before this call on its stream and is not known to have ended, and its
/// launch.
fn work_before(record: &RankRecord, at: usize) -> Option<(String, Option<Moment>)> {
    let call = &record.calls[at];
    let on_stream = || record.calls[..at].iter().rev().filter(|before| before.stream == call.stream);
    let is_open = |before: &&RecordedCall| {
        !matches!(before.state, CallState::Done | CallState::Refused | CallState::Captured)
    };
    let collective = on_stream().next().filter(is_open);
    let over =
        on_stream().find(|before| before.state == CallState::Done).map_or(0, |before| before.entered.0);
    // If a call has ended, everything launched before it on the same stream has ended too.
    let is_later = |launched: Option<Moment>| launched.is_none_or(|launched| launched.0 + CLOCKS >= over);
    let work = record.preceding(call).filter(|work| is_later(work.launched));
    match (work, collective) {
        (Some(work), Some(before)) if work.launched.is_some_and(|at| at.0 + CLOCKS < before.entered.0) => {
            Some((named(before), Some(before.entered)))
        }
        (Some(work), _) => Some((work.work.clone(), work.launched)),
        (None, before) => before.map(|before| (named(before), Some(before.entered))),
    }
}

fn named(call: &RecordedCall) -> String {
    let number = call.number.map_or_else(String::new, |number| format!(" #{number}"));
    format!("{}{number}", call.operation)
}

/// Adds the driver's figures for a GPU: they complete the evidence, or are the only evidence.
fn by_the_driver(at: &mut GpusAt, load: Load, has_not_begun: bool) {
    (at.busy_pct, at.power_w) = (Some(load.busy_pct), load.watts);
    let waits = load.busy_pct >= witness::BUSY
        && load.watts.zip(load.limit_watts).is_some_and(|(watts, limit)| watts <= limit * WAITING_POWER);
    match at.state {
        GpuState::Launched if has_not_begun => (at.state, at.by) = (GpuState::Behind, By::Driver),
        GpuState::Launched if waits => (at.state, at.by) = (GpuState::Still, By::Driver),
        GpuState::Begun if waits => (at.state, at.by) = (GpuState::Still, By::EventsAndDriver),
        GpuState::Behind => at.by = By::EventsAndDriver,
        GpuState::Begun => {}
        _ => (at.busy_pct, at.power_w) = (None, None),
    }
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;
    use xpu_wire::{
        collective::Operation,
        datatype::DataType,
        frame::{Body, Frame, PrecedingWork, RankStacks, StackFrame},
        id::{DeviceIndex, Pid},
    };

    use super::*;
    use crate::job::Jobs;

    const SECOND: u64 = 1_000_000_000;

    /// Calls on two streams, each with its second and state; and work that was launched before the last one.
    fn record(calls: &[(u64, u64, CallState)], work: Option<u64>) -> RankRecord {
        let call = |(order, &(stream, second, state)): (u64, &(u64, u64, CallState))| RecordedCall {
            order,
            communicator: 0,
            number: Some(order),
            operation: Operation::AllReduce,
            datatype: DataType::Float32,
            reduction: Some(0),
            peer: None,
            bytes: 64,
            replays: 0,
            group: None,
            stream,
            entered: Moment(second * SECOND),
            state,
            site: None,
        };
        RankRecord {
            read_at: Moment(100 * SECOND),
            calls: (0..).zip(calls).map(call).collect(),
            preceding: work.map_or_else(Vec::new, |second| {
                let launched = Some(Moment(second * SECOND));
                let order = calls.len() as u64 - 1;
                vec![PrecedingWork { order, work: "GEMM".to_owned(), launched, stream: 7 }]
            }),
            ..RankRecord::unread("j".into(), Rank(1), Pid(2), String::new())
        }
    }

    #[test]
    fn the_last_that_was_launched_before_a_call_and_may_still_run() {
        use CallState::{Done, Queued};
        let of = |calls: &[_], work| {
            let record = record(calls, work);
            work_before(&record, record.calls.len() - 1)
        };
        let gemm = |second| Some(("GEMM".to_owned(), Some(Moment(second * SECOND))));
        assert_eq!(of(&[(1, 50, Done), (1, 60, Queued)], Some(55)), gemm(55));
        assert_eq!(of(&[(1, 50, Done), (1, 60, Queued)], Some(40)), None, "it has ended");
        assert_eq!(of(&[(2, 50, Done), (1, 60, Queued)], Some(40)), gemm(40), "on another stream");
        assert_eq!(of(&[(1, 50, Queued), (1, 60, Queued)], Some(55)), gemm(55));
        let collective = Some(("AllReduce #0".to_owned(), Some(Moment(50 * SECOND))));
        assert_eq!(of(&[(1, 50, Queued), (1, 60, Queued)], Some(40)), collective);
        assert_eq!(of(&[(1, 50, Queued), (1, 60, Queued)], None), collective);
        assert_eq!(of(&[(1, 60, Queued)], None), None);
    }

    #[test]
    fn kernels_are_those_of_each_gpu_of_a_process() {
        let simulation = Simulation::new(1, 1, 2);
        let ranks = [0, 1].map(|gpu| Rank(0).of_gpu(DeviceIndex(gpu)));
        let mut jobs = Jobs::default();
        for mut frame in simulation.digests(9) {
            let Body::Digest(digest) = &mut frame.body else { unreachable!() };
            let pid = digest.ranks[0].pid;
            for (digest, rank) in digest.ranks.iter_mut().zip(ranks) {
                (digest.rank, digest.pid, digest.world_size) = (rank, pid, 1);
            }
            jobs.fold(&frame);
        }
        let thread = |(gpu, kernel): (u32, &str)| ThreadStack {
            name: format!("{} {gpu}", ThreadStack::GPU),
            frames: vec![StackFrame { function: kernel.to_owned(), file: String::new(), line: 0 }],
            ..ThreadStack::default()
        };
        let job = jobs.foremost().unwrap();
        let view = job.rank(ranks[0]).unwrap();
        let unread = RankStacks::unread(job.name().clone(), ranks[0], view.pid(), String::new());
        let threads = [(0, "all_reduce"), (1, "spin"), (1, "copy")].map(thread).to_vec();
        let stacks = RankStacks { read_at: view.last_report(), threads, why: Vec::new(), ..unread };
        let now = view.last_report();
        jobs.fold(&Frame { host: view.host().clone(), number: 0, now, lost: 0, body: Body::Stacks(stacks) });
        let job = jobs.foremost().unwrap();
        assert_eq!(kernels(job, ranks[0]), Some(vec!["all_reduce".to_owned()]));
        assert_eq!(kernels(job, ranks[1]), Some(vec!["spin".to_owned(), "copy".to_owned()]));
        assert_eq!(kernels(job, Rank(1)), None);
    }
}
