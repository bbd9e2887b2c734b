//! Executable graphs, found by their handle without a lock.
//!
//! A place is free, then filled, then ended, then free again. A launch pins the place. Only the hook's thread
//! empties a place, when the executable has ended, is not pinned, and all its launches were taken.
//!
//! Handles are stored apart from the data, each near the index of its hash, so that a launch reads only a few
//! adjacent ones.

use std::{
    cell::UnsafeCell,
    ffi::c_int,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        },
    },
};

use super::Contents;
use crate::process::memory;

/// Maximum number of executables, including ended ones whose launches were not taken yet.
pub(super) const PLACES: usize = 2048;

/// Values that stand in place of a handle.
const FREE: usize = 0;
const BUSY: usize = 1;
const ENDED: usize = 2;
/// The value of the first place, which counts launches of executables whose creation was not seen.
const UNSEEN: usize = 3;

#[derive(Debug)]
pub(super) struct Executables {
    handles: &'static [AtomicUsize],
    places: &'static [Executable],
    /// Number of places that are filled or ended.
    filled: AtomicUsize,
    /// Longest distance of a handle from its index so far; a lookup ends there.
    reach: AtomicUsize,
    made: AtomicU32,
}

/// A place; all zeros is a free one.
#[derive(Debug)]
pub(crate) struct Executable {
    users: AtomicU32,
    number: AtomicU32,
    signature: AtomicU32,
    /// The device of its last launch plus one, in a process that uses several.
    device: AtomicU32,
    launches: AtomicU64,
    /// Launches that the hook's thread has taken.
    taken: AtomicU64,
    /// The pointer of an `Arc`.
    contents: UnsafeCell<Option<NonNull<Contents>>>,
}

// SAFETY: the contents are written by the thread that set the handle to BUSY, or by the hook's thread while
// the handle is ENDED and has no users. Otherwise they are only read.
unsafe impl Sync for Executable {}

impl Executables {
    pub(super) const MEMORY: usize = PLACES * (size_of::<Executable>() + size_of::<AtomicUsize>());

    pub(super) fn new() -> Option<Self> {
        // SAFETY: all zeros is FREE, with no contents.
        let (places, handles) = unsafe { (memory::zeros(PLACES)?, memory::zeros::<AtomicUsize>(PLACES)?) };
        handles[0].store(UNSEEN, Relaxed);
        let nothing = || AtomicUsize::new(0);
        Some(Self { handles, places, filled: nothing(), reach: nothing(), made: AtomicU32::new(0) })
    }

    pub(super) fn next_number(&self) -> u32 {
        self.made.fetch_add(1, Relaxed) + 1
    }

    /// Adds an executable. `None` if no place is free; else whether places will run out soon.
    pub(super) fn add(&self, handle: usize, number: u32, contents: Option<Arc<Contents>>) -> Option<bool> {
        let free = |(_, index): &(_, usize)| {
            self.handles[*index].compare_exchange(FREE, BUSY, AcqRel, Relaxed).is_ok()
        };
        let (distance, index) = (0..).zip(near(handle)).find(free)?;
        let place = &self.places[index];
        place.number.store(number, Relaxed);
        let signature = contents.as_ref().map_or(0, |contents| contents.signature());
        place.signature.store(signature, Relaxed);
        let contents = contents.and_then(|contents| NonNull::new(Arc::into_raw(contents).cast_mut()));
        // SAFETY: this thread set it to BUSY, and a new place has no contents.
        unsafe { *place.contents.get() = contents };
        self.reach.fetch_max(distance, Relaxed);
        self.handles[index].store(handle, Release);
        Some(self.filled.fetch_add(1, Relaxed) > PLACES / 2)
    }

    /// Ends an executable, which will not be launched again. Returns its number if it was known.
    pub(super) fn end(&self, handle: usize) -> Option<u32> {
        let index = self.within_reach(handle).find(|&index| self.handles[index].load(Relaxed) == handle)?;
        let number = self.places[index].number.load(Relaxed);
        self.handles[index].compare_exchange(handle, ENDED, SeqCst, Relaxed).is_ok().then_some(number)
    }

    /// The executable of this handle, which stays until [`Executable::unpin`].
    pub(super) fn pin(&self, handle: usize) -> &Executable {
        let known = self.within_reach(handle).find(|&index| {
            if self.handles[index].load(Relaxed) != handle {
                return false;
            }
            let place = &self.places[index];
            place.users.fetch_add(1, SeqCst);
            let stays = self.handles[index].load(SeqCst) == handle;
            if !stays {
                place.unpin();
            }
            stays
        });
        if let Some(index) = known {
            return &self.places[index];
        }
        let unseen = &self.places[0];
        unseen.users.fetch_add(1, SeqCst);
        unseen
    }

    pub(super) fn take_launches(&self, mut each: impl FnMut(u32, Option<c_int>, Option<&Contents>, u64)) {
        for (place, at) in self.places.iter().zip(self.handles) {
            let handle = at.load(SeqCst);
            if handle == FREE || handle == BUSY {
                continue;
            }
            // The users are read first: a later launch sees that the executable has ended.
            let unused = place.users.load(SeqCst) == 0;
            let launches = place.launches.load(Acquire);
            let new = launches - place.taken.load(Relaxed);
            if new > 0 {
                place.taken.store(launches, Relaxed);
                let device = place.device.load(Relaxed).checked_sub(1).map(|device| device as c_int);
                // SAFETY: the place is filled, and only this thread empties it.
                each(place.number.load(Relaxed), device, unsafe { place.held() }, new);
            }
            if handle == ENDED && unused {
                // SAFETY: the executable has ended and has no users; the pointer is that of an `Arc`.
                drop(unsafe {
                    (*place.contents.get()).take().map(|contents| Arc::from_raw(contents.as_ptr()))
                });
                place.launches.store(0, Relaxed);
                place.taken.store(0, Relaxed);
                at.store(FREE, Release);
                self.filled.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Possible places of a handle, the likeliest first.
    fn within_reach(&self, handle: usize) -> impl Iterator<Item = usize> + use<> {
        near(handle).take(self.reach.load(Relaxed) + 1)
    }
}

/// All places but the first, from a handle's index on.
fn near(handle: usize) -> impl Iterator<Item = usize> {
    let start = ((handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    (0..PLACES - 1).map(move |distance| 1 + (start + distance) % (PLACES - 1))
}

impl Executable {
    pub(super) fn contents(&self) -> Option<&Contents> {
        // SAFETY: the caller has pinned the place, so it is not emptied.
        unsafe { self.held() }
    }

    /// # Safety
    /// The place is not emptied while the result is used.
    unsafe fn held(&self) -> Option<&Contents> {
        // SAFETY: the place holds this `Arc` until it is emptied.
        unsafe { (*self.contents.get()).map(|contents| contents.as_ref()) }
    }

    pub(super) fn number(&self) -> u32 {
        self.number.load(Relaxed)
    }

    /// A hash of its contents.
    pub(super) fn signature(&self) -> u32 {
        self.signature.load(Relaxed)
    }

    /// Counts a launch, on this device if it is known.
    pub(super) fn launched(&self, device: Option<c_int>) {
        self.device.store(device.map_or(0, |device| device.cast_unsigned() + 1), Relaxed);
        self.launches.fetch_add(1, Release);
    }

    pub(super) fn unpin(&self) {
        self.users.fetch_sub(1, SeqCst);
    }
}
