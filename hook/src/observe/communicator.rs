//! The communicators of this process, found by their NCCL handle.

mod name;
mod progress;
mod slot;

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use cudarc::{
    nccl::sys::ncclComm_t,
    runtime::sys::{cudaEvent_t, cudaStream_t},
};
use slot::{BUSY, NO_LINE};
use xpu_wire::{id::CommunicatorId, ledger::Ledger};

use crate::{
    interpose::nccl::{Identity, Pending},
    observe::sync,
    process::memory,
};

pub(crate) use name::Name;
pub(crate) use slot::{Lineage, Slot};

/// Maximum number of communicators alive at once in one process. Includes space for closed ones with pending
/// records.
pub(crate) const SLOTS: usize = 256;

#[derive(Debug)]
pub(crate) struct Communicators {
    slots: Box<[Slot]>,
    /// Number of slots used so far; lookups end there.
    used: AtomicU32,
    /// Where the next search for a free slot begins, so that the slot closed longest ago is reused first.
    next: AtomicU32,
    /// Number of calls on communicators whose creation was not seen.
    unknown: AtomicU64,
    /// Number of communicators without a slot, plus those without a line in the ledger.
    too_many: AtomicU64,
    unshown: AtomicU64,
    /// Number of slots whose rank and size are not known yet.
    unsettled: AtomicU32,
    /// Communicators whose handle is not known yet.
    pub(crate) pending: Pending,
}

/// The properties of a communicator at creation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) identity: Identity,
    /// 0 without a parent.
    pub(crate) parent: CommunicatorId,
    pub(crate) name: Name,
    pub(crate) rank: u32,
    /// 0 while only NCCL knows rank and size: see [`Communicators::settle`].
    pub(crate) size: u32,
}

impl Communicators {
    /// Bytes it holds.
    pub(crate) const MEMORY: usize = SLOTS * size_of::<Slot>() + Pending::MEMORY;

    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            slots: memory::slice(SLOTS, || Some(Slot::default()))?,
            used: AtomicU32::new(0),
            next: AtomicU32::new(0),
            unknown: AtomicU64::new(0),
            too_many: AtomicU64::new(0),
            unshown: AtomicU64::new(0),
            unsettled: AtomicU32::new(0),
            pending: Pending::new()?,
        })
    }

    #[inline]
    pub(crate) fn find(&self, handle: ncclComm_t) -> Option<u16> {
        self.find_slot(handle).map(|(index, _)| index)
    }

    /// The number of its slot, and the slot.
    #[inline]
    pub(crate) fn find_slot(&self, handle: ncclComm_t) -> Option<(u16, &Slot)> {
        if handle.addr() <= BUSY {
            return None;
        }
        let used = self.used.load(Acquire) as usize;
        (0..).zip(&self.slots[..used]).find(|(_, slot)| slot.handle.load(Relaxed) == handle.addr())
    }

    pub(crate) fn slot(&self, index: u16) -> &Slot {
        &self.slots[usize::from(index)]
    }

    /// Counts a call on a communicator that was not found.
    pub(crate) fn miss(&self) {
        self.unknown.fetch_add(1, Relaxed);
    }

    pub(crate) fn unknown(&self) -> u64 {
        self.unknown.load(Relaxed)
    }

    pub(crate) fn too_many(&self) -> u64 {
        self.too_many.load(Relaxed)
    }

    pub(crate) fn unshown(&self) -> u64 {
        self.unshown.load(Relaxed)
    }

    /// Whether some communicator's rank and size are unknown.
    #[inline]
    pub(crate) fn has_unsettled(&self) -> bool {
        self.unsettled.load(Relaxed) != 0 || !self.pending.is_empty()
    }

    /// The open communicators.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Slot> + Clone {
        self.open_slots().map(|(_, slot)| slot)
    }

    /// The open communicators, each with its slot's number.
    pub(crate) fn open_slots(&self) -> impl Iterator<Item = (u16, &Slot)> + Clone {
        let used = self.used.load(Acquire) as usize;
        let slots = (0..).zip(&self.slots[..used]);
        slots.filter(|(_, slot)| slot.handle.load(Acquire) > BUSY)
    }

    /// Adds a created communicator. If the table is full, the communicator is dropped, and its calls count as
    /// unknown.
    pub(crate) fn insert(&self, ledger: &Ledger, handle: ncclComm_t, origin: &Origin) -> Option<u16> {
        if handle.is_null() {
            return None;
        }
        // The end of an earlier communicator with this handle was not seen.
        self.remove(ledger, handle);
        let start = self.next.load(Relaxed) as usize;
        let free =
            |index: &usize| self.slots[*index].handle.compare_exchange(0, BUSY, AcqRel, Relaxed).is_ok();
        let Some(index) = (0..SLOTS).map(|n| (start + n) % SLOTS).find(free) else {
            self.too_many.fetch_add(1, Relaxed);
            return None;
        };
        self.next.store(((index + 1) % SLOTS) as u32, Relaxed);
        let slot = &self.slots[index];
        slot.begin(origin);
        if origin.size > 0 {
            self.show(ledger, slot);
        } else {
            self.unsettled.fetch_add(1, Relaxed);
        }
        slot.handle.store(handle as usize, Release);
        self.used.fetch_max(index as u32 + 1, AcqRel);
        Some(index as u16)
    }

    /// Sets the rank and size of a communicator, which only NCCL knew.
    pub(crate) fn settle(&self, ledger: &Ledger, index: u16, rank: u32, size: u32) {
        let slot = self.slot(index);
        slot.rank.store(rank, Relaxed);
        // Two threads may query NCCL at once.
        if size > 0 && slot.set_size(size) == 0 {
            self.unsettled.fetch_sub(1, Relaxed);
            self.show(ledger, slot);
        }
    }

    /// Gives a communicator a line in the ledger, if one is free.
    fn show(&self, ledger: &Ledger, slot: &Slot) {
        let mut lines = ledger.communicators.iter();
        match lines.position(|line| line.open(slot.id(), slot.rank(), slot.size())) {
            Some(line) => slot.line.store(line as u32, Relaxed),
            None => _ = self.unshown.fetch_add(1, Relaxed),
        }
    }

    /// Notes that an event was recorded on a communication stream.
    pub(crate) fn recorded(&self, event: cudaEvent_t, stream: cudaStream_t) {
        self.open().for_each(|slot| slot.progress.recorded(event.addr() as u64, stream.addr() as u64));
    }

    /// Notes that a stream waits for an event that is behind communication.
    pub(crate) fn awaited(&self, event: cudaEvent_t, stream: cudaStream_t) {
        self.open().for_each(|slot| slot.progress.awaited(event.addr() as u64, stream.addr() as u64));
    }

    /// Forgets a stream that is about to be destroyed: the progress of a later stream with the same handle
    /// proves nothing about operations on this one.
    pub(crate) fn stream_ends(&self, stream: cudaStream_t) {
        self.open().for_each(|slot| slot.progress.stream_ends(stream.addr() as u64));
    }

    /// Forgets a handle, because NCCL may reuse its address for the next communicator. NCCL allows a program
    /// to destroy NULL; that is not a handle, but it would match a free slot.
    pub(crate) fn remove(&self, ledger: &Ledger, handle: ncclComm_t) {
        if handle.addr() <= BUSY {
            return;
        }
        let used = self.used.load(Acquire) as usize;
        // Two threads may end a communicator at once.
        let mine = |slot: &&Slot| slot.handle.compare_exchange(handle.addr(), BUSY, AcqRel, Relaxed).is_ok();
        for slot in self.slots[..used].iter().filter(mine) {
            if slot.size() == 0 {
                self.unsettled.fetch_sub(1, Relaxed);
            }
            if let Some(line) = slot.line(ledger) {
                line.close();
            }
            slot.line.store(NO_LINE, Relaxed);
            slot.handle.store(0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use xpu_wire::ledger::{LedgerPage, Writers};

    use super::*;

    fn handle(at: usize) -> ncclComm_t {
        ptr::without_provenance_mut(at)
    }

    fn origin(id: u64, rank: u32, size: u32) -> Origin {
        let identity = Identity { id: CommunicatorId(id), magic: 0 };
        Origin { identity, parent: CommunicatorId(0), name: Name::default(), rank, size }
    }

    #[test]
    fn an_address_used_again_is_another_communicator() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new().unwrap();
        known.insert(page.ledger(), handle(64), &origin(7, 1, 8));
        let first = known.find(handle(64)).unwrap();
        known.slot(first).progress.advance(Writers::One, None, 5, 0);
        known.slot(first).add_child(Lineage::Counted);
        known.remove(page.ledger(), handle(64));
        assert_eq!(known.find(handle(64)), None);
        known.insert(page.ledger(), handle(64), &origin(9, 0, 2));
        let second = known.find(handle(64)).unwrap();
        assert_ne!(first, second);
        assert_eq!((known.slot(second).id(), known.slot(second).next(true)), (CommunicatorId(9), 0));
        assert_eq!(known.slot(second).next_child(Lineage::Counted), 1);
        assert_eq!(
            known.slot(first).id(),
            CommunicatorId(7),
            "records under way still find their communicator"
        );
    }

    #[test]
    fn null_is_not_a_communicator() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new().unwrap();
        known.insert(page.ledger(), handle(64), &origin(7, 1, 0));
        known.insert(page.ledger(), handle(72), &origin(9, 1, 8));
        known.remove(page.ledger(), handle(64));
        for nothing in [0, BUSY] {
            assert_eq!(known.find(handle(nothing)), None);
            known.remove(page.ledger(), handle(nothing));
        }
        assert!(!known.has_unsettled(), "what is closed is not closed again");
        assert_eq!(
            known.insert(page.ledger(), handle(80), &origin(8, 1, 8)),
            Some(2),
            "the longest closed first"
        );
    }

    #[test]
    fn a_stream_proves_nothing_of_the_one_before_it() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new().unwrap();
        let stream = ptr::without_provenance_mut(640);
        known.insert(page.ledger(), handle(64), &origin(7, 1, 8));
        let slot = known.slot(known.find(handle(64)).unwrap());
        let proven = || slot.progress.proven_by(|last| last == 640);
        slot.progress.advance(Writers::Many, Some(640), 3, 0);
        assert_eq!(proven(), Some(3));
        known.stream_ends(ptr::without_provenance_mut(704));
        assert_eq!(proven(), Some(3));
        known.stream_ends(stream);
        assert_eq!(proven(), None);
    }

    /// PyTorch's `work.wait()` does this: the stream of the GEMMs waits for an event on NCCL's stream.
    #[test]
    fn a_stream_that_waits_for_all_collectives_proves_them_done() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new().unwrap();
        known.insert(page.ledger(), handle(64), &origin(7, 1, 8));
        let slot = known.slot(known.find(handle(64)).unwrap());
        let (nccl, compute, event): (cudaStream_t, cudaStream_t, cudaEvent_t) =
            (ptr::without_provenance_mut(640), ptr::null_mut(), ptr::without_provenance_mut(9));
        let proven = || slot.progress.proven_by_waiting(0);
        let launch = || slot.progress.advance(Writers::Many, Some(640), 1, 0);
        launch();
        known.recorded(event, compute);
        known.awaited(event, compute);
        assert_eq!(proven(), None, "the event is on another stream");
        known.recorded(event, nccl);
        assert_eq!(proven(), None, "nobody waits for it");
        known.awaited(event, compute);
        assert_eq!(proven(), Some(1));
        assert_eq!(slot.progress.proven_by_waiting(704), None);
        launch();
        assert_eq!(proven(), None, "the event is before the last one");
        known.awaited(event, compute);
        assert_eq!(proven(), None);
        known.recorded(event, nccl);
        known.awaited(event, compute);
        assert_eq!(proven(), Some(2));
        known.stream_ends(compute);
        assert_eq!(proven(), None);
    }

    #[test]
    fn an_unseen_end_is_inferred() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new().unwrap();
        for id in [7, 9] {
            known.insert(page.ledger(), handle(64), &origin(id, 0, 2));
        }
        let open: Vec<_> = known.open().map(Slot::id).collect();
        assert_eq!(open, [CommunicatorId(9)]);
        assert_eq!(page.ledger().read().communicators.len(), 1);
    }

    #[test]
    fn communicators_beyond_the_limit_are_unknown_not_wrong() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new().unwrap();
        for n in 0..SLOTS + 10 {
            known.insert(page.ledger(), handle(64 + n * 8), &origin(n as u64 + 1, 0, 2));
        }
        assert_eq!(known.find(handle(64 + SLOTS * 8)), None);
        assert_eq!((known.too_many(), known.open().count()), (10, SLOTS));
        assert_eq!(known.unshown(), (SLOTS - xpu_wire::ledger::COMMUNICATORS) as u64);
    }

    #[test]
    fn a_communicator_is_shown_when_it_is_ready() {
        let page = LedgerPage::create().unwrap();
        let known = Communicators::new().unwrap();
        let index = known.insert(page.ledger(), handle(64), &origin(7, 0, 0)).unwrap();
        assert!(known.has_unsettled() && page.ledger().read().communicators.is_empty());
        for _ in 0..2 {
            known.settle(page.ledger(), index, 3, 8);
        }
        let shown = &page.ledger().read().communicators;
        assert_eq!((shown.len(), shown[0].rank, shown[0].size), (1, 3, 8));
        assert!(!known.has_unsettled());
        known.insert(page.ledger(), handle(72), &origin(8, 0, 0));
        known.remove(page.ledger(), handle(72));
        assert!(!known.has_unsettled());
    }
}
