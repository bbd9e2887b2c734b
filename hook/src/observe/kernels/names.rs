//! The pattern that a function's name matches. CUDA is queried once for each function, and the result is
//! kept.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use super::{
    Function, known_names,
    pattern::{self, matches},
};
use crate::{
    gpu::runtime::{self, SUCCESS},
    interpose::driver,
};

/// Maximum number of functions kept, a power of two, and the longest distance of a place from a function's
/// index. Functions without a place are not distinguished.
const PLACES: usize = 8192;
const FARTHEST: usize = 16;

/// Values below those of patterns: not queried yet, or a name that was not requested.
const UNASKED: u8 = 0;
const PLAIN: u8 = 1;

static WANTED: OnceLock<Vec<String>> = OnceLock::new();
static ASKED_FOR: AtomicBool = AtomicBool::new(false);
static FUNCTIONS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
static VERDICTS: [AtomicU8; PLACES] = [const { AtomicU8::new(UNASKED) }; PLACES];
static REFUSED: AtomicU64 = AtomicU64::new(0);
static NO_PLACE: AtomicU64 = AtomicU64::new(0);

/// The state of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    NotYet,
    Plain,
    /// The number of the first pattern that its name matches.
    Matches(u8),
}

/// Parses the patterns. Returns invalid text, to be reported. A forked child keeps its parent's patterns.
pub(crate) fn set_from(text: &str) -> Result<(), String> {
    let wanted = pattern::read(text)?;
    let any = !wanted.is_empty();
    let _ = WANTED.set(wanted);
    ASKED_FOR.store(any, Release);
    Ok(())
}

/// Number of patterns.
pub(crate) fn patterns() -> usize {
    WANTED.get().map_or(0, Vec::len)
}

pub(crate) fn pattern(number: u8) -> Option<&'static str> {
    Some(WANTED.get()?.get(usize::from(number))?)
}

/// Number of functions whose name CUDA refused, and of launches of functions without a place.
pub(crate) fn missed() -> (u64, u64) {
    (REFUSED.load(Relaxed), NO_PLACE.load(Relaxed))
}

#[inline]
pub(super) fn look_up(function: Function) -> Known {
    if !ASKED_FOR.load(Relaxed) {
        return Known::Plain;
    }
    let address = function.address();
    match places(address).find(|&place| FUNCTIONS[place].load(Relaxed) == address) {
        Some(place) => Known::from(VERDICTS[place].load(Acquire)),
        None => Known::NotYet,
    }
}

/// Queries the name of a launched function. Returns the pattern that the name matches.
#[cold]
pub(super) fn ask(function: Function) -> Option<u8> {
    let address = function.address();
    let place = places(address).find(|&place| {
        let taken = FUNCTIONS[place].compare_exchange(0, address, AcqRel, Relaxed);
        taken.is_ok() || taken == Err(address)
    });
    let Some(place) = place else {
        NO_PLACE.fetch_add(1, Relaxed);
        return None;
    };
    let (verdict, refused) = match name(function) {
        Name::Is(name) => (verdict(name.to_bytes()), 0),
        Name::Refused => (PLAIN, 1),
        // The program has an unread error. The next launch queries again.
        Name::NotNow => return None,
    };
    // Several threads may query at once; a refusal counts once.
    if VERDICTS[place].swap(verdict, AcqRel) == UNASKED {
        REFUSED.fetch_add(refused, Relaxed);
    }
    match Known::from(verdict) {
        Known::Matches(pattern) => Some(pattern),
        Known::Plain | Known::NotYet => None,
    }
}

/// Forgets all functions. Called before a library of kernels is unloaded, because its addresses may be
/// reused.
#[cold]
pub(crate) fn forget() {
    known_names::forget();
    if ASKED_FOR.load(Relaxed) {
        for verdict in &VERDICTS {
            verdict.store(UNASKED, Relaxed);
        }
    }
}

impl From<u8> for Known {
    fn from(verdict: u8) -> Self {
        match verdict {
            UNASKED => Self::NotYet,
            PLAIN => Self::Plain,
            number => Self::Matches(number - PLAIN - 1),
        }
    }
}

impl Function {
    pub(super) fn address(self) -> usize {
        match self {
            Self::Runtime(function) | Self::Kernel(function) => function.addr(),
            Self::Driver(function) => function.addr(),
        }
    }
}

/// Possible places of a function, the most likely first.
fn places(address: usize) -> impl Iterator<Item = usize> {
    let first = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2());
    (0..FARTHEST).map(move |next| (first as usize + next) % PLACES)
}

fn verdict(name: &[u8]) -> u8 {
    let mut wanted = WANTED.get().into_iter().flatten();
    wanted
        .position(|pattern| matches(pattern.as_bytes(), name))
        .and_then(|number| u8::try_from(number).ok())
        .map_or(PLAIN, |number| PLAIN + 1 + number)
}

/// CUDA's answer.
pub(super) enum Name {
    /// CUDA's string, valid as long as the function is loaded.
    Is(&'static CStr),
    Refused,
    NotNow,
}

impl Name {
    /// # Safety
    /// If CUDA answered with success, it has written the name's address to `at`.
    unsafe fn answered(code: Option<c_int>, at: *const c_char) -> Self {
        if code != Some(SUCCESS) || at.is_null() {
            return Self::Refused;
        }
        // SAFETY: the caller promises CUDA's name, which lives as long as the function; it is read at once.
        Self::Is(unsafe { CStr::from_ptr(at) })
    }

    /// Queries the runtime; a refusal leaves no error behind.
    fn by_runtime(function: *const c_void) -> Self {
        if !runtime::runtime_error_free() {
            return Self::NotNow;
        }
        let mut at = ptr::null();
        // SAFETY: the function was just launched through the same runtime; the place outlives the call.
        let code = unsafe { runtime::cudaFuncGetName(&raw mut at, function) };
        if code.is_some_and(|code| code != SUCCESS) {
            runtime::forget_runtime_error();
        }
        // SAFETY: as CUDA documents.
        unsafe { Self::answered(code, at) }
    }

    fn of_kernel(kernel: *const c_void) -> Self {
        let mut at = ptr::null();
        // SAFETY: the kernel was just launched; the place outlives the call.
        let code = unsafe { driver::cuKernelGetName(&raw mut at, kernel.cast_mut().cast()) };
        // SAFETY: as CUDA documents.
        unsafe { Self::answered(code, at) }
    }

    fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        if matches!(self, Self::Refused) { other() } else { self }
    }
}

pub(super) fn name(function: Function) -> Name {
    match function {
        Function::Runtime(function) => Name::by_runtime(function),
        Function::Kernel(kernel) => Name::by_runtime(kernel).or_else(|| Name::of_kernel(kernel)),
        Function::Driver(function) => {
            let mut at = ptr::null();
            // SAFETY: the function was just launched; the place outlives the call.
            let code = unsafe { driver::cuFuncGetName(&raw mut at, function) };
            // SAFETY: as CUDA documents.
            unsafe { Name::answered(code, at) }.or_else(|| Name::of_kernel(function.cast_const().cast()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_returns_its_parts() {
        assert_eq!(Known::from(UNASKED), Known::NotYet);
        assert_eq!(Known::from(PLAIN), Known::Plain);
        assert_eq!(Known::from(PLAIN + 1), Known::Matches(0));
    }

    #[test]
    fn without_patterns_nothing_is_looked_up() {
        assert_eq!(look_up(Function::Runtime(ptr::dangling())), Known::Plain);
    }

    #[test]
    fn places_are_within_the_table() {
        for address in [1, 64, usize::MAX] {
            assert!(places(address).all(|place| place < PLACES) && places(address).count() == FARTHEST);
        }
    }
}
