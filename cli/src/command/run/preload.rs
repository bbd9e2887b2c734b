//! The libraries that the loader loads before the program's own.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use super::sanitizer;

/// Characters that end a path for the loader (ld.so(8)).
fn separates(byte: u8) -> bool {
    byte == b':' || byte.is_ascii_whitespace()
}

/// The files of a list.
pub(super) fn listed(list: &OsStr) -> impl Iterator<Item = &OsStr> {
    list.as_bytes().split(|&byte| separates(byte)).filter(|file| !file.is_empty()).map(OsStr::from_bytes)
}

/// Number of steps up from a program's folder to the root. A program in a deeper folder starts without the
/// hook.
const DEEPEST: usize = 40;

/// A path that only glibc's loader resolves. `$ORIGIN` is the folder of the starting program (ld.so(8)), and
/// the steps up from there end at the root. musl's loader does not know this word, and ignores a preload that
/// it cannot open. If it opened a preload that needs glibc, the program would end.
fn for_glibc(file: &Path) -> OsString {
    let mut path = OsString::from("$ORIGIN");
    path.push("/..".repeat(DEEPEST));
    path.push(file);
    path
}

/// The hook, then the previous list. A sanitizer's runtime stays first, because it ends a program in which it
/// is not first.
pub(super) fn with(hook: &Path, before: &OsStr) -> anyhow::Result<OsString> {
    if hook.as_os_str().as_bytes().iter().any(|&byte| separates(byte)) {
        anyhow::bail!(
            "LD_PRELOAD cannot hold the path {}: it has a space or a colon; install xpu-top elsewhere",
            hook.display()
        );
    }
    let written = for_glibc(hook);
    let (first, others): (Vec<_>, Vec<_>) = listed(before)
        .filter(|&file| file != hook && file != written)
        .partition(|file| sanitizer::is_runtime(file));
    let all: Vec<_> = first.into_iter().chain([&*written]).chain(others).collect();
    Ok(all.join(OsStr::new(":")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(before: &str) -> String {
        with(Path::new("/x/libxpu_hook.so"), OsStr::new(before)).unwrap().into_string().unwrap()
    }

    /// The list with the hook's plain path.
    fn plain(before: &str) -> String {
        list(before).replace(for_glibc(Path::new("/x/libxpu_hook.so")).to_str().unwrap(), "/x/libxpu_hook.so")
    }

    #[test]
    fn preloaded_libraries_stay_and_the_hook_is_added_once() {
        assert_eq!(plain(""), "/x/libxpu_hook.so");
        assert_eq!(plain("/lib/libjemalloc.so"), "/x/libxpu_hook.so:/lib/libjemalloc.so");
        assert_eq!(plain("a.so b.so:/x/libxpu_hook.so"), "/x/libxpu_hook.so:a.so:b.so");
        assert_eq!(list(&list("a.so")), list("a.so"), "a run within a run");
    }

    #[test]
    fn a_sanitizer_stays_the_first() {
        for runtime in ["libasan.so.8", "/usr/lib/libasan.so", "/l/libclang_rt.asan-x86_64.so"] {
            let list = plain(&format!("a.so:{runtime} b.so"));
            assert_eq!(list, format!("{runtime}:/x/libxpu_hook.so:a.so:b.so"));
        }
    }

    #[test]
    fn only_a_loader_that_knows_the_origin_finds_the_hook() {
        let hook = std::env::current_exe().unwrap();
        let written = for_glibc(&hook).into_string().unwrap();
        assert!(!Path::new(&written).exists(), "musl's loader opens it: {written}");
        for folder in ["/", "/usr/bin", hook.parent().unwrap().to_str().unwrap()] {
            let found = Path::new(&written.replace("$ORIGIN", folder)).canonicalize().unwrap();
            assert_eq!(found, hook.canonicalize().unwrap(), "a program in {folder}");
        }
    }

    #[test]
    fn a_path_that_would_be_split_is_refused() {
        let refused = with(Path::new("/my files/libxpu_hook.so"), OsStr::new("")).unwrap_err().to_string();
        assert!(refused.contains("install xpu-top elsewhere"), "{refused}");
    }
}
