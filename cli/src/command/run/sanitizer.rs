//! Programs with `AddressSanitizer`. Its runtime ends a program at once, with its own message, if another
//! library is preloaded before it.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

/// The runtime of gcc's or clang's `AddressSanitizer`, by its file's name.
pub(super) fn is_runtime(file: &OsStr) -> bool {
    let name = Path::new(file).file_name().unwrap_or(file).as_bytes();
    name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan")
}

/// The runtime that must be loaded first for a program with these libraries, if it is not on the list. A
/// statically linked one needs nothing.
pub(super) fn missing<'a>(
    needed: &[OsString],
    mut preloaded: impl Iterator<Item = &'a OsStr>,
) -> Option<String> {
    if preloaded.any(is_runtime) {
        return None;
    }
    needed.iter().find(|name| is_runtime(name))?.clone().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_known_by_its_name() {
        for (file, is) in [
            ("libasan.so.8", true),
            ("/usr/lib/gcc/x86_64-linux-gnu/12/libasan.so", true),
            ("libclang_rt.asan-x86_64.so", true),
            ("/libasan.so.d/libc.so", false),
            ("libubsan.so.1", false),
        ] {
            assert_eq!(is_runtime(OsStr::new(file)), is, "{file}");
        }
    }

    #[test]
    fn a_listed_sanitizer_is_not_missing() {
        let needed = [OsString::from("libc.so.6"), OsString::from("libasan.so.8")];
        assert_eq!(missing(&needed, std::iter::empty()).as_deref(), Some("libasan.so.8"));
        assert_eq!(missing(&needed, [OsStr::new("/usr/lib/libasan.so.8")].into_iter()), None);
        assert_eq!(missing(&needed[..1], std::iter::empty()), None);
    }
}
