//! The loaded objects, read without the loader's main lock.
//!
//! `dlsym` takes the lock that is held while constructors and destructors of libraries run, clears
//! `dlerror`'s message, and needs a kilobyte of stack. `dl_iterate_phdr` takes a lock that is held only
//! briefly; while it is held, the loaded objects stay mapped.

mod elf;
mod object;
mod own;
mod walk;

use std::{
    ffi::{CStr, c_int, c_void},
    mem::offset_of,
};

pub(crate) use object::Object;
pub(super) use object::Reference;
pub(crate) use own::Own;
pub(crate) use walk::walk;

use super::forks::between_forks;

/// A function's name with its precomputed hash.
#[derive(Debug)]
pub(crate) struct Name<'a> {
    pub(crate) text: &'a CStr,
    pub(crate) hash: u32,
}

impl<'a> Name<'a> {
    pub(crate) const fn new(text: &'a CStr) -> Self {
        let (bytes, mut hash, mut at) = (text.to_bytes(), Self::EMPTY, 0);
        while at < bytes.len() {
            hash = Self::step(hash, bytes[at]);
            at += 1;
        }
        Self { text, hash }
    }

    /// The hash of an empty name.
    pub(crate) const EMPTY: u32 = 5381;

    /// The hash with one more byte.
    #[inline]
    pub(crate) const fn step(hash: u32, byte: u8) -> u32 {
        hash.wrapping_mul(33).wrapping_add(byte as u32)
    }
}

/// Addresses that belong to one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: usize,
    pub(crate) length: usize,
}

impl Span {
    pub(crate) fn contains(self, address: usize) -> bool {
        address.wrapping_sub(self.from) < self.length
    }
}

/// Visits the loaded objects, in load order, until `look` returns `true`.
pub(crate) fn each(mut look: impl FnMut(&Object) -> bool) {
    unsafe extern "C" fn shown<F: FnMut(&Object) -> bool>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        look: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader calls back with the closure it was given, which outlives the call.
        let look = unsafe { &mut *look.cast::<F>() };
        // SAFETY: the loader passes a valid structure of the size it reports.
        let object = unsafe { Object::of(&*info) };
        c_int::from(object.is_some_and(|object| look(&object)))
    }
    fn callback<F: FnMut(&Object) -> bool>(
        _: &F,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        shown::<F>
    }
    let callback = callback(&look);
    between_forks(|| {
        // SAFETY: the callback and what it is given live through the call.
        unsafe { walk(Some(callback), (&raw mut look).cast()) };
    });
}

/// Number of objects unloaded so far.
pub(crate) fn unloaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, size: usize, count: *mut c_void) -> c_int {
        if size >= offset_of!(libc::dl_phdr_info, dlpi_subs) + size_of::<u64>() {
            // SAFETY: the loader passes a structure of the size it reports; the count outlives the call.
            unsafe { *count.cast::<u64>() = (*info).dlpi_subs };
        }
        1
    }
    let mut count = 0_u64;
    between_forks(|| {
        // SAFETY: as in `each`.
        unsafe { walk(Some(first), (&raw mut count).cast()) };
    });
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_c_library_are_where_the_loader_finds_them() {
        for name in [c"sigaction", c"getpagesize", c"qsort"] {
            let (looked, mut found) = (Name::new(name), Vec::new());
            each(|object| {
                found.extend(object.find(&looked));
                false
            });
            // SAFETY: the name is NUL-terminated.
            let truth = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert!(found.contains(&truth.addr()), "{name:?}: {found:x?}, {truth:?}");
        }
    }

    #[test]
    fn versions_required_by_a_program_are_read() {
        let mut wanted = std::ptr::null();
        each(|object| {
            wanted = object.version_wanted(&Name::new(c"dl_iterate_phdr"));
            !wanted.is_null()
        });
        // SAFETY: the string is in this program.
        assert!(unsafe { CStr::from_ptr(wanted) }.to_bytes().starts_with(b"GLIBC_"));
    }

    #[test]
    fn references_have_the_address_that_the_loader_bound() {
        let name = Name::new(c"dl_iterate_phdr");
        let mut to = 0;
        each(|object| {
            object.references(|reference| {
                if reference.name == name.text {
                    to = reference.to;
                    assert_eq!(object.version_index(&name), Some(reference.version));
                }
                to != 0
            });
            to != 0
        });
        // SAFETY: the name is NUL-terminated.
        let truth = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.text.as_ptr()) };
        assert_eq!(to, truth.addr());
    }

    #[test]
    fn a_symbol_of_no_library_is_not_found() {
        let name = Name::new(c"xpu_top_no_library_has_this");
        each(|object| {
            assert!(object.find(&name).is_none());
            false
        });
    }
}
