//! Lookups that get the interposed function, and the real function behind it.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use super::{FOUND, GENERATION, Kind, Library, Target, scope};

/// The interposed function that lookups get: a naked function with the real one's signature.
pub(crate) type StandIn = unsafe extern "C-unwind" fn();

/// The real answer to a lookup that got the interposed function.
#[derive(Debug)]
pub(super) struct Handed {
    /// The real address, which the interposed function reads; 0 before a lookup.
    pub(super) at: AtomicUsize,
    pub(super) stand_in: Option<StandIn>,
    /// The generation in which the kind of its calls was determined; 0 while it is unknown.
    known: AtomicU32,
    kind: AtomicUsize,
    /// Whether the lookup came from one of the libraries, or from an object that interposes one: its calls
    /// may be parts of another call.
    is_inner: AtomicBool,
}

impl Handed {
    pub(super) const fn new() -> Self {
        Self {
            at: AtomicUsize::new(0),
            stand_in: None,
            known: AtomicU32::new(0),
            kind: AtomicUsize::new(0),
            is_inner: AtomicBool::new(false),
        }
    }

    /// The replacement of `answer`, the function in some copy of the library. `None` if the function of
    /// another loaded copy is already replaced, because the interposed function has only one target.
    #[cold]
    pub(super) fn hand_out(&self, answer: usize, to_inner: bool) -> Option<usize> {
        let stand_in = self.stand_in? as usize;
        let before = self.at.load(Acquire);
        if before != answer && before != 0 && scope::object_at(before).is_some() {
            return None;
        }
        if before != answer && self.at.compare_exchange(before, answer, AcqRel, Acquire).is_err() {
            return None;
        }
        if to_inner && !self.is_inner.swap(true, Relaxed) || before != answer {
            self.known.store(0, Release);
        }
        FOUND.store(true, Relaxed);
        Some(stand_in)
    }

    /// The target of a call by a looked-up address.
    #[inline]
    pub(super) fn find(&self, library: &Library) -> Target {
        let generation = GENERATION.load(Relaxed);
        let at = ptr::with_exposed_provenance_mut(self.at.load(Acquire));
        if self.known.load(Acquire) == generation {
            return Target { at, kind: Kind::of(self.kind.load(Relaxed)) };
        }
        self.look_up(library, at, generation)
    }

    /// Not inlined, so that a known target is found without a frame on the stack.
    #[cold]
    #[inline(never)]
    fn look_up(&self, library: &Library, at: *mut c_void, generation: u32) -> Target {
        let _errno = crate::interpose::guard::ErrnoKept::keep();
        let is_home = scope::object_at(at.addr()).is_some_and(|object| library.is_home(object));
        let kind = match (is_home, self.is_inner.load(Relaxed)) {
            (true, false) => Kind::Watched,
            (true, true) => Kind::Inner,
            (false, _) => Kind::Elsewhere,
        };
        self.kind.store(kind as usize, Relaxed);
        self.known.store(generation, Release);
        Target { at, kind }
    }
}
