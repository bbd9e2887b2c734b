//! The memory that the ranks of one communicator share, and how they wait for each other in it.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use simgpu_engine::{futex, settings};

use crate::file::{Mapping, Named};
use crate::key::Key;
use crate::ras;
use crate::slot::Slot;

/// How many collectives may run at once. The next one waits until all ranks have left the oldest.
const WINDOW: u64 = 64;
/// The slots of the pairs grow with the square of this. Unused slots take no memory.
pub(crate) const MAX_RANKS: u32 = 2048;
/// How often a waiting rank checks for an abort. A lost wake-up is then only a delay.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);
/// How often ranks that join check for an abort.
const GATHERING_PATIENCE: Duration = Duration::from_millis(5);

#[repr(C, align(64))]
struct Header {
    /// The number of ranks that have the rendezvous mapped.
    present: AtomicU32,
    /// 1 once all ranks have it mapped. A futex word.
    complete: AtomicU32,
    barrier_arrived: AtomicU32,
    /// Rounds of the barrier. A futex word.
    barrier_round: AtomicU32,
}

/// The words of one rank.
#[repr(C, align(64))]
pub(crate) struct RankSlot {
    /// Changed when a transfer with this rank has advanced. A futex word.
    pub doorbell: AtomicU32,
    pub split_color: AtomicI32,
    pub split_key: AtomicI32,
    /// The rank's process, and its launched collectives, for RAS.
    pub pid: AtomicU32,
    pub launched: ras::Launched,
}

#[derive(Debug)]
pub(crate) struct Rendezvous {
    memory: Mapping,
    pub ranks: u32,
}

/// A rank that has joined, and may have to wait for the others.
#[derive(Debug)]
pub(crate) struct Entry {
    rendezvous: Rendezvous,
    file: Named,
    deadline: Instant,
}

impl Entry {
    pub(crate) fn announce(key: Key, ranks: u32) -> io::Result<Self> {
        let bytes = bytes(ranks);
        let file = Named::open(key, bytes as u64)?;
        let rendezvous = Rendezvous { memory: file.map(bytes)?, ranks };
        let header = rendezvous.header();
        if header.present.fetch_add(1, Ordering::AcqRel) + 1 == ranks {
            file.unlink();
            header.complete.store(1, Ordering::Release);
            futex::wake_all(&header.complete);
        }
        Ok(Self { rendezvous, file, deadline: Instant::now() + gathering_time() })
    }

    /// Waits until every rank has joined; `None` if the time is over, or if this rank was aborted.
    pub(crate) fn wait_for_all(self, aborted: &AtomicBool) -> Option<Rendezvous> {
        let complete = &self.rendezvous.header().complete;
        while complete.load(Ordering::Acquire) == 0 {
            if Instant::now() >= self.deadline || aborted.load(Ordering::Relaxed) {
                self.file.unlink();
                return None;
            }
            futex::wait(complete, 0, GATHERING_PATIENCE);
        }
        Some(self.rendezvous)
    }
}

impl Rendezvous {
    fn header(&self) -> &Header {
        // SAFETY: only atomics, and every rank places this struct here.
        unsafe { self.memory.at(0) }
    }

    pub(crate) fn rank_slot(&self, rank: u32) -> &RankSlot {
        assert!(rank < self.ranks);
        // SAFETY: only atomics; every rank of a rendezvous computes the same offsets from the same number of ranks.
        unsafe { self.memory.at(rank_slots() + rank as usize * size_of::<RankSlot>()) }
    }

    /// The slot of collective `number` of the communicator, and its lap.
    pub(crate) fn collective(&self, number: u64) -> (&Slot, u32) {
        let offset = collectives(self.ranks) + to_usize(number % WINDOW) * size_of::<Slot>();
        // SAFETY: as for rank_slots.
        (unsafe { self.memory.at(offset) }, lap(number / WINDOW))
    }

    /// The slot of transfer `number` from one rank to another, and its lap.
    pub(crate) fn transfer(&self, from: u32, to: u32, number: u64) -> (&Slot, u32) {
        assert!(from < self.ranks && to < self.ranks);
        let pair = from as usize * self.ranks as usize + to as usize;
        // SAFETY: as for rank_slots.
        (unsafe { self.memory.at(pairs(self.ranks) + pair * size_of::<Slot>()) }, lap(number))
    }

    /// Waits until every rank is in the barrier; false if the communicator was aborted meanwhile.
    pub(crate) fn barrier(&self, aborted: &AtomicBool) -> bool {
        let header = self.header();
        let round = header.barrier_round.load(Ordering::Acquire);
        if header.barrier_arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.ranks {
            header.barrier_arrived.store(0, Ordering::Relaxed);
            header.barrier_round.store(round.wrapping_add(1), Ordering::Release);
            futex::wake_all(&header.barrier_round);
            return true;
        }
        while header.barrier_round.load(Ordering::Acquire) == round {
            if aborted.load(Ordering::Relaxed) {
                return false;
            }
            futex::wait(&header.barrier_round, round, PATIENCE);
        }
        true
    }
}

/// How long ranks wait for each other when a communicator is made.
fn gathering_time() -> Duration {
    static SECONDS: OnceLock<f64> = OnceLock::new();
    // The setting's range ends far below what a duration holds.
    Duration::from_secs_f64(*SECONDS.get_or_init(|| settings::INIT_TIMEOUT_S.read()))
}

fn rank_slots() -> usize {
    size_of::<Header>()
}

fn collectives(ranks: u32) -> usize {
    rank_slots() + ranks as usize * size_of::<RankSlot>()
}

fn pairs(ranks: u32) -> usize {
    collectives(ranks) + to_usize(WINDOW) * size_of::<Slot>()
}

fn bytes(ranks: u32) -> usize {
    pairs(ranks) + ranks as usize * ranks as usize * size_of::<Slot>()
}

/// Laps wrap around; a slot compares only neighbouring laps.
#[allow(clippy::cast_possible_truncation, reason = "wrapping is meant")]
fn lap(number: u64) -> u32 {
    number as u32
}

/// For numbers below [`WINDOW`].
fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
