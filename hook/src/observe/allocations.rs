//! Memory that the program holds: the size of every allocation, found by its address when it is freed.
//!
//! A caching allocator makes few calls; other allocators make many, from any thread. No thread waits for
//! another here. An address has a few possible slots; if all are taken, the allocation is counted but not
//! tracked.

use std::{
    ffi::{c_int, c_void},
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use xpu_wire::{id::DeviceIndex, ledger::MemorySites, sampling};

use crate::process::memory;

/// The number of slots, and of possible slots of one address.
const PLACES: usize = 16 << 10;
const SLOTS_PER_SET: usize = 16;

const FREE: usize = 0;
/// A slot that is being filled or emptied; no allocation has an odd address.
const BUSY: usize = 1;

/// Number of devices whose memory is counted separately, and the index for memory of other devices.
const NOWHERE: usize = 63;

/// The owner of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOwner {
    /// GPU memory, including managed memory.
    Device,
    /// Page-locked host memory.
    Host,
}

/// Memory that the program holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// [`FREE`] for memory that has no address of its own.
    address: usize,
    owner: MemoryOwner,
    /// The device on which it was made, or [`NOWHERE`].
    device: usize,
    /// The call site's number in the ledger's page; 0 if it is unknown.
    site: u8,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Allocations {
    places: &'static [Place],
    device: Held,
    host: Held,
    /// GPU memory by device.
    on: [Held; NOWHERE],
    made: AtomicU64,
    freed: AtomicU64,
    unplaced: AtomicU64,
    unknown: AtomicU64,
}

#[derive(Debug)]
struct Place {
    address: AtomicUsize,
    /// An [`Allocation`] without its address: see [`Allocation::word`].
    word: AtomicU64,
}

#[derive(Debug, Default)]
struct Held {
    now: AtomicU64,
    most: AtomicU64,
}

impl Allocation {
    /// Without an address.
    pub(crate) fn new(owner: MemoryOwner, bytes: u64, device: Option<c_int>, site: u8) -> Self {
        let device = device.and_then(|device| usize::try_from(device).ok()).unwrap_or(NOWHERE).min(NOWHERE);
        Self { address: FREE, owner, device, site, bytes }
    }

    /// The bytes, eight bits for the site, six for the device, and one for host memory.
    fn word(self) -> u64 {
        let host = u64::from(self.owner == MemoryOwner::Host);
        self.bytes << 15 | u64::from(self.site) << 7 | (self.device as u64) << 1 | host
    }

    fn from_word(address: usize, word: u64) -> Self {
        let owner = if word & 1 == 1 { MemoryOwner::Host } else { MemoryOwner::Device };
        let device = (word >> 1) as usize & NOWHERE;
        Self { address, owner, device, site: (word >> 7) as u8, bytes: word >> 15 }
    }
}

impl Allocations {
    pub(crate) const MEMORY: usize = PLACES * size_of::<Place>();

    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: a place of zeros is FREE.
        let places = unsafe { memory::zeros(PLACES) }?;
        Some(Self {
            places,
            device: Held::default(),
            host: Held::default(),
            on: std::array::from_fn(|_| Held::default()),
            made: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            unplaced: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
        })
    }

    /// Adds memory that the program received on this device. `site` is the call site's number in `sites`, 0
    /// if it is not there.
    pub(crate) fn allocated(
        &self,
        address: *const c_void,
        (owner, bytes): (MemoryOwner, u64),
        device: Option<c_int>,
        site: u8,
        sites: &MemorySites,
    ) {
        if address.is_null() {
            return;
        }
        self.made.fetch_add(1, Relaxed);
        let allocation =
            Allocation { address: address.addr(), ..Allocation::new(owner, bytes, device, site) };
        // CUDA never returns a live address again, so the hook did not see the free of the allocation that
        // was here.
        if let Some(before) = self.take(address) {
            self.given_back(before, sites);
        }
        if self.put(allocation) {
            self.hold(allocation);
        } else {
            sites.freed(site, bytes);
            self.unplaced.fetch_add(1, Relaxed);
        }
    }

    /// Adds memory without an address. `is_tracked` is false if its end will not be seen.
    pub(crate) fn created(&self, allocation: Allocation, is_tracked: bool, sites: &MemorySites) {
        self.made.fetch_add(1, Relaxed);
        if is_tracked {
            self.hold(allocation);
        } else {
            sites.freed(allocation.site, allocation.bytes);
            self.unplaced.fetch_add(1, Relaxed);
        }
    }

    /// Subtracts memory without an address.
    pub(crate) fn destroyed(&self, allocation: Allocation, sites: &MemorySites) {
        self.freed.fetch_add(1, Relaxed);
        self.given_back(allocation, sites);
    }

    fn hold(&self, allocation: Allocation) {
        let bytes = allocation.bytes;
        for held in self.on(allocation).into_iter().chain([self.held(allocation.owner)]) {
            let now = held.now.fetch_add(bytes, Relaxed) + bytes;
            held.most.fetch_max(now, Relaxed);
        }
    }

    /// Removes an allocation before it is freed, because afterwards another thread may receive its address.
    pub(crate) fn take(&self, address: *const c_void) -> Option<Allocation> {
        let address = address.addr();
        if address <= BUSY {
            return None;
        }
        let free = |place: &&Place| place.address.compare_exchange(address, BUSY, AcqRel, Relaxed).is_ok();
        let place = self.set_of(address).iter().find(free)?;
        let word = place.word.load(Relaxed);
        place.address.store(FREE, Release);
        Some(Allocation::from_word(address, word))
    }

    /// Completes a free, after the call that should have freed `address`. If it failed, the taken allocation
    /// is put back.
    pub(crate) fn released(
        &self,
        address: *const c_void,
        taken: Option<Allocation>,
        freed: bool,
        sites: &MemorySites,
    ) {
        match taken {
            Some(allocation) if freed => self.given_back(allocation, sites),
            Some(allocation) if !self.put(allocation) => {
                self.given_back(allocation, sites);
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
        place.word.store(allocation.word(), Relaxed);
        place.address.store(allocation.address, Release);
        true
    }

    fn set_of(&self, address: usize) -> &[Place] {
        let first = sampling::priority(address as u64) as usize % (PLACES / SLOTS_PER_SET) * SLOTS_PER_SET;
        &self.places[first..first + SLOTS_PER_SET]
    }

    /// Subtracts an allocation that the program no longer holds.
    fn given_back(&self, allocation: Allocation, sites: &MemorySites) {
        sites.freed(allocation.site, allocation.bytes);
        for held in self.on(allocation).into_iter().chain([self.held(allocation.owner)]) {
            held.now.fetch_sub(allocation.bytes, Relaxed);
        }
    }

    /// The memory held on its device.
    fn on(&self, allocation: Allocation) -> Option<&Held> {
        self.on.get(allocation.device).filter(|_| allocation.owner == MemoryOwner::Device)
    }

    /// Bytes held on this device now, and their maximum.
    pub(crate) fn held_on(&self, device: DeviceIndex) -> (u64, u64) {
        self.on.get(device.0 as usize).map_or((0, 0), Held::bytes)
    }

    fn held(&self, owner: MemoryOwner) -> &Held {
        match owner {
            MemoryOwner::Device => &self.device,
            MemoryOwner::Host => &self.host,
        }
    }

    /// Bytes held now, and their maximum.
    pub(crate) fn bytes(&self, owner: MemoryOwner) -> (u64, u64) {
        self.held(owner).bytes()
    }

    /// Number of allocations and of frees so far.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (self.made.load(Relaxed), self.freed.load(Relaxed))
    }

    /// Number of allocations without a slot, and of frees of unknown addresses.
    pub(crate) fn missed(&self) -> (u64, u64) {
        let unplaced = self.unplaced.load(Relaxed);
        (unplaced, self.unknown.load(Relaxed).saturating_sub(unplaced))
    }
}

impl Held {
    fn bytes(&self) -> (u64, u64) {
        let now = self.now.load(Acquire);
        (now, self.most.load(Relaxed).max(now))
    }
}

#[cfg(test)]
mod tests {
    use std::{ptr, thread};

    use xpu_wire::{id::Step, ledger::Allocating};

    use super::*;

    fn at(address: usize) -> *const c_void {
        ptr::without_provenance(address)
    }

    fn sites() -> Box<MemorySites> {
        // SAFETY: it has only atomic words, for which zero is valid.
        unsafe { Box::<MemorySites>::new_zeroed().assume_init() }
    }

    #[test]
    fn held_memory_is_the_memory_not_freed() {
        let (known, sites) = (Allocations::new().unwrap(), sites());
        known.allocated(at(512), (MemoryOwner::Device, 100), Some(1), 0, &sites);
        known.allocated(at(1024), (MemoryOwner::Device, 50), Some(1), 0, &sites);
        known.allocated(at(2048), (MemoryOwner::Host, 7), Some(1), 0, &sites);
        let taken = known.take(at(512));
        known.released(at(512), taken, true, &sites);
        assert_eq!((known.bytes(MemoryOwner::Device), known.bytes(MemoryOwner::Host)), ((50, 150), (7, 7)));
        assert_eq!([0, 1].map(|device| known.held_on(DeviceIndex(device))), [(0, 0), (50, 150)]);
        let taken = known.take(at(1024));
        known.released(at(1024), taken, false, &sites);
        assert_eq!(known.bytes(MemoryOwner::Device), (50, 150), "the library refused");
        known.released(at(4096), known.take(at(4096)), true, &sites);
        known.released(ptr::null(), known.take(ptr::null()), true, &sites);
        assert_eq!((known.calls(), known.missed()), ((3, 2), (0, 1)));
    }

    #[test]
    fn a_reused_address_counts_once() {
        let (known, sites) = (Allocations::new().unwrap(), sites());
        known.allocated(at(512), (MemoryOwner::Device, 100), Some(1), 0, &sites);
        known.allocated(at(512), (MemoryOwner::Device, 30), Some(1), 0, &sites);
        assert_eq!(known.bytes(MemoryOwner::Device), (30, 100));
    }

    #[test]
    fn freed_memory_is_subtracted_from_its_site() {
        let (known, sites) = (Allocations::new().unwrap(), sites());
        let made = |address, bytes| {
            let here = Allocating { frames: 7, returns_to: 0x10, step: Step(3) };
            let site = sites.allocated(bytes, here, |_, _| ());
            known.allocated(at(address), (MemoryOwner::Device, bytes), Some(1), site, &sites);
        };
        let held = || sites.read().first().map_or(0, |site| site.held);
        made(512, 100);
        made(1024, 50);
        known.released(at(512), known.take(at(512)), true, &sites);
        assert_eq!(held(), 50);
        known.released(at(1024), known.take(at(1024)), false, &sites);
        assert_eq!(held(), 50, "the library refused");
        made(1024, 30);
        assert_eq!(held(), 30, "it was freed unseen");
    }

    #[test]
    fn allocations_beyond_the_limit_are_counted_and_not_tracked() {
        let (known, sites) = (Allocations::new().unwrap(), sites());
        (1..=2 * PLACES)
            .for_each(|n| known.allocated(at(n * 512), (MemoryOwner::Device, 1), Some(1), 0, &sites));
        let (unplaced, _) = known.missed();
        assert!(unplaced >= PLACES as u64);
        assert_eq!(known.bytes(MemoryOwner::Device).0 + unplaced, 2 * PLACES as u64);
        (1..=2 * PLACES).for_each(|n| known.released(at(n * 512), known.take(at(n * 512)), true, &sites));
        assert_eq!((known.bytes(MemoryOwner::Device).0, known.missed().1), (0, 0));
    }

    #[test]
    fn concurrent_allocations_and_frees_cancel_out() {
        let (known, sites) = (Allocations::new().unwrap(), sites());
        thread::scope(|scope| {
            for thread in 0..4_usize {
                let (known, sites) = (&known, &sites);
                scope.spawn(move || {
                    for n in 1..20_000_usize {
                        let address = at((thread * 100 + n % 100 + 1) * 512);
                        known.allocated(address, (MemoryOwner::Device, 3), Some(1), 0, sites);
                        known.released(address, known.take(address), true, sites);
                    }
                });
            }
        });
        assert_eq!((known.bytes(MemoryOwner::Device).0, known.missed()), (0, (0, 0)));
    }
}
