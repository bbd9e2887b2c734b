//! Functions of the C library itself, for names that ISO C leaves to programs, and that are not system calls.
//!
//! A program, or another preload, may define a function of such a name: a clock that stands still or takes a
//! lock of the program's. The library's own function is found in its symbol table, without the loader.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{Name, Object};

/// Number of pages before a function of the C library that are searched for the library's header. The library
/// has about 500 pages.
const PAGES: usize = 1024;
/// The smallest page size.
const PAGE: usize = 4096;

/// A function of the C library.
pub(crate) struct Own {
    name: Name<'static>,
    /// 0 before the first use.
    at: AtomicUsize,
}

impl Own {
    pub(crate) const fn new(name: &'static std::ffi::CStr) -> Self {
        Self { name: Name::new(name), at: AtomicUsize::new(0) }
    }

    /// Its address; `otherwise` if the library's table does not have it.
    #[inline]
    pub(crate) fn find(&self, otherwise: usize) -> usize {
        match self.at.load(Relaxed) {
            0 => self.look_up(otherwise),
            at => at,
        }
    }

    #[cold]
    fn look_up(&self, otherwise: usize) -> usize {
        let at = own(&self.name).unwrap_or(otherwise);
        self.at.store(at, Relaxed);
        at
    }
}

fn own(name: &Name<'_>) -> Option<usize> {
    let header = header_before(libc::gnu_get_libc_version as *const () as usize)?;
    // SAFETY: the C library is loaded there, and stays loaded.
    unsafe { object_at(header) }?.find(name)
}

/// The address of the header of the object that contains this function.
fn header_before(function: usize) -> Option<usize> {
    let page = function & !(PAGE - 1);
    (0..PAGES).map(|count| page.wrapping_sub(count * PAGE)).find(|&at| {
        // SAFETY: an object is mapped without gaps from its header to its functions.
        unsafe { *std::ptr::with_exposed_provenance::<[u8; 4]>(at) == *b"\x7fELF" }
    })
}

/// # Safety
/// An object is loaded there, from its header on.
unsafe fn object_at(header: usize) -> Option<Object> {
    // SAFETY: the caller's promise; the header has the place of the list of parts, which is in the first
    // pages.
    unsafe {
        let elf = &*std::ptr::with_exposed_provenance::<libc::Elf64_Ehdr>(header);
        let parts = std::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(header + elf.e_phoff as usize);
        let first = (0..usize::from(elf.e_phnum))
            .map(|place| &*parts.add(place))
            .find(|part| part.p_type == libc::PT_LOAD && part.p_offset == 0)?;
        let mut info = std::mem::zeroed::<libc::dl_phdr_info>();
        info.dlpi_addr = header.wrapping_sub(first.p_vaddr as usize) as u64;
        info.dlpi_name = c"".as_ptr();
        (info.dlpi_phdr, info.dlpi_phnum) = (parts, elf.e_phnum);
        Object::of(&info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_the_c_librarys_own() {
        for name in [c"dl_iterate_phdr", c"clock_gettime", c"on_exit"] {
            // SAFETY: the name is NUL-terminated.
            let truth = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(own(&Name::new(name)), Some(truth.addr()), "{name:?}");
        }
        assert_eq!(Own::new(c"xpu_top_no_library_has_this").find(7), 7);
    }
}
