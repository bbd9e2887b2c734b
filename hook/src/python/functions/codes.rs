//! The numbers of watched functions by code object, in a table that is read at every event.
//!
//! The table is written and read under the interpreter's lock.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};

use xpu_wire::functions::FUNCTIONS;

/// Size of the table: a power of two. At most a quarter is used.
const PLACES: usize = 4096;
const _: () = assert!(4 * (FUNCTIONS + super::BUILT_IN.len()) <= PLACES + 4 && PLACES.is_power_of_two());

/// The addresses of the code objects; 0 for an empty place.
static CODES: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
static NUMBERS: [AtomicU16; PLACES] = [const { AtomicU16::new(0) }; PLACES];

fn places(code: usize) -> impl Iterator<Item = usize> {
    let first = code.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - PLACES.ilog2());
    (first..first + PLACES).map(|place| place % PLACES)
}

/// Adds a code object. If functions share one, it has the number of the first.
pub(super) fn watch(code: usize, number: u16) {
    for place in places(code) {
        let there = CODES[place].load(Relaxed);
        if there == code {
            return;
        }
        if there == 0 {
            NUMBERS[place].store(number, Relaxed);
            return CODES[place].store(code, Relaxed);
        }
    }
}

/// An address without a code object. A test looks it up to cause a panic in a callback.
#[cfg(test)]
pub(super) const BROKEN: usize = usize::MAX;

#[inline]
pub(super) fn number(code: usize) -> Option<u16> {
    #[cfg(test)]
    assert_ne!(code, BROKEN, "on purpose");
    for place in places(code) {
        let there = CODES[place].load(Relaxed);
        if there == code {
            return Some(NUMBERS[place].load(Relaxed));
        }
        if there == 0 {
            break;
        }
    }
    None
}

pub(super) fn forget() {
    for code in &CODES {
        code.store(0, Relaxed);
    }
}
