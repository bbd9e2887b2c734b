//! Lookups by address that are answered with the interposed function, and the real function that its calls
//! are for.

use std::{
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use super::{FOUND, GENERATION, Kind, Library, Target, scope};

/// The interposed function for lookups by address: a naked function, with the real one's signature.
pub(crate) type StandIn = unsafe extern "C-unwind" fn();

/// The real answer to a lookup that got the interposed function.
#[derive(Debug)]
pub(super) struct Handed {
    /// 0 without a lookup. The interposed function reads it.
    pub(super) at: AtomicUsize,
    pub(super) stand_in: Option<StandIn>,
    /// The generation of the kind; 0 while it is unknown.
    known: AtomicU32,
    kind: AtomicUsize,
    /// The caller of the lookup is one of the libraries, or interposes one: its calls may be parts of a call.
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

    /// The replacement of `answer`, which is the function in a copy of the library. `None` if another copy,
    /// still loaded, is already replaced: the function has one target only.
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
    pub(super) fn find(&self, library: &Library) -> Target {
        let generation = GENERATION.load(Relaxed);
        let at = ptr::with_exposed_provenance_mut(self.at.load(Acquire));
        if self.known.load(Acquire) == generation {
            return Target { at, kind: Kind::of(self.kind.load(Relaxed)) };
        }
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
