//! A rank's events since its last digest, and the digest made of them.
//!
//! A digest covers everything since the previous digest exactly once. There may be one summary between two
//! digests, or none, or several.

use xpu_wire::{
    frame::{
        CollectiveSample, CommunicatorState, Inside, Launches, Life, RankDigest, RankInfo, Summary, TimedBy,
        Work,
    },
    histogram::Histogram,
    id::CommunicatorId,
    ledger::{CommunicatorReading, ThreadReading},
    sampling::Rate,
    unit::{Moment, Nanoseconds},
};

/// Largest number of timed collectives that wait for the next digest: those of a few summaries that arrive at
/// once.
const WAITING_SAMPLES: usize = 4 * Summary::SAMPLES;

/// Sums of the summaries since the last digest.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub steps: Histogram,
    samples: Vec<(CommunicatorId, CollectiveSample)>,
    /// Time that launching threads spent on timing, and the elapsed time.
    pub spent: Nanoseconds,
    pub interval: Nanoseconds,
}

impl Pending {
    pub(crate) fn take_samples(&mut self, summary: &Summary) {
        let named = summary.samples.iter().take(Summary::SAMPLES).filter_map(|sample| {
            let communicator = summary.communicators.get(usize::from(sample.communicator))?;
            Some((communicator.id, *sample))
        });
        self.samples.extend(named);
        keep_foremost(&mut self.samples, WAITING_SAMPLES);
    }

    /// The share of launching threads' time that went into timing, in millionths; `None` if no time passed.
    pub(crate) fn overhead_ppm(&self) -> Option<u32> {
        let share = (self.interval.0 > 0).then(|| self.spent.0 as f64 / self.interval.0 as f64)?;
        // A float cast saturates, so it cannot fail.
        Some((share * 1e6) as u32)
    }

    /// The samples of the communicators in the digest, with their index there.
    pub(crate) fn samples_of(&self, listed: &[CommunicatorState]) -> Vec<CollectiveSample> {
        let index = |id| listed.iter().position(|state| state.id == id).and_then(|at| u8::try_from(at).ok());
        let mut kept: Vec<_> =
            self.samples.iter().filter_map(|&(id, sample)| Some((index(id)?, sample))).collect();
        keep_foremost(&mut kept, RankDigest::SAMPLES);
        kept.into_iter().map(|(communicator, sample)| CollectiveSample { communicator, ..sample }).collect()
    }
}

/// Keeps the samples of smallest priority, in their order. The same collectives have the smallest priority on
/// every rank.
fn keep_foremost<T: Copy>(samples: &mut Vec<(T, CollectiveSample)>, most: usize) {
    if samples.len() > most {
        samples.sort_by_key(|(_, sample)| sample.priority());
        samples.truncate(most);
        samples.sort_by_key(|(_, sample)| sample.sequence);
    }
}

/// A communicator, and when it last moved.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub state: CommunicatorState,
    pub advanced: Moment,
    /// Whether the worker no longer reports the communicator. One more digest includes it, for the samples
    /// that wait.
    pub closed: bool,
}

impl Known {
    /// A communicator that only the ledger page shows.
    pub(crate) fn read(line: &CommunicatorReading, now: Moment) -> Self {
        Self { state: line.into(), advanced: now, closed: false }
    }

    /// A communicator in a summary.
    pub(crate) fn said(state: &CommunicatorState, now: Moment) -> Self {
        Self { state: state.clone(), advanced: now, closed: false }
    }

    pub(crate) fn is_same(&self, state: &CommunicatorState) -> bool {
        (self.state.id, self.state.rank) == (state.id, state.rank)
    }

    /// Takes the next summary's state. It may be older than the last reading of the ledger page, so counts
    /// never decrease.
    pub(crate) fn update(&self, state: &CommunicatorState, now: Moment) -> Self {
        let (old, mut new) = (&self.state, state.clone());
        if old.entered > new.entered {
            (new.last_operation, new.last_bytes) = (old.last_operation, old.last_bytes);
        }
        new.entered = new.entered.max(old.entered);
        new.enqueued = new.enqueued.max(old.enqueued);
        new.completed = new.completed.max(old.completed);
        let advanced = if new == *old { self.advanced } else { now };
        Self { state: new, advanced, closed: false }
    }

    /// Whether the line is of the same communicator and rank. One process may hold several ranks of a
    /// communicator (`ncclCommInitAll`).
    pub(crate) fn is_of(&self, line: &CommunicatorReading) -> bool {
        (self.state.id, self.state.rank) == (line.id, line.rank)
    }

    /// Takes the ledger page's state beyond the last summary.
    pub(crate) fn advance(&mut self, line: &CommunicatorReading, now: Moment) {
        let state = &mut self.state;
        if line.entered < state.entered {
            return;
        }
        if (line.entered, line.enqueued) > (state.entered, state.enqueued) || line.completed > state.completed
        {
            self.advanced = now;
        }
        state.entered = line.entered;
        state.enqueued = line.enqueued.max(state.enqueued);
        state.completed = line.completed.max(state.completed);
        state.last_operation = line.last_operation;
        state.last_bytes = line.last_bytes;
    }
}

/// The communicators that fit into a digest: those that moved last.
pub(crate) fn foremost(known: &[Known]) -> Vec<CommunicatorState> {
    let mut order: Vec<_> = known.iter().collect();
    order.sort_by_key(|known| std::cmp::Reverse((known.advanced, known.state.entered)));
    order.into_iter().take(RankDigest::COMMUNICATORS).map(|known| known.state.clone()).collect()
}

/// The threads that fit into a digest: those inside their call the longest.
pub(crate) fn inside(mut threads: Vec<ThreadReading>, now: Moment) -> Vec<Inside> {
    threads.sort_by_key(|thread| thread.since);
    let said = threads.into_iter().take(RankDigest::INSIDE);
    said.map(|ThreadReading { thread, call, since }| Inside { thread, call, waited: now.since(since).into() })
        .collect()
}

/// The digest of a rank that has only introduced itself.
pub(crate) fn empty(info: &RankInfo, now: Moment) -> RankDigest {
    RankDigest {
        rank: info.rank,
        world_size: info.world_size,
        pid: info.pid,
        life: Life::Alive,
        heard: now,
        step: None,
        step_at: Moment::default(),
        step_median: None,
        step_count: 0,
        step_p50: None,
        step_p99: None,
        steps_timed_by: TimedBy::Host,
        step_source: None,
        optimizer: String::new(),
        work: Work::default(),
        gemm_timed_flops: 0.0,
        gemm_timed_for: Nanoseconds::default(),
        gemm_flops: 0.0,
        gemm_at_peak: None,
        graphs_for: Nanoseconds::default(),
        graphs_flops: 0.0,
        communicators: Vec::new(),
        inside: Vec::new(),
        samples: Vec::new(),
        launches: Launches::default(),
        dropped_records: 0,
        untimed: 0,
        overhead_ppm: 0,
        budget_ppm: None,
        gemm_rate: Rate::EVERY,
        collective_rate: Rate::EVERY,
        memory_held: 0,
        memory_nccl: None,
        memory_growth: None,
        blocked_for: Nanoseconds::default(),
        blocked_calls: 0,
        exposed_for: None,
        device: None,
        enabled: true,
        blind: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{collective::Operation, id::Sequence};

    use super::*;

    fn state(id: u64) -> CommunicatorState {
        CommunicatorState {
            id: CommunicatorId(id),
            parent: None,
            name: String::new(),
            rank: 0,
            size: 2,
            entered: 1,
            enqueued: 1,
            completed: 1,
            last_operation: Some(Operation::AllReduce),
            last_bytes: 8,
        }
    }

    fn sample(communicator: u8, sequence: u64) -> CollectiveSample {
        CollectiveSample {
            communicator,
            sequence: Sequence(sequence),
            operation: Operation::AllReduce,
            bus_bytes: 8,
            duration: Nanoseconds(sequence),
        }
    }

    #[test]
    fn a_sample_stays_with_its_communicator_when_that_moves_to_another_place() {
        let mut pending = Pending::default();
        let communicators = vec![state(10), state(20)];
        let samples = vec![sample(0, 1), sample(1, 2), sample(9, 3)];
        pending.take_samples(&Summary { communicators, samples, ..Summary::default() });
        assert_eq!(pending.samples_of(&[state(20), state(10)]), [sample(1, 1), sample(0, 2)]);
        assert_eq!(pending.samples_of(&[state(20)]), [sample(0, 2)]);
    }

    #[test]
    fn all_ranks_keep_the_same_samples_when_not_all_fit() {
        let of = |range: std::ops::Range<u64>| {
            let mut pending = Pending::default();
            let samples = range.map(|n| sample(0, n)).collect();
            pending.take_samples(&Summary { communicators: vec![state(1)], samples, ..Summary::default() });
            pending.samples_of(&[state(1)])
        };
        let (one, other) = (of(100..150), of(100..150));
        assert_eq!(one.len(), RankDigest::SAMPLES);
        assert_eq!(one, other);
        assert!(one.is_sorted_by_key(|sample| sample.sequence));
    }

    /// The ledger page is read when the digest is made; an earlier summary may arrive after it.
    #[test]
    fn the_count_of_entered_calls_never_decreases() {
        let mut known = Known::said(&state(1), Moment(1));
        let counts = |entered, completed| CommunicatorState { entered, completed, ..state(1) };
        known.state = counts(9, 7);
        let late = CommunicatorState { last_bytes: 99, ..counts(5, 5) };
        let heard = known.update(&late, Moment(2));
        assert_eq!((&heard.state, heard.advanced), (&counts(9, 7), Moment(1)), "nothing moved");
        let heard = known.update(&counts(9, 8), Moment(3));
        assert_eq!((&heard.state, heard.advanced), (&counts(9, 8), Moment(3)));
    }

    #[test]
    fn the_communicators_reported_are_those_that_moved_last() {
        let known: Vec<_> =
            (1..=20).map(|id| Known { state: state(id), advanced: Moment(id), closed: false }).collect();
        let listed: Vec<_> = foremost(&known).iter().map(|state| state.id.0).collect();
        assert_eq!(listed, [20, 19, 18, 17, 16, 15, 14, 13]);
    }

    #[test]
    fn a_share_of_no_time_is_unknown() {
        assert_eq!(Pending::default().overhead_ppm(), None);
        let pending = Pending { spent: Nanoseconds(3), interval: Nanoseconds(10_000), ..Pending::default() };
        assert_eq!(pending.overhead_ppm(), Some(300));
    }
}
