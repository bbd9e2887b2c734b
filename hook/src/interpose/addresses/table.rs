//! The interposed functions, by their names.
//!
//! The linker puts their symbols next to each other. Each name's slot is computed once; concurrent threads
//! compute and write the same values.

use std::{
    ffi::c_char,
    slice,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

use crate::interpose::symbol::{Name, Symbol};

/// Four times the number of functions, so that most other names hit an empty slot at once.
const PLACES: usize = 2048;

/// Longer names are not in the table.
const LONGEST: usize = 63;

/// The number of each slot's symbol, from 1; 0 for an empty slot.
static TABLE: [AtomicU16; PLACES] = [const { AtomicU16::new(0) }; PLACES];

// The linker's names for the section's begin and end, hidden from the rest of the process.
std::arch::global_asm!(".hidden __start_xpu_top_symbols", ".hidden __stop_xpu_top_symbols");

unsafe extern "C" {
    #[link_name = "__start_xpu_top_symbols"]
    static FIRST: [u64; 0];
    #[link_name = "__stop_xpu_top_symbols"]
    static END: [u64; 0];
}

/// All interposed functions.
pub(super) fn all() -> &'static [Symbol] {
    let (first, end) = ((&raw const FIRST).cast::<Symbol>(), (&raw const END).cast::<Symbol>());
    let count = (end.addr() - first.addr()) / size_of::<Symbol>();
    // SAFETY: the section has such statics and nothing else, one after another without gaps, because their
    // size is a multiple of their alignment.
    unsafe { slice::from_raw_parts(first, count) }
}

pub(super) fn make() {
    for (number, symbol) in (1_u16..).zip(all()) {
        // At least one slot stays empty, so that a search ends.
        if usize::from(number) >= PLACES {
            return;
        }
        let taken = |place: &usize| !matches!(TABLE[*place].load(Relaxed), it if it == 0 || it == number);
        if let Some(place) = places(symbol.looked_up().hash).find(|place| !taken(place)) {
            TABLE[place].store(number, Relaxed);
        }
    }
}

/// The possible slots of a name with this hash.
fn places(hash: u32) -> impl Iterator<Item = usize> {
    (0..PLACES).map(move |distance| (hash as usize + distance) % PLACES)
}

/// # Safety
/// The name is a string, or NULL.
#[inline]
pub(super) unsafe fn find(name: *const c_char) -> Option<&'static Symbol> {
    let name = name.cast::<u8>();
    if name.is_null() {
        return None;
    }
    // SAFETY: a byte is read if the one before it does not end the string.
    let is_candidate = unsafe {
        matches!(
            (*name, if *name == 0 { 0 } else { *name.add(1) }),
            (b'c', b'u') | (b'n', b'c') | (b'_', b'_')
        )
    };
    if !is_candidate {
        return None;
    }
    let (mut hash, mut length) = (Name::EMPTY, 0);
    loop {
        // SAFETY: as above.
        match unsafe { *name.add(length) } {
            0 => break,
            _ if length == LONGEST => return None,
            byte => hash = Name::step(hash, byte),
        }
        length += 1;
    }
    // SAFETY: this many bytes were read, and the NUL after them.
    let text = unsafe { slice::from_raw_parts(name, length) };
    for place in places(hash) {
        let number = usize::from(TABLE[place].load(Relaxed));
        let symbol = all().get(number.checked_sub(1)?)?;
        if symbol.looked_up().hash == hash && symbol.name().to_bytes() == text {
            return Some(symbol);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_found_by_its_name_and_no_other() {
        make();
        make();
        // The linker drops symbols that a test does not use.
        assert!(!all().is_empty() && all().len() < PLACES / 3, "{} of {PLACES}", all().len());
        // Other tests add symbols of the C library.
        for symbol in all().iter().filter(|symbol| symbol.name().to_bytes().starts_with(b"cu")) {
            // SAFETY: names are strings.
            let found = unsafe { find(symbol.name().as_ptr()) };
            assert!(found.is_some_and(|found| std::ptr::eq(found, symbol)), "{:?}", symbol.name());
            assert!(symbol.name().count_bytes() <= LONGEST);
        }
        for name in
            [c"", c"c", c"cu", c"n", c"cuLaunchKernelE", c"cuLaunchKernelExx", c"ncclAllReduceConfigs"]
        {
            // SAFETY: as above.
            assert!(unsafe { find(name.as_ptr()) }.is_none(), "{name:?}");
        }
        // SAFETY: NULL is allowed.
        assert!(unsafe { find(std::ptr::null()) }.is_none());
    }
}
