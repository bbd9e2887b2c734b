//! One communicator's line in the ledger.

use super::sync::{Acquire, AtomicU64, Relaxed, Release, fence};
use crate::{collective::Operation, id::CommunicatorId, unit::Moment};

/// One communicator's counters. A line whose id is 0 is free.
///
/// The id also guards the line: a reader that finds the same id before and after it read the rest has read
/// one communicator's data. Each count carries a few bits of the id, so a late thread adds nothing to the
/// counts of a line that was closed and reopened. Only its data about the last operation may remain there
/// until the next one is entered.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CommunicatorLine {
    id: AtomicU64,
    /// Collectives whose call was entered, whose call returned, and that have completed on the GPU.
    entered: AtomicU64,
    enqueued: AtomicU64,
    completed: AtomicU64,
    /// The last one entered: operation in the top byte, bytes below.
    last: AtomicU64,
    last_at: AtomicU64,
    /// This rank's number in it, and its size, 32 bits each.
    place: AtomicU64,
    /// Sends and receives entered; they carry no sequence number of their own.
    point_to_point: AtomicU64,
}

/// The id of a line that is being reassigned to another communicator.
const OPENING: u64 = u64::MAX;

/// Attempts to read a line while it is reassigned. Reassigning takes nanoseconds, and happens rarely.
const ATTEMPTS: usize = 4;

/// The lower bits of a count are its number, the others are the id's.
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The part of an id that each count carries.
fn mark(id: CommunicatorId) -> u64 {
    id.0 << COUNT_BITS
}

/// Which threads may change a count at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Only the calling thread: NCCL allows one thread at a time on a communicator. This needs no locked
    /// instruction.
    One,
    /// Other threads too: they launch CUDA graphs that hold the communicator's operations.
    Many,
}

/// Adds to a count of communicator `id`, and returns its number before. Does nothing if the line now belongs
/// to another communicator.
#[inline]
fn change(count: &AtomicU64, id: CommunicatorId, writers: Writers, next: impl Fn(u64) -> u64) -> Option<u64> {
    let mark = mark(id);
    let changed = |before: u64| {
        let ours = (before ^ mark) & !COUNT == 0;
        Some(mark | next(before & COUNT).min(COUNT)).filter(|&after| ours && after != before)
    };
    let before = match writers {
        Writers::One => {
            let before = count.load(Relaxed);
            count.store(changed(before)?, Release);
            before
        }
        Writers::Many => count.fetch_update(Release, Relaxed, changed).ok()?,
    };
    Some(before & COUNT)
}

impl CommunicatorLine {
    /// Takes a free line for a communicator. `false` if it is not free.
    pub fn open(&self, id: CommunicatorId, rank: u32, size: u32) -> bool {
        if self.id.compare_exchange(0, OPENING, Acquire, Relaxed).is_err() {
            return false;
        }
        // A reader that sees any of the following stores also sees that the line's previous id is gone.
        fence(Release);
        for word in [&self.last, &self.last_at] {
            word.store(0, Relaxed);
        }
        // Atomic exchanges: a concurrent change either precedes them, or fails because the bits are another
        // communicator's.
        for count in [&self.entered, &self.enqueued, &self.completed, &self.point_to_point] {
            count.swap(mark(id), Relaxed);
        }
        self.place.store(u64::from(rank) << 32 | u64::from(size), Relaxed);
        self.id.store(id.0, Release);
        true
    }

    pub fn close(&self) {
        self.id.store(0, Release);
    }

    /// Adds `count` entered collectives of communicator `id`; the last was `operation` of `bytes`. Returns
    /// the number of the first, unless the line now belongs to another communicator.
    #[inline]
    pub fn enter(
        &self,
        id: CommunicatorId,
        count: u64,
        operation: Operation,
        bytes: u64,
        now: Moment,
        writers: Writers,
    ) -> Option<u64> {
        self.last.store((operation as u64) << 56 | bytes.min((1 << 56) - 1), Relaxed);
        self.last_at.store(now.0, Relaxed);
        change(&self.entered, id, writers, |before| before + count)
    }

    /// Subtracts the last `count` entered collectives, which NCCL refused.
    pub fn retract(&self, id: CommunicatorId, count: u64) {
        let _ = change(&self.entered, id, Writers::Many, |before| before.saturating_sub(count));
    }

    #[inline]
    pub fn enqueue(&self, id: CommunicatorId, count: u64, writers: Writers) {
        let _ = change(&self.enqueued, id, writers, |before| before + count);
    }

    /// Notes that everything up to and including collective number `sequence` is done. The count never
    /// decreases.
    pub fn complete(&self, id: CommunicatorId, sequence: u64) {
        let _ = change(&self.completed, id, Writers::Many, |before| before.max(sequence + 1));
    }

    /// Adds `count` entered sends and receives.
    pub fn point_to_point(&self, id: CommunicatorId, count: u64, writers: Writers) {
        let _ = change(&self.point_to_point, id, writers, |before| before + count);
    }

    /// `None` if it is free, or is being reassigned.
    pub fn read(&self) -> Option<CommunicatorReading> {
        for _ in 0..ATTEMPTS {
            let id = self.id.load(Acquire);
            if id == 0 || id == OPENING {
                return None;
            }
            // In this order: completed operations were enqueued, enqueued ones were entered, and the last was
            // entered then or later.
            let completed = self.completed.load(Acquire) & COUNT;
            let enqueued = self.enqueued.load(Acquire) & COUNT;
            let entered = self.entered.load(Acquire) & COUNT;
            let last = self.last.load(Relaxed);
            let last_at = Moment(self.last_at.load(Relaxed));
            let place = self.place.load(Relaxed);
            let point_to_point = self.point_to_point.load(Relaxed) & COUNT;
            fence(Acquire);
            if self.id.load(Relaxed) == id {
                return Some(CommunicatorReading {
                    id: CommunicatorId(id),
                    rank: (place >> 32) as u32,
                    size: place as u32,
                    entered,
                    enqueued,
                    completed,
                    last_operation: Operation::ALL.get((last >> 56) as usize).copied(),
                    last_bytes: last & ((1 << 56) - 1),
                    last_at,
                    point_to_point,
                });
            }
        }
        None
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct CommunicatorReading {
    pub id: CommunicatorId,
    pub rank: u32,
    pub size: u32,
    pub entered: u64,
    pub enqueued: u64,
    /// A lower bound of the completed ones.
    pub completed: u64,
    pub last_operation: Option<Operation>,
    pub last_bytes: u64,
    pub last_at: Moment,
    pub point_to_point: u64,
}
