//! The C library's own `dl_iterate_phdr`.
//!
//! The program may define its own. An early call of the program's may fail: `ThreadSanitizer` finds the C
//! library's function by `dlsym`, and the hook's `dlsym` walks the loaded objects. The same holds for a
//! program that keeps its own list and looks up the next definition.

use std::{
    ffi::{c_int, c_void},
    mem::transmute,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{Name, Object};

type Walk = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;
type Callback = Option<unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int>;

/// Number of pages before a function of the C library that are searched for the library's header. The library
/// has about 500 pages.
const PAGES: usize = 1024;
/// The smallest page size.
const PAGE: usize = 4096;

static REAL: AtomicUsize = AtomicUsize::new(0);

/// Like `dl_iterate_phdr(3)`.
///
/// # Safety
/// The callback may be called with `data`.
pub(crate) unsafe fn walk(callback: Callback, data: *mut c_void) -> c_int {
    let at = match REAL.load(Relaxed) {
        0 => find(),
        at => at,
    };
    // SAFETY: the function of this name has this signature; the caller's promise.
    unsafe { transmute::<usize, Walk>(at)(callback, data) }
}

#[cold]
fn find() -> usize {
    let own = header_before(libc::gnu_get_libc_version as *const () as usize).and_then(|header| {
        // SAFETY: the C library is loaded there, and stays loaded.
        unsafe { object_at(header) }?.find(&Name::new(c"dl_iterate_phdr"))
    });
    let at = own.unwrap_or(libc::dl_iterate_phdr as *const () as usize);
    REAL.store(at, Relaxed);
    at
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
    fn the_walk_equals_the_c_librarys() {
        // SAFETY: the name is NUL-terminated.
        let truth = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dl_iterate_phdr".as_ptr()) };
        let header = header_before(libc::gnu_get_libc_version as *const () as usize).unwrap();
        // SAFETY: the C library is loaded there.
        let object = unsafe { object_at(header) }.unwrap();
        assert!(object.span.contains(truth.addr()), "{:x?}, {truth:?}", object.span);
        assert_eq!(find(), truth.addr());
    }
}
