//! One communicator's line in the ledger.

use super::sync::{Acquire, AtomicU64, Relaxed, Release, fence};
use crate::{collective::Operation, id::CommunicatorId, unit::Moment};

/// One communicator's counters. A line whose id is 0 is free.
///
/// The id also guards the line: a reader that finds the same id before and after it read the rest has read what belongs to it.
/// Each count carries a few bits of the id: a thread that comes late to a line that was closed and opened again adds nothing to
/// another's counts. Only what it says of the last operation may stand there until the next one is entered.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CommunicatorLine {
    id: AtomicU64,
    /// Collectives whose call was entered, whose call returned, and that are known to have completed on the GPU.
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

/// In place of an id while a line is made another communicator's.
const OPENING: u64 = u64::MAX;

/// Attempts to read a line while it changes hands; that takes nanoseconds, and happens rarely.
const ATTEMPTS: usize = 4;

/// The lower bits of a count are its number, the others are the id's.
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The part of an id that is beside its counts.
fn mark(id: CommunicatorId) -> u64 {
    id.0 << COUNT_BITS
}

/// Gives a count of communicator `id` its next number, and tells the one before. Does nothing where the line has become another
/// communicator's.
#[inline]
fn change(count: &AtomicU64, id: CommunicatorId, next: impl Fn(u64) -> u64) -> Option<u64> {
    let mark = mark(id);
    let changed = |before: u64| {
        let ours = (before ^ mark) & !COUNT == 0;
        Some(mark | next(before & COUNT).min(COUNT)).filter(|&after| ours && after != before)
    };
    count.fetch_update(Release, Relaxed, changed).ok().map(|before| before & COUNT)
}

impl CommunicatorLine {
    /// Takes a free line for a communicator. `false` if it is not free.
    pub fn open(&self, id: CommunicatorId, rank: u32, size: u32) -> bool {
        if self.id.compare_exchange(0, OPENING, Acquire, Relaxed).is_err() {
            return false;
        }
        // Whoever sees anything of what follows also sees that the line is no longer the one before's.
        fence(Release);
        for word in [&self.last, &self.last_at] {
            word.store(0, Relaxed);
        }
        // Exchanges: what somebody counts meanwhile comes before them, or is not for this one.
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

    /// `count` more collectives of communicator `id` were entered; `operation` of `bytes` was the last. Gives the number of the first,
    /// unless the line has become another communicator's.
    pub fn enter(
        &self,
        id: CommunicatorId,
        count: u64,
        operation: Operation,
        bytes: u64,
        now: Moment,
    ) -> Option<u64> {
        self.last.store((operation as u64) << 56 | bytes.min((1 << 56) - 1), Relaxed);
        self.last_at.store(now.0, Relaxed);
        change(&self.entered, id, |before| before + count)
    }

    /// `count` entered ones were refused by NCCL after all.
    pub fn retract(&self, id: CommunicatorId, count: u64) {
        let _ = change(&self.entered, id, |before| before.saturating_sub(count));
    }

    pub fn enqueue(&self, id: CommunicatorId, count: u64) {
        let _ = change(&self.enqueued, id, |before| before + count);
    }

    /// Everything up to and including collective number `sequence` is done. Never goes back.
    pub fn complete(&self, id: CommunicatorId, sequence: u64) {
        let _ = change(&self.completed, id, |before| before.max(sequence + 1));
    }

    /// `count` more sends and receives were entered.
    pub fn point_to_point(&self, id: CommunicatorId, count: u64) {
        let _ = change(&self.point_to_point, id, |before| before + count);
    }

    /// `None` if it is free, or changes hands.
    pub fn read(&self) -> Option<CommunicatorReading> {
        for _ in 0..ATTEMPTS {
            let id = self.id.load(Acquire);
            if id == 0 || id == OPENING {
                return None;
            }
            // In this order: what is done was enqueued, what is enqueued was entered, and the last was entered then or later.
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
    /// At least so many are done; more may be.
    pub completed: u64,
    pub last_operation: Option<Operation>,
    pub last_bytes: u64,
    pub last_at: Moment,
    pub point_to_point: u64,
}
