//! Memory the program holds: the size of every allocation, found again by its address when it is freed.
//!
//! A caching allocator makes few calls, others make many, from any thread. No thread waits for another here:
//! an address has a few possible slots; if all of them are taken, it is counted and not tracked.

use std::{
    ffi::c_void,
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use xpu_wire::sampling;

use crate::memory;

/// Slots in total, and those possible for one address.
const PLACES: usize = 16 << 10;
const SLOTS_PER_SET: usize = 16;

const FREE: usize = 0;
/// A slot being filled or emptied; no allocation has an odd address.
const BUSY: usize = 1;

/// The owner of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The GPU's, managed memory included.
    Device,
    /// The host's, page-locked.
    Host,
}

/// An allocation that is about to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    address: usize,
    whose: Whose,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Allocations {
    places: &'static [Place],
    device: Held,
    host: Held,
    made: AtomicU64,
    freed: AtomicU64,
    unplaced: AtomicU64,
    unknown: AtomicU64,
}

#[derive(Debug)]
struct Place {
    address: AtomicUsize,
    /// Twice the bytes, plus one for host memory.
    bytes_and_whose: AtomicU64,
}

#[derive(Debug, Default)]
struct Held {
    now: AtomicU64,
    most: AtomicU64,
}

impl Allocations {
    pub(crate) const MEMORY: usize = PLACES * size_of::<Place>();

    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: a place of all zeros is FREE.
        let places = unsafe { memory::zeros(PLACES) }?;
        Some(Self {
            places,
            device: Held::default(),
            host: Held::default(),
            made: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            unplaced: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
        })
    }

    /// The program received this memory.
    pub(crate) fn allocated(&self, address: *const c_void, whose: Whose, bytes: u64) {
        if address.is_null() {
            return;
        }
        self.made.fetch_add(1, Relaxed);
        let allocation = Allocation { address: address.addr(), whose, bytes };
        // CUDA returns no live address twice: the known allocation here was freed unseen.
        if let Some(before) = self.take(address) {
            self.held(before.whose).now.fetch_sub(before.bytes, Relaxed);
        }
        if self.put(allocation) {
            let held = self.held(whose);
            let now = held.now.fetch_add(bytes, Relaxed) + bytes;
            held.most.fetch_max(now, Relaxed);
        } else {
            self.unplaced.fetch_add(1, Relaxed);
        }
    }

    /// Takes an address out before it is freed: afterwards another thread may receive it.
    pub(crate) fn take(&self, address: *const c_void) -> Option<Allocation> {
        let address = address.addr();
        if address <= BUSY {
            return None;
        }
        let free = |place: &&Place| place.address.compare_exchange(address, BUSY, AcqRel, Relaxed).is_ok();
        let place = self.set_of(address).iter().find(free)?;
        let word = place.bytes_and_whose.load(Relaxed);
        place.address.store(FREE, Release);
        let whose = if word & 1 == 1 { Whose::Host } else { Whose::Device };
        Some(Allocation { address, whose, bytes: word >> 1 })
    }

    /// After the call that should have freed `address`.
    pub(crate) fn released(&self, address: *const c_void, taken: Option<Allocation>, freed: bool) {
        match taken {
            Some(allocation) if freed => {
                self.held(allocation.whose).now.fetch_sub(allocation.bytes, Relaxed);
            }
            Some(allocation) if !self.put(allocation) => {
                self.held(allocation.whose).now.fetch_sub(allocation.bytes, Relaxed);
                self.unplaced.fetch_add(1, Relaxed);
            }
            None if freed && !address.is_null() => _ = self.unknown.fetch_add(1, Relaxed),
            _ => {}
        }
        if freed && !address.is_null() {
            self.freed.fetch_add(1, Relaxed);
        }
    }

    fn put(&self, allocation: Allocation) -> bool {
        let free = |place: &&Place| place.address.compare_exchange(FREE, BUSY, AcqRel, Relaxed).is_ok();
        let Some(place) = self.set_of(allocation.address).iter().find(free) else { return false };
        let host = u64::from(allocation.whose == Whose::Host);
        place.bytes_and_whose.store(allocation.bytes << 1 | host, Relaxed);
        place.address.store(allocation.address, Release);
        true
    }

    fn set_of(&self, address: usize) -> &[Place] {
        let first = sampling::priority(address as u64) as usize % (PLACES / SLOTS_PER_SET) * SLOTS_PER_SET;
        &self.places[first..first + SLOTS_PER_SET]
    }

    fn held(&self, whose: Whose) -> &Held {
        match whose {
            Whose::Device => &self.device,
            Whose::Host => &self.host,
        }
    }

    /// Bytes held now, and their maximum.
    pub(crate) fn bytes(&self, whose: Whose) -> (u64, u64) {
        let held = self.held(whose);
        let now = held.now.load(Acquire);
        (now, held.most.load(Relaxed).max(now))
    }

    /// Allocations and frees so far.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (self.made.load(Relaxed), self.freed.load(Relaxed))
    }

    /// Allocations without a slot, and frees of unknown addresses.
    pub(crate) fn missed(&self) -> (u64, u64) {
        let unplaced = self.unplaced.load(Relaxed);
        (unplaced, self.unknown.load(Relaxed).saturating_sub(unplaced))
    }
}

#[cfg(test)]
mod tests {
    use std::{ptr, thread};

    use super::*;

    fn at(address: usize) -> *const c_void {
        ptr::without_provenance(address)
    }

    #[test]
    fn what_is_held_is_what_was_not_freed() {
        let known = Allocations::new().unwrap();
        known.allocated(at(512), Whose::Device, 100);
        known.allocated(at(1024), Whose::Device, 50);
        known.allocated(at(2048), Whose::Host, 7);
        let taken = known.take(at(512));
        known.released(at(512), taken, true);
        assert_eq!((known.bytes(Whose::Device), known.bytes(Whose::Host)), ((50, 150), (7, 7)));
        let taken = known.take(at(1024));
        known.released(at(1024), taken, false);
        assert_eq!(known.bytes(Whose::Device), (50, 150), "the library refused");
        known.released(at(4096), known.take(at(4096)), true);
        known.released(ptr::null(), known.take(ptr::null()), true);
        assert_eq!((known.calls(), known.missed()), ((3, 2), (0, 1)));
    }

    #[test]
    fn an_address_given_again_counts_once() {
        let known = Allocations::new().unwrap();
        known.allocated(at(512), Whose::Device, 100);
        known.allocated(at(512), Whose::Device, 30);
        assert_eq!(known.bytes(Whose::Device), (30, 100));
    }

    #[test]
    fn more_than_fit_are_counted_and_not_held() {
        let known = Allocations::new().unwrap();
        (1..=2 * PLACES).for_each(|n| known.allocated(at(n * 512), Whose::Device, 1));
        let (unplaced, _) = known.missed();
        assert!(unplaced >= PLACES as u64);
        assert_eq!(known.bytes(Whose::Device).0 + unplaced, 2 * PLACES as u64);
        (1..=2 * PLACES).for_each(|n| known.released(at(n * 512), known.take(at(n * 512)), true));
        assert_eq!((known.bytes(Whose::Device).0, known.missed().1), (0, 0));
    }

    #[test]
    fn threads_that_allocate_and_free_leave_nothing() {
        let known = Allocations::new().unwrap();
        thread::scope(|scope| {
            for thread in 0..4_usize {
                let known = &known;
                scope.spawn(move || {
                    for n in 1..20_000_usize {
                        let address = at((thread * 100 + n % 100 + 1) * 512);
                        known.allocated(address, Whose::Device, 3);
                        known.released(address, known.take(address), true);
                    }
                });
            }
        });
        assert_eq!((known.bytes(Whose::Device).0, known.missed()), (0, (0, 0)));
    }
}
