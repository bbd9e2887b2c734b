//! Finds the function that a caller would reach without the hook.
//!
//! A process may have two copies of a library: two CUDA runtimes, each with its own callers. The caller
//! determines which copy a call is for, so the result is cached for each calling object (found by the return
//! address). The copy that is called first is monitored: it is the [`Library`]'s home. Calls to another copy
//! are passed on and counted.

mod foreign;
mod forks;
mod handed;
mod library;
mod loaded;
mod scope;
mod unload;

use std::{
    ffi::{CStr, c_int, c_void},
    mem::offset_of,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
        fence,
    },
};

pub(crate) use foreign::{Foreign, called, foreign, name};
pub(crate) use forks::{after_fork, before_fork};
use handed::Handed;
pub(crate) use handed::StandIn;
pub(crate) use library::Library;
use loaded::Span;
pub(crate) use loaded::{Name, Object, Own, each, walk};
pub(crate) use scope::{is_here, is_inner, is_own, next_definition};
pub use unload::dlclose;
pub(crate) use unload::{LIBRARIES, Visit, look_for_unloaded};

use crate::{interpose::stub::BY_ADDRESS, process::mask::Uninterrupted};

/// Maximum number of callers cached for each function. Further ones displace each other.
const CALLERS: usize = 6;

/// Increases after an object was unloaded, so that no stale address is used. Never 0.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// Whether a lookup has succeeded: if not, unloading does not matter.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Held while a symbol's cache is written. A thread that finds it held does not use the cache.
static WRITING: AtomicBool = AtomicBool::new(false);

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    /// To the monitored copy.
    Watched,
    /// A call to the monitored copy by one of the libraries.
    Inner,
    /// To another copy.
    Elsewhere,
}

impl Kind {
    fn of(number: usize) -> Self {
        match number {
            0 => Self::Watched,
            1 => Self::Inner,
            _ => Self::Elsewhere,
        }
    }
}

/// A call's target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// NULL if no loaded library has the function.
    pub(crate) at: *mut c_void,
    pub(crate) kind: Kind,
}

/// The result for one caller. The length is written last.
#[derive(Debug)]
struct Binding {
    from: AtomicUsize,
    length: AtomicUsize,
    target: AtomicUsize,
    kind: AtomicUsize,
}

/// An interposed function.
#[derive(Debug)]
pub(crate) struct Symbol {
    name: Name<'static>,
    library: &'static Library,
    /// The program's result if no library has the function.
    missing: c_int,
    handed: Handed,
    /// The generation of the cached results; 0 while they change.
    known: AtomicU32,
    turn: AtomicUsize,
    bindings: [Binding; CALLERS],
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr, library: &'static Library, missing: c_int) -> Self {
        Self {
            name: Name::new(name),
            library,
            missing,
            handed: Handed::new(),
            known: AtomicU32::new(0),
            turn: AtomicUsize::new(0),
            bindings: [const {
                Binding {
                    from: AtomicUsize::new(0),
                    length: AtomicUsize::new(0),
                    target: AtomicUsize::new(0),
                    kind: AtomicUsize::new(0),
                }
            }; CALLERS],
        }
    }

    /// Offset of the real address that the stub for looked-up addresses reads.
    pub(crate) const HANDED: usize = offset_of!(Self, handed) + offset_of!(Handed, at);

    /// Adds this function for lookups by address.
    pub(crate) const fn handed_out_as(mut self, stand_in: StandIn) -> Self {
        self.handed.stand_in = Some(stand_in);
        self
    }

    /// The replacement of `answer`, the function in some copy of the library. `None` if the function of
    /// another loaded copy is already replaced, because the interposed function has only one target.
    #[cold]
    pub(crate) fn hand_out(&self, answer: usize, to_inner: bool) -> Option<usize> {
        self.handed.hand_out(answer, to_inner)
    }

    /// The target of a call that returns to `caller`.
    #[inline]
    pub(crate) fn find(&self, caller: usize) -> Target {
        if caller == BY_ADDRESS {
            return self.handed.find(self.library);
        }
        let generation = GENERATION.load(Relaxed);
        if self.known.load(Acquire) == generation {
            for binding in &self.bindings {
                let length = binding.length.load(Acquire);
                if length == 0 {
                    break;
                }
                if caller.wrapping_sub(binding.from.load(Relaxed)) < length {
                    let target = binding.target();
                    fence(Acquire);
                    // The generation is unchanged, so the target belongs to this caller's address.
                    if self.known.load(Relaxed) == generation {
                        return target;
                    }
                    break;
                }
            }
        }
        self.look_up(caller)
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self, caller: usize) -> Target {
        let _errno = crate::interpose::guard::ErrnoKept::keep();
        // Locks of the loader and of the caches are taken.
        let _signals = Uninterrupted::begin();
        let generation = GENERATION.load(Acquire);
        FOUND.store(true, Relaxed);
        let Some(found) = scope::find(&self.name, &self.library.marker, caller) else {
            return Target { at: ptr::null_mut(), kind: Kind::Elsewhere };
        };
        if !found.is_certain {
            self.library.unsure.store(true, Relaxed);
        }
        let kind = if !found.is_certain || !self.library.is_home(found.object) {
            Kind::Elsewhere
        } else if found.is_inner {
            Kind::Inner
        } else {
            Kind::Watched
        };
        let target = Target { at: ptr::with_exposed_provenance_mut(found.address), kind };
        if !WRITING.swap(true, Acquire) {
            self.remember(found.caller, target, generation);
            WRITING.store(false, Release);
        }
        target
    }

    /// Caches the target of a caller. Called by one thread at a time.
    fn remember(&self, caller: Span, target: Target, generation: u32) {
        let is_new = self.known.load(Relaxed) != generation;
        if is_new {
            self.turn.store(0, Relaxed);
        }
        let turn = self.turn.load(Relaxed);
        let rewrites = is_new || turn >= CALLERS;
        if rewrites {
            self.known.store(0, Relaxed);
            fence(AcqRel);
        }
        if is_new {
            self.bindings.iter().for_each(|binding| binding.length.store(0, Relaxed));
        }
        let binding = &self.bindings[turn % CALLERS];
        binding.from.store(caller.from, Relaxed);
        binding.target.store(target.at.expose_provenance(), Relaxed);
        binding.kind.store(target.kind as usize, Relaxed);
        binding.length.store(caller.length, Release);
        self.turn.store(turn + 1, Relaxed);
        if rewrites {
            self.known.store(generation, Release);
        }
    }

    pub(crate) fn name(&self) -> &'static CStr {
        self.name.text
    }

    /// The name by which the loader finds it.
    pub(crate) fn looked_up(&self) -> &Name<'static> {
        &self.name
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    /// Counts a call that is passed on because it is for another copy.
    pub(crate) fn passes_by(&self, target: Target) {
        if target.kind == Kind::Elsewhere && !target.at.is_null() {
            self.library.elsewhere.fetch_add(1, Relaxed);
        }
    }
}

impl Binding {
    fn target(&self) -> Target {
        let kind = Kind::of(self.kind.load(Relaxed));
        Target { at: ptr::with_exposed_provenance_mut(self.target.load(Relaxed)), kind }
    }
}

/// The generation, which changes after each unload.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Acquire)
}

/// Releases locks of the parent's threads in a forked child.
pub(crate) fn forget() {
    WRITING.store(false, Release);
    forks::forget();
    unload::forget();
}

/// A function of the loaded library with this file name. NULL if it is not loaded, or has no such function.
pub(crate) fn find_in(library: &CStr, name: &CStr) -> *mut c_void {
    ptr::with_exposed_provenance_mut(scope::find_in_file(library, &Name::new(name)))
}

/// This function in the first library that has it.
pub(crate) fn find_anywhere(name: &CStr) -> *mut c_void {
    ptr::with_exposed_provenance_mut(scope::find_in(&Name::new(name), 0))
}

/// The jump target of a stub whose call is not observed, or the program's result (see [`crate::interpose`]).
#[repr(C)]
pub(crate) struct Passed {
    at: *mut c_void,
    missing: c_int,
}

pub(crate) extern "C" fn pass(symbol: &Symbol, caller: usize) -> Passed {
    let errno = crate::interpose::guard::ErrnoKept::keep();
    let at = symbol.find(caller).at;
    drop(errno);
    Passed { at, missing: symbol.missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_distinguished_and_replaced_beyond_the_limit() {
        static LIBRARY: Library = Library::new("a library", c"none");
        let symbol = Symbol::new(c"none", &LIBRARY, 77);
        let generation = GENERATION.load(Relaxed);
        let target = |number: usize| Target {
            at: ptr::without_provenance_mut(number),
            kind: if number.is_multiple_of(2) { Kind::Watched } else { Kind::Elsewhere },
        };
        for number in 1..=3 * CALLERS {
            let caller = Span { from: number * 1000, length: 10 };
            symbol.remember(caller, target(number), generation);
            for known in (number.saturating_sub(CALLERS - 1)).max(1)..=number {
                let found = symbol.find(known * 1000 + 9);
                assert_eq!((found.at, found.kind), (target(known).at, target(known).kind));
            }
        }
        assert!(symbol.find(3000 * CALLERS + 10).at.is_null(), "nobody has it, and nobody else's is taken");
        symbol.remember(Span { from: 5, length: 1 }, target(2), generation.wrapping_add(1));
        assert!(symbol.find(3000 * CALLERS).at.is_null(), "of another generation");
    }

    #[test]
    fn a_function_is_found_for_a_caller_here() {
        static LIBC: Library = Library::new("the C library", c"getpid");
        let symbol = Symbol::new(c"getpagesize", &LIBC, -1);
        let here = callers_are_distinguished_and_replaced_beyond_the_limit as *const () as usize;
        let target = symbol.find(here);
        // SAFETY: the name is NUL-terminated.
        let truth = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getpagesize".as_ptr()) };
        assert_eq!((target.at, target.kind), (truth, Kind::Watched));
        assert_eq!(Foreign::new(c"getppid", &LIBC).find(), unsafe {
            // SAFETY: as above.
            libc::dlsym(libc::RTLD_DEFAULT, c"getppid".as_ptr())
        });
        assert!(Foreign::new(c"xpu_top_no_library_has_this", &LIBC).find().is_null());
    }
}
