//! The communicators of this process, found by the handle the program calls with.

use std::{
    ffi::{c_char, c_int},
    sync::atomic::{
        AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use cudarc::nccl::sys::ncclComm_t;
use xpu_shared::{
    id::CommunicatorId,
    ledger::{COMMUNICATORS, CommunicatorLine, Ledger},
    sampling,
};

use crate::rate::{self, Class};

/// Communicators alive at once in one process, with room for records of closed ones that are still under way.
const SLOTS: usize = 256;

/// A slot without a line in the ledger.
const NO_LINE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Communicators {
    slots: [Slot; SLOTS],
    /// Slots ever used; a look-up looks no further.
    used: AtomicU32,
    /// Where the search for a slot to reuse goes on: the longest closed first.
    next: AtomicU32,
    /// Calls on communicators whose making was not seen.
    unknown: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The handle; 0 when free, 1 while it is being filled in.
    handle: AtomicUsize,
    id: AtomicU64,
    parent: AtomicU64,
    rank: AtomicU32,
    size: AtomicU32,
    /// Collectives and sends or receives so far. A communicator is used by one thread at a time, as NCCL demands.
    collectives: AtomicU64,
    point_to_point: AtomicU64,
    splits: AtomicU64,
    /// Launches, of collectives and of sends or receives, that could have been timed.
    chances: [AtomicU64; 2],
    /// How often the governor has its collectives timed.
    pub(crate) rate: AtomicU8,
    line: AtomicU32,
}

const BUSY: usize = 1;

impl Communicators {
    pub(crate) fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| Slot::default()),
            used: AtomicU32::new(0),
            next: AtomicU32::new(0),
            unknown: AtomicU64::new(0),
        }
    }

    /// The slot of a handle; counts the calls for which there is none.
    #[inline]
    pub(crate) fn find(&self, handle: ncclComm_t) -> Option<u16> {
        let used = self.used.load(Acquire) as usize;
        let found = self.slots[..used].iter().position(|slot| slot.handle.load(Relaxed) == handle as usize);
        if found.is_none() {
            self.unknown.fetch_add(1, Relaxed);
        }
        found.map(|index| index as u16)
    }

    pub(crate) fn slot(&self, index: u16) -> &Slot {
        &self.slots[usize::from(index)]
    }

    pub(crate) fn unknown(&self) -> u64 {
        self.unknown.load(Relaxed)
    }

    /// Communicators that are open.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Slot> {
        self.open_slots().map(|(_, slot)| slot)
    }

    /// The same, each with its slot's number.
    pub(crate) fn open_slots(&self) -> impl Iterator<Item = (u16, &Slot)> {
        let used = self.used.load(Acquire) as usize;
        let slots = (0..).zip(&self.slots[..used]);
        slots.filter(|(_, slot)| slot.handle.load(Acquire) > BUSY)
    }

    /// Remembers a communicator that was made. A table that is full forgets it: its calls count as unknown.
    /// A size of 0 says that rank and size are not known yet: see [`Self::settle`].
    pub(crate) fn insert(
        &self,
        ledger: &Ledger,
        handle: ncclComm_t,
        id: CommunicatorId,
        parent: CommunicatorId,
        rank: u32,
        size: u32,
    ) {
        if handle.is_null() {
            return;
        }
        let start = self.next.load(Relaxed) as usize;
        let free =
            |index: &usize| self.slots[*index].handle.compare_exchange(0, BUSY, AcqRel, Relaxed).is_ok();
        let Some(index) = (0..SLOTS).map(|n| (start + n) % SLOTS).find(free) else { return };
        self.next.store(((index + 1) % SLOTS) as u32, Relaxed);
        let slot = &self.slots[index];
        slot.id.store(id.0, Relaxed);
        slot.parent.store(parent.0, Relaxed);
        slot.rank.store(rank, Relaxed);
        slot.size.store(size, Relaxed);
        let [collective, point_to_point] = &slot.chances;
        for count in [&slot.collectives, &slot.point_to_point, &slot.splits, collective, point_to_point] {
            count.store(0, Relaxed);
        }
        slot.rate.store(rate::FIRST.0, Relaxed);
        slot.line.store(NO_LINE, Relaxed);
        if size > 0 {
            slot.show(ledger, rank, size);
        }
        slot.handle.store(handle as usize, Release);
        self.used.fetch_max(index as u32 + 1, AcqRel);
    }

    /// Rank and size, which only NCCL knew, of a communicator that is used for the first time.
    pub(crate) fn settle(&self, ledger: &Ledger, index: u16, rank: u32, size: u32) {
        let slot = self.slot(index);
        slot.rank.store(rank, Relaxed);
        slot.size.store(size, Relaxed);
        slot.show(ledger, rank, size);
    }

    /// Forgets a handle: NCCL may give its address to the next communicator.
    pub(crate) fn remove(&self, ledger: &Ledger, handle: ncclComm_t) {
        let used = self.used.load(Acquire) as usize;
        for slot in self.slots[..used].iter().filter(|slot| slot.handle.load(Acquire) == handle as usize) {
            if let Some(line) = slot.line(ledger) {
                line.close();
            }
            slot.line.store(NO_LINE, Relaxed);
            slot.handle.store(0, Release);
        }
    }
}

fn free_line(ledger: &Ledger) -> u32 {
    (0..COMMUNICATORS).find(|&line| ledger.communicators[line].is_free()).map_or(NO_LINE, |line| line as u32)
}

impl Slot {
    pub(crate) fn id(&self) -> CommunicatorId {
        CommunicatorId(self.id.load(Relaxed))
    }

    pub(crate) fn parent(&self) -> Option<CommunicatorId> {
        Some(CommunicatorId(self.parent.load(Relaxed))).filter(|parent| parent.0 != 0)
    }

    pub(crate) fn size(&self) -> u32 {
        self.size.load(Relaxed)
    }

    /// Gives it a line in the ledger, if one is free.
    fn show(&self, ledger: &Ledger, rank: u32, size: u32) {
        let line = free_line(ledger);
        self.line.store(line, Relaxed);
        if let Some(line) = ledger.communicators.get(line as usize) {
            line.open(self.id(), rank, size);
        }
    }

    pub(crate) fn line<'a>(&self, ledger: &'a Ledger) -> Option<&'a CommunicatorLine> {
        ledger.communicators.get(self.line.load(Relaxed) as usize)
    }

    /// The number the next collective, or the next send or receive, will have.
    pub(crate) fn next(&self, collective: bool) -> u64 {
        self.counter(collective).load(Relaxed)
    }

    pub(crate) fn advance(&self, collective: bool, by: u64) {
        let counter = self.counter(collective);
        counter.store(counter.load(Relaxed) + by, Relaxed);
    }

    fn counter(&self, collective: bool) -> &AtomicU64 {
        if collective { &self.collectives } else { &self.point_to_point }
    }

    /// Whether what is launched now, the next collective or the next send or receive, is to be timed.
    pub(crate) fn choose(&self, collective: bool) -> bool {
        let chances = &self.chances[usize::from(!collective)];
        chances.store(chances.load(Relaxed) + 1, Relaxed);
        let rate =
            if collective { rate::at(Class::Collective, &self.rate) } else { rate::of(Class::PointToPoint) };
        rate.times(self.next(collective))
    }

    /// How often that was asked.
    pub(crate) fn chances(&self, collective: bool) -> u64 {
        self.chances[usize::from(!collective)].load(Relaxed)
    }

    /// The number of this split among all splits of this communicator: every member calls every split.
    pub(crate) fn next_split(&self) -> u64 {
        self.splits.fetch_add(1, Relaxed)
    }
}

/// `ncclUniqueId`, which NCCL takes by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UniqueId([c_char; 128]);

impl UniqueId {
    /// The same on every rank that was given this id, and no other communicator's.
    pub(crate) fn communicator(&self) -> CommunicatorId {
        let mixed = self.0.chunks_exact(8).fold(0, |mixed, chunk| {
            let word = chunk.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte as u8));
            sampling::priority(mixed ^ word)
        });
        CommunicatorId(mixed.max(1))
    }
}

/// What split number `number` of `parent` with this color makes; the same on all ranks of that color.
pub(crate) fn split_of(parent: CommunicatorId, number: u64, color: c_int) -> CommunicatorId {
    let mixed = sampling::priority(sampling::priority(parent.0 ^ number) ^ u64::from(color as u32));
    CommunicatorId(mixed.max(1))
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use xpu_shared::ledger::LedgerPage;

    use super::*;

    fn handle(at: usize) -> ncclComm_t {
        ptr::without_provenance_mut(at)
    }

    #[test]
    fn an_address_used_again_is_another_communicator() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new();
        known.insert(page.ledger(), handle(64), CommunicatorId(7), CommunicatorId(0), 1, 8);
        let first = known.find(handle(64)).unwrap();
        known.slot(first).advance(true, 5);
        known.remove(page.ledger(), handle(64));
        assert_eq!(known.find(handle(64)), None);
        known.insert(page.ledger(), handle(64), CommunicatorId(9), CommunicatorId(7), 0, 2);
        let second = known.find(handle(64)).unwrap();
        assert_ne!(first, second);
        assert_eq!((known.slot(second).id(), known.slot(second).next(true)), (CommunicatorId(9), 0));
        assert_eq!(
            known.slot(first).id(),
            CommunicatorId(7),
            "records under way still find their communicator"
        );
    }

    #[test]
    fn more_communicators_than_fit_are_unknown_not_wrong() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new();
        for n in 0..SLOTS + 10 {
            known.insert(
                page.ledger(),
                handle(64 + n * 8),
                CommunicatorId(n as u64 + 1),
                CommunicatorId(0),
                0,
                2,
            );
        }
        assert_eq!(known.find(handle(64 + SLOTS * 8)), None);
        assert_eq!((known.unknown(), known.open().count()), (1, SLOTS));
    }

    #[test]
    fn splits_differ_by_color_and_by_order() {
        let parent = CommunicatorId(3);
        let all = [split_of(parent, 0, 0), split_of(parent, 0, 1), split_of(parent, 1, 0)];
        assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
    }
}
