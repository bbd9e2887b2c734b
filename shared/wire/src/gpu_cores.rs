//! The files of GPU core dumps in the runtime directory. They have 20 to 200 MB each, often in memory (tmpfs).

use std::{
    ffi::CString,
    fs::{self, DirEntry},
    mem,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
    time::{Duration, SystemTime},
};

use crate::{id::Pid, process};

/// Prefixes of the names that `xpu-top run --gpu-core` gives to the pipe and the file of a process's GPU core
/// dump. The process id follows.
pub const PIPE: &str = "gpu-pipe.";
pub const FILE: &str = "gpu-core.";

/// Largest size of a file.
pub const LARGEST: u64 = 200_000_000;

/// Free bytes of the file system with this folder, for this user.
pub fn free(folder: &Path) -> Option<u64> {
    let name = CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: all zeros is a valid value of this struct of integers.
    let mut found: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the name ends with NUL, and `found` outlives the call.
    let rc = unsafe { libc::statvfs(name.as_ptr(), &raw mut found) };
    (rc == 0).then(|| found.f_bavail * found.f_frsize)
}

/// Age at which a file is old. A collector reads a core dump within some seconds of the end of its process.
pub const UNREAD: Duration = Duration::from_mins(1);

/// Removes this user's entries with one of these prefixes whose processes have ended, except recent ones that a
/// collector may still read.
pub fn remove_old(folder: &Path, prefixes: &[&str], now: SystemTime) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_old(&entry, prefixes, now) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_old(entry: &DirEntry, prefixes: &[&str], now: SystemTime) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let Some(number) = prefixes.iter().find_map(|begin| name.strip_prefix(begin)?.parse().ok()) else {
        return false;
    };
    let Ok(meta) = entry.metadata() else { return false };
    let is_new = meta.modified().is_ok_and(|at| now.duration_since(at).map_or(true, |age| age < UNREAD));
    // SAFETY: getuid has no precondition.
    let is_ours = meta.uid() == unsafe { libc::getuid() };
    is_ours && !is_new && process::state(Pid(number)).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_ended_processes_are_removed_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("xpu-top-gpu-cores-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let [gone, own] = [u32::MAX - 1, std::process::id()];
        let names =
            [format!("{PIPE}{gone}"), format!("{FILE}{gone}"), format!("{FILE}{own}"), "notes".to_owned()];
        for name in &names {
            fs::write(folder.join(name), "").expect("written");
        }
        let stays = || names.each_ref().map(|name| folder.join(name).exists());
        let (now, later) = (SystemTime::now(), SystemTime::now() + UNREAD);
        remove_old(&folder, &[PIPE, FILE], now);
        assert_eq!(stays(), [true; 4], "a collector may be about to read them");
        remove_old(&folder, &[FILE], later);
        assert_eq!(stays(), [true, false, true, true], "only files");
        remove_old(&folder, &[PIPE, FILE], later);
        assert_eq!(stays(), [false, false, true, true]);
        assert!(free(&folder).is_some_and(|bytes| bytes > 0));
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(free(&folder), None);
    }
}
