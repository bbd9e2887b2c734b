//! The communicators that NCCL has reported to the plugin. NCCL passes a communicator's context with each
//! event.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};

use cudarc::{nccl::sys::ncclComm_t, runtime::sys::cudaStream_t};
use xpu_wire::id::CommunicatorId;

use crate::{
    gpu::runtime,
    interpose::nccl::Identity,
    observe::{
        communicator::{Communicators, Name, Origin},
        lane::Lane,
        observer::Observer,
    },
    publish::identity::Membership,
};

/// Maximum number of communicators at once. The plugin does not see further ones.
const CONTEXTS: usize = 256;

/// Number of contexts made so far.
static MADE: AtomicU32 = AtomicU32::new(0);

static ALL: [Context; CONTEXTS] = [const { Context::new() }; CONTEXTS];

#[derive(Debug)]
pub(super) struct Context {
    state: AtomicU8,
    id: AtomicU64,
    rank: AtomicU32,
    size: AtomicU32,
    /// The chained plugin's context, and whether its `init` succeeded.
    theirs: AtomicPtr<c_void>,
    is_theirs: AtomicU8,
}

const FREE: u8 = 0;
const MAKING: u8 = 1;
/// No call on it was seen so far.
const NEW: u8 = 2;
/// The interposed functions see calls on it, and count them.
const PRELOADED: u8 = 3;
/// Only the plugin sees calls on it.
const ALONE: u8 = 4;
/// Its rank and size are unknown, so nothing is counted.
const NAMELESS: u8 = 5;

impl Context {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(FREE),
            id: AtomicU64::new(0),
            rank: AtomicU32::new(0),
            size: AtomicU32::new(0),
            theirs: AtomicPtr::new(ptr::null_mut()),
            is_theirs: AtomicU8::new(0),
        }
    }

    /// A context for a communicator with this identity, rank and size. `None` if there are too many.
    pub(super) fn make(known: Option<Membership>) -> Option<&'static Self> {
        let free = |context: &&Self| context.state.compare_exchange(FREE, MAKING, AcqRel, Relaxed).is_ok();
        let context = ALL.iter().find(free)?;
        let Membership { communicator, rank, size } = known.unwrap_or_default();
        context.id.store(communicator.0, Relaxed);
        context.rank.store(rank, Relaxed);
        context.size.store(size, Relaxed);
        context.is_theirs.store(0, Relaxed);
        let usable = known.is_some() && communicator.0 != 0 && size > 0;
        context.state.store(if usable { NEW } else { NAMELESS }, Release);
        MADE.fetch_add(1, SeqCst);
        Some(context)
    }

    /// The context that NCCL passes, if it is one of this process; it may be NULL, or of another plugin or
    /// process.
    pub(super) fn of(passed: *mut c_void) -> Option<&'static Self> {
        let offset = passed.addr().wrapping_sub(ALL.as_ptr().addr());
        let context =
            ALL.get(offset / size_of::<Self>()).filter(|_| offset.is_multiple_of(size_of::<Self>()))?;
        (context.state.load(Acquire) > MAKING).then_some(context)
    }

    pub(super) fn passed(&'static self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The hook's substitute for NCCL's handle; no communicator has this address.
    fn handle(&'static self) -> ncclComm_t {
        self.passed().cast()
    }

    pub(super) fn set_theirs(&self, theirs: *mut c_void) {
        self.theirs.store(theirs, Relaxed);
        self.is_theirs.store(1, Release);
    }

    /// The chained plugin's context, if it takes events of this one.
    pub(super) fn theirs(&self) -> Option<*mut c_void> {
        (self.is_theirs.load(Acquire) != 0).then(|| self.theirs.load(Relaxed))
    }

    pub(super) fn id(&self) -> CommunicatorId {
        CommunicatorId(self.id.load(Relaxed))
    }

    pub(super) fn size(&self) -> u32 {
        self.size.load(Relaxed)
    }

    /// The handle, if only the plugin sees calls on it. The first call decides: if it comes from `inside` an
    /// interposed call, the preload sees it.
    pub(super) fn alone(&'static self, lane: &Lane, inside: bool) -> Option<ncclComm_t> {
        if self.state.load(Relaxed) == NEW {
            self.decide(lane, inside);
        }
        (self.state.load(Relaxed) == ALONE).then(|| self.handle())
    }

    #[cold]
    fn decide(&'static self, lane: &Lane, inside: bool) {
        let observer = lane.observer();
        let seen = inside || self.is_known(&observer.communicators);
        if seen {
            let _ = self.state.compare_exchange(NEW, PRELOADED, AcqRel, Relaxed);
        } else if self.state.compare_exchange(NEW, MAKING, AcqRel, Relaxed).is_ok() {
            let identity = Identity { id: self.id(), magic: 0 };
            let origin = Origin {
                identity,
                parent: CommunicatorId(0),
                name: Name::default(),
                rank: self.rank.load(Relaxed),
                size: self.size(),
            };
            if let Some(index) = observer.communicators.insert(observer.ledger(), self.handle(), &origin) {
                // NCCL does not know this handle, so it must not be queried.
                observer.communicators.slot(index).set_device(None);
            }
            self.state.store(ALONE, Release);
        }
    }

    /// Sets its device from that of a stream of one of its calls, if only the plugin sees these. NCCL's
    /// interface does not report the device, and NCCL calls the plugin with any device current.
    pub(super) fn locate(&'static self, lane: &Lane, stream: cudaStream_t) {
        let observer = lane.observer();
        let Some(index) = observer.communicators.find(self.handle()) else { return };
        let slot = observer.communicators.slot(index);
        if slot.device().is_some() || self.size() < 2 {
            return;
        }
        if let Some(device) = runtime::device_of(stream) {
            slot.set_device(Some(device));
            observer.gpus.uses(device);
        }
    }

    /// Whether the preload saw its creation.
    fn is_known(&self, communicators: &Communicators) -> bool {
        let mut open = communicators.open();
        open.any(|slot| slot.id() == self.id() && slot.rank() == self.rank.load(Relaxed))
    }

    /// Frees the context of a destroyed communicator.
    pub(super) fn end(&'static self) {
        if self.state.swap(MAKING, AcqRel) == ALONE
            && let Some(observer) = Observer::get()
        {
            observer.communicators.remove(observer.ledger(), self.handle());
        }
        self.state.store(FREE, Release);
    }
}

pub(super) fn made() -> u32 {
    MADE.load(SeqCst)
}

/// Whether the plugin's events are needed, because only the plugin sees some communicator's calls, or this is
/// not known yet.
pub(super) fn are_needed(observer: &Observer) -> bool {
    let mut needed = false;
    for context in &ALL {
        let new = context.state.load(Acquire) == NEW;
        if new && context.is_known(&observer.communicators) {
            let _ = context.state.compare_exchange(NEW, PRELOADED, AcqRel, Relaxed);
        }
        needed |= matches!(context.state.load(Acquire), MAKING | NEW | ALONE);
    }
    needed
}

/// Frees all contexts in a forked child, which has no communicators.
pub(super) fn forget() {
    for context in &ALL {
        context.state.store(FREE, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_contexts_of_this_process_are_accepted() {
        let context =
            Context::make(Some(Membership { communicator: CommunicatorId(7), rank: 1, size: 2 })).unwrap();
        let passed = context.passed();
        assert!(Context::of(passed).is_some_and(|found| ptr::eq(found, context)));
        for other in [ptr::null_mut(), passed.wrapping_byte_add(8), passed.wrapping_byte_sub(1 << 20)] {
            assert!(Context::of(other).is_none());
        }
        assert_eq!(context.theirs(), None);
        context.set_theirs(ptr::null_mut());
        assert_eq!(context.theirs(), Some(ptr::null_mut()), "a plugin may have no context");
        context.end();
        assert!(Context::of(passed).is_none());
    }
}
