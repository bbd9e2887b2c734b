//! Finds the version of the NCCL that a process has loaded, from a text in the library: some versions must
//! not be asked.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
};

use object::{Object as _, ObjectSection as _, read::ReadCache};
use xpu_wire::id::Pid;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) patch: u32,
}

/// `2.28.9`
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The begin of NCCL's version text: `NCCL version 2.28.9+cuda13.0`.
const BEGIN: &[u8] = b"NCCL version ";

/// Largest part of a library's constants that is read, in bytes.
const MOST: u64 = 256 << 20;

/// The version of NCCL in these processes. `None` if no library of that name is loaded (NCCL may be linked
/// into another library), or none has the text.
pub(super) fn version(pids: &[Pid]) -> Option<Version> {
    pids.iter().find_map(|&pid| libraries(pid).iter().find_map(|path| of_file(path)))
}

/// Paths of the libraries as seen from the process, which may be in a container.
fn libraries(pid: Pid) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let names = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_nccl = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libnccl"));
    let paths: BTreeSet<&str> = names.filter(is_nccl).collect();
    paths.into_iter().map(|path| PathBuf::from(format!("/proc/{pid}/root{path}"))).collect()
}

fn of_file(path: &Path) -> Option<Version> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let constants = file.section_by_name(".rodata").filter(|section| section.size() <= MOST)?;
    of_text(constants.data().ok()?)
}

fn of_text(text: &[u8]) -> Option<Version> {
    memchr::memmem::find_iter(text, BEGIN).find_map(|at| {
        let rest = &text[at + BEGIN.len()..];
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let mut numbers = std::str::from_utf8(&rest[..end]).ok()?.split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Version { major: next()?, minor: next()?, patch: next()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_constants_of_the_library() {
        let line = b"\0NCCL version mismatch\0NCCL version %d.%d\0NCCL version 2.26.3+cuda12.4\0";
        assert_eq!(of_text(line), Some(Version { major: 2, minor: 26, patch: 3 }));
        assert_eq!(of_text(b"NCCL version 2.26"), None);
        // This program contains the text above.
        let own = std::env::current_exe().unwrap();
        assert_eq!(of_file(&own), Some(Version { major: 2, minor: 26, patch: 3 }), "{line:?}");
        assert_eq!(of_file(Path::new("/proc/self/status")), None);
        assert_eq!(version(&[Pid(std::process::id())]), None, "no NCCL is loaded here");
    }
}
