//! The file that a command runs, with its linked libraries and its loader. Programs that it starts itself are
//! not examined.

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
    read::{
        ReadCache, ReadRef,
        elf::{ElfFile, FileHeader as _, ProgramHeader as _},
    },
};

/// Nested interpreters that the kernel follows (execve(2)).
const INTERPRETERS: usize = 4;

/// Longest first line of a script that the kernel reads.
const LONGEST_LINE: u64 = 256;

/// A program of this kind of machine that is not linked statically.
#[derive(Debug)]
pub(super) struct Executable {
    /// The libraries that it links directly.
    pub(super) needed: Vec<OsString>,
    loader: PathBuf,
}

impl Executable {
    /// For a script, its interpreter.
    pub(super) fn of(program: &OsStr) -> Option<Self> {
        let mut file = find(program)?;
        for _ in 0..INTERPRETERS {
            match interpreter(&file) {
                Some(next) => file = next,
                None => break,
            }
        }
        Self::read(&file)
    }

    fn read(file: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(file).ok()?);
        Self::parse(&cache).ok()?
    }

    fn parse<'data, R: ReadRef<'data>>(data: R) -> object::Result<Option<Self>> {
        let elf = ElfFile::<FileHeader64<Endianness>, R>::parse(data)?;
        let endian = elf.endian();
        let mut loader = None;
        for part in elf.elf_header().program_headers(endian, data)? {
            loader = loader.or(part.interpreter(endian, data)?);
        }
        let Some(loader) = loader else { return Ok(None) };
        let table = elf.elf_section_table().dynamic_table(endian, data)?;
        let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
        let needed = needed.filter_map(|entry| Some(OsStr::from_bytes(table.string(entry).ok()?).to_owned()));
        Ok(Some(Self { needed: needed.collect(), loader: PathBuf::from(OsStr::from_bytes(loader)) }))
    }

    /// Whether it is linked against musl, whose loader ignores the hook.
    pub(super) fn is_of_musl(&self) -> bool {
        let name = self.loader.file_name().unwrap_or_default();
        name.as_bytes().starts_with(b"ld-musl-")
    }
}

/// Finds the program as a shell does.
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

/// The interpreter of a script: the program behind `#!`, or the one that `env` looks up.
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
    fn the_needs_of_a_program_are_read_from_its_file() {
        let own = Executable::of(OsStr::new("/proc/self/exe")).unwrap();
        assert!(own.needed.iter().any(|name| name == "libc.so.6"), "{own:?}");
        assert!(!own.is_of_musl(), "{own:?}");
        let folder = Folder::new("needs");
        for garbage in ["", "\u{7f}ELF", "#!/bin/sh\n", "text"] {
            assert!(Executable::read(&folder.script("garbage", garbage)).is_none(), "{garbage:?}");
        }
        assert!(Executable::read(Path::new("/nowhere")).is_none());
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
    fn a_loader_of_musl_is_known_by_its_name() {
        for (loader, is) in [
            ("/lib/ld-musl-x86_64.so.1", true),
            ("/nix/store/x-musl-1.2.5/lib/ld-musl-aarch64.so.1", true),
            ("/lib64/ld-linux-x86-64.so.2", false),
            ("/ld-musl-x86_64.so.1/ld.so", false),
        ] {
            let executable = Executable { needed: Vec::new(), loader: PathBuf::from(loader) };
            assert_eq!(executable.is_of_musl(), is, "{loader}");
        }
    }
}
