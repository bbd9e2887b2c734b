//! Communicators that NCCL is creating in its own thread. Their handles are not known yet.

use std::{
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use cudarc::nccl::sys::ncclComm_t;

use crate::{
    observe::communicator::Origin,
    process::{memory, peek},
};

/// Maximum number of communicators kept. Calls on further ones count as unknown.
const MOST: usize = 32;

/// A split or a shrink of a non-blocking communicator. The place of the handle holds NULL until NCCL has
/// created the communicator; when NCCL reports "success" for the parent, it holds the handle. From then on
/// the place is an ordinary variable of the program, and may become invalid at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCommunicator {
    /// Where NCCL will write the handle.
    pub(super) place: *const ncclComm_t,
    /// The handle of the parent.
    pub(super) parent: ncclComm_t,
    pub(super) origin: Origin,
}

// SAFETY: the addresses are only compared, or read through the kernel.
unsafe impl Send for PendingCommunicator {}

/// No thread waits for a lock here: an entry that another thread uses is handled next time.
#[derive(Debug)]
pub(crate) struct Pending {
    places: Box<[Mutex<Option<PendingCommunicator>>]>,
    count: AtomicU32,
}

impl Pending {
    pub(crate) const MEMORY: usize = MOST * size_of::<Mutex<Option<PendingCommunicator>>>();

    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        Some(Self { places: memory::slice(MOST, || Some(Mutex::default()))?, count: AtomicU32::new(0) })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// `false` if there is no space. An earlier entry for the same place is dropped, because the handle there
    /// will belong to the new one.
    pub(super) fn add(&self, child: PendingCommunicator) -> bool {
        while self.take(|before| (before.place == child.place).then_some(())).is_some() {}
        self.places.iter().any(|place| {
            let Ok(mut place) = place.try_lock() else { return false };
            let free = place.is_none();
            if free {
                *place = Some(child);
                self.count.fetch_add(1, Relaxed);
            }
            free
        })
    }

    /// Removes an entry whose communicator exists: the one with the handle `wanted`, or any child of
    /// `parent`.
    pub(super) fn take_made(
        &self,
        is: impl Fn(ncclComm_t, ncclComm_t) -> bool,
    ) -> Option<(ncclComm_t, Origin)> {
        self.take(|child| {
            let handle = handle_at(child.place);
            (!handle.is_null() && is(handle, child.parent)).then_some((handle, child.origin))
        })
    }

    /// Drops entries whose communicators will not be created, because the parent is gone or has failed.
    pub(super) fn forget_children(&self, parent: ncclComm_t) {
        while self.take(|child| (child.parent == parent).then_some(())).is_some() {}
    }

    fn take<T>(&self, choose: impl Fn(&PendingCommunicator) -> Option<T>) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.places.iter().find_map(|place| {
            let mut place = place.try_lock().ok()?;
            let chosen = choose(place.as_ref()?)?;
            *place = None;
            self.count.fetch_sub(1, Relaxed);
            Some(chosen)
        })
    }
}

/// The handle at an address; NULL if the address is unmapped by now.
fn handle_at(place: *const ncclComm_t) -> ncclComm_t {
    ptr::with_exposed_provenance_mut(peek::word(place.addr()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use xpu_wire::id::CommunicatorId;

    use super::*;
    use crate::{interpose::nccl::Identity, observe::communicator::Name};

    fn child(place: *const ncclComm_t, id: u64) -> PendingCommunicator {
        let identity = Identity { id: CommunicatorId(id), magic: 0 };
        let origin = Origin { identity, parent: CommunicatorId(1), name: Name::default(), rank: 0, size: 0 };
        PendingCommunicator { place, parent: ptr::without_provenance_mut(64), origin }
    }

    fn made(pending: &Pending) -> Option<u64> {
        Some(pending.take_made(|_, _| true)?.1.identity.id.0)
    }

    #[test]
    fn a_pending_communicator_is_found_once_created() {
        let pending = Pending::new().unwrap();
        let mut place: ncclComm_t = ptr::null_mut();
        pending.add(child(&raw const place, 7));
        assert_eq!(made(&pending), None);
        // SAFETY: it is ours.
        unsafe { (&raw mut place).write_volatile(ptr::without_provenance_mut(4096)) };
        assert_eq!(made(&pending), Some(7));
        assert!(pending.is_empty());
    }

    #[test]
    fn an_unmapped_variable_is_not_read() {
        let pending = Pending::new().unwrap();
        // SAFETY: a new page, which is unmapped at once.
        let page = unsafe {
            let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(ptr::null_mut(), 4096, read, private, -1, 0);
            libc::munmap(page, 4096);
            page
        };
        pending.add(child(page.cast(), 7));
        assert_eq!(made(&pending), None);
        pending.forget_children(ptr::without_provenance_mut(64));
        assert!(pending.is_empty());
    }

    #[test]
    fn a_reused_variable_belongs_to_the_later_communicator() {
        let pending = Pending::new().unwrap();
        let place: ncclComm_t = ptr::without_provenance_mut(4096);
        for id in [7, 9] {
            pending.add(child(&raw const place, id));
        }
        assert_eq!((made(&pending), made(&pending)), (Some(9), None));
    }

    #[test]
    fn the_number_of_pending_communicators_is_bounded() {
        let pending = Pending::new().unwrap();
        let kept = (0..100)
            .filter(|&id| pending.add(child(ptr::without_provenance(64 + id * 8), id as u64)))
            .count();
        assert_eq!(kept, MOST);
    }
}
