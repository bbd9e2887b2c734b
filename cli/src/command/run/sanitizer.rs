//! Programs with `AddressSanitizer`. Its runtime ends a program at once, in words of its own, where a preloaded library
//! stands before it.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    elf::{DT_NEEDED, FileHeader64},
    read::{ReadCache, ReadRef, elf::ElfFile},
};

/// Interpreters of interpreters the kernel goes through (execve(2)).
const INTERPRETERS: usize = 4;

/// Longest first line the kernel reads of a script.
const LONGEST_LINE: u64 = 256;

/// The runtime of gcc's or clang's `AddressSanitizer`, by its file's name.
pub(super) fn is_runtime(file: &OsStr) -> bool {
    let name = Path::new(file).file_name().unwrap_or(file).as_bytes();
    name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan")
}

/// The runtime that must be loaded first for this program, if it is not on the list. One that is linked into the program
/// asks for nothing. What a program starts is not looked at.
pub(super) fn missing<'a>(program: &OsStr, mut preloaded: impl Iterator<Item = &'a OsStr>) -> Option<String> {
    if preloaded.any(is_runtime) {
        return None;
    }
    let mut file = find(program)?;
    for _ in 0..INTERPRETERS {
        match interpreter(&file) {
            Some(next) => file = next,
            None => break,
        }
    }
    needed(&file)?.into_iter().find(|name| is_runtime(name))?.into_string().ok()
}

/// As the shell finds it.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH")?;
    let runs = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(runs)
}

/// What runs a script: the program behind `#!`, or what `env` is to find.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut begin = Vec::new();
    File::open(file).ok()?.take(LONGEST_LINE).read_to_end(&mut begin).ok()?;
    let line = begin.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let first = words.next()?;
    if Path::new(first).file_name() != Some(OsStr::new("env")) {
        return Some(PathBuf::from(first));
    }
    let is_program = |word: &&OsStr| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    find(words.find(is_program)?)
}

/// The libraries a program of this kind of machine names itself.
fn needed(file: &Path) -> Option<Vec<OsString>> {
    let cache = ReadCache::new(File::open(file).ok()?);
    names(&cache).ok()
}

fn names<'data, R: ReadRef<'data>>(data: R) -> object::Result<Vec<OsString>> {
    let elf = ElfFile::<FileHeader64<Endianness>, R>::parse(data)?;
    let table = elf.elf_section_table().dynamic_table(elf.endian(), data)?;
    let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
    Ok(needed.filter_map(|entry| Some(OsStr::from_bytes(table.string(entry).ok()?).to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("xpu-top-asan-{}-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn script(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_a_program_needs_is_read_of_its_file() {
        let names = needed(Path::new("/proc/self/exe")).unwrap();
        assert!(names.iter().any(|name| name == "libc.so.6"), "{names:?}");
        let folder = Folder::new("needs");
        for garbage in ["", "\u{7f}ELF", "#!/bin/sh\n", "text"] {
            assert_eq!(needed(&folder.script("garbage", garbage)), None, "{garbage:?}");
        }
        assert_eq!(needed(Path::new("/nowhere")), None);
        assert_eq!(missing(OsStr::new("/proc/self/exe"), std::iter::empty()), None);
    }

    #[test]
    fn a_script_is_followed_to_what_runs_it() {
        let folder = Folder::new("script");
        let runs = |text: &str| interpreter(&folder.script("script", text));
        assert_eq!(runs("#!/bin/sh -e\nexit"), Some("/bin/sh".into()));
        assert_eq!(runs("#! /bin/sh\n"), Some("/bin/sh".into()));
        let shell = find(OsStr::new("sh"));
        assert!(shell.is_some());
        assert_eq!(runs("#!/usr/bin/env sh\n"), shell);
        assert_eq!(runs("#!/usr/bin/env -S A=1 sh -e\n"), shell);
        for text in ["", "#!", "#!\n", "# no\n", "#!/usr/bin/env\n", "#!/usr/bin/env no-such-program\n"] {
            assert_eq!(runs(text), None, "{text:?}");
        }
    }

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
}
