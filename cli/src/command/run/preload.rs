//! The libraries that the loader loads before the program's own.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use super::sanitizer;

/// What the loader takes for the end of a path (ld.so(8)).
fn separates(byte: u8) -> bool {
    byte == b':' || byte.is_ascii_whitespace()
}

/// The files of a list.
pub(super) fn listed(list: &OsStr) -> impl Iterator<Item = &OsStr> {
    list.as_bytes().split(|&byte| separates(byte)).filter(|file| !file.is_empty()).map(OsStr::from_bytes)
}

/// The hook, then what was to be loaded before; a sanitizer's runtime ends a program in which it is not the first.
pub(super) fn with(hook: &Path, before: &OsStr) -> anyhow::Result<OsString> {
    let hook = hook.as_os_str();
    if hook.as_bytes().iter().any(|&byte| separates(byte)) {
        anyhow::bail!(
            "LD_PRELOAD cannot hold the path {}: it has a space or a colon; install xpu-top elsewhere",
            hook.to_string_lossy()
        );
    }
    let (first, others): (Vec<_>, Vec<_>) =
        listed(before).filter(|&file| file != hook).partition(|file| sanitizer::is_runtime(file));
    let all: Vec<_> = first.into_iter().chain([hook]).chain(others).collect();
    Ok(all.join(OsStr::new(":")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays_and_the_hook_comes_once() {
        let list = |before: &str| {
            with(Path::new("/x/libxpu_hook.so"), OsStr::new(before)).unwrap().into_string().unwrap()
        };
        assert_eq!(list(""), "/x/libxpu_hook.so");
        assert_eq!(list("/lib/libjemalloc.so"), "/x/libxpu_hook.so:/lib/libjemalloc.so");
        assert_eq!(list("a.so b.so:/x/libxpu_hook.so"), "/x/libxpu_hook.so:a.so:b.so");
    }

    #[test]
    fn a_sanitizer_stays_the_first() {
        for runtime in ["libasan.so.8", "/usr/lib/libasan.so", "/l/libclang_rt.asan-x86_64.so"] {
            let list = with(Path::new("/x/libxpu_hook.so"), OsStr::new(&format!("a.so:{runtime} b.so")));
            assert_eq!(list.unwrap(), OsStr::new(&format!("{runtime}:/x/libxpu_hook.so:a.so:b.so")));
        }
    }

    #[test]
    fn a_path_that_would_be_split_is_refused() {
        let refused = with(Path::new("/my files/libxpu_hook.so"), OsStr::new("")).unwrap_err().to_string();
        assert!(refused.contains("install xpu-top elsewhere"), "{refused}");
    }
}
