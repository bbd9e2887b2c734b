//! The matched collectives of one rank, summed by digest and communicator.

use std::time::Duration;

use xpu_wire::{
    id::{CommunicatorId, Sequence, Step},
    sampling::{self, Rate},
    unit::{Moment, Nanoseconds},
};

/// Digests are published once a second, and those of a thinned history are at least twice as long.
const THINNED: Duration = Duration::from_millis(1500);

/// The matched collectives of one digest, and of the preceding digests without any.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Number of digests, including the preceding ones without matched collectives.
    pub(super) digests: usize,
    /// The end of the digest before, and of its own.
    pub(super) from: Moment,
    pub(super) at: Moment,
    pub(super) step: Option<Step>,
    pub(super) communicators: Vec<Counts>,
    /// Factor by which its collectives count: more than one if some of its time has no matched collectives,
    /// because a collector was restarted.
    pub(super) represents: f64,
}

/// The matched collectives of one communicator. Times in nanoseconds.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) id: CommunicatorId,
    pub(super) joined: u32,
    pub(super) last: u32,
    /// At least one in 2^k was timed, according to the hashes of the timed ones.
    pub(super) rate: u32,
    /// At most one in 2^k was timed, according to the ranks' reports.
    pub(super) coarsest: u32,
    /// Numbers of the first and the last of them.
    pub(super) first: Sequence,
    pub(super) latest: Sequence,
    pub(super) gaps: f64,
    pub(super) squares: f64,
    pub(super) waited: f64,
    pub(super) late: f64,
    pub(super) late_squares: f64,
}

/// How a rank entered a collective.
#[derive(Clone, Copy, Debug)]
pub(in crate::job) struct Entry {
    pub(in crate::job) communicator: CommunicatorId,
    pub(in crate::job) sequence: Sequence,
    /// The coarsest rate at which its ranks were timed.
    pub(in crate::job) coarsest: Rate,
    /// The shortest wait of the others for it, if it was the last.
    pub(in crate::job) gap: Nanoseconds,
    /// Its wait for the last rank.
    pub(in crate::job) waited: Nanoseconds,
    /// Its arrival skew: the time after the first rank.
    pub(in crate::job) late: Nanoseconds,
}

impl Tally {
    pub(super) fn new(from: Moment, at: Moment, step: Option<Step>) -> Self {
        Self { digests: 1, from, at, step, communicators: Vec::new(), represents: 1.0 }
    }

    /// Whether it is of a thinned history: its digests are longer than those that are published.
    pub(super) fn is_thinned(&self) -> bool {
        self.at.since(self.from) > THINNED * self.digests as u32
    }

    pub(super) fn take(&mut self, Entry { communicator: id, sequence, coarsest, gap, waited, late }: Entry) {
        let place = self.communicators.iter().position(|counts| counts.id == id).unwrap_or_else(|| {
            self.communicators.push(Counts::new(id, sequence));
            self.communicators.len() - 1
        });
        let counts = &mut self.communicators[place];
        let (gap, waited, late) = (gap.0 as f64, waited.0 as f64, late.0 as f64);
        counts.joined += 1;
        counts.last += u32::from(waited == 0.0);
        counts.rate = counts.rate.min(sampling::priority(sequence.0).leading_zeros());
        counts.coarsest = counts.coarsest.max(u32::from(coarsest.0));
        counts.first = counts.first.min(sequence);
        counts.latest = counts.latest.max(sequence);
        counts.gaps += gap;
        counts.squares += gap * gap;
        counts.waited += waited;
        counts.late += late;
        counts.late_squares += late * late;
    }
}

impl Counts {
    fn new(id: CommunicatorId, first: Sequence) -> Self {
        Self {
            id,
            joined: 0,
            last: 0,
            rate: u32::MAX,
            coarsest: 0,
            first,
            latest: first,
            gaps: 0.0,
            squares: 0.0,
            waited: 0.0,
            late: 0.0,
            late_squares: 0.0,
        }
    }
}
