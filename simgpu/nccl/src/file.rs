//! The file through which ranks map the same memory. It has a name only until every rank has mapped it.
//!
//! A rank holds a shared lock on the file while the name exists. A name without a lock was left by ranks that
//! were killed while they joined, and the next job removes it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use crate::key::Key;

const PREFIX: &str = "simgpu-nccl-";

#[derive(Debug)]
pub(crate) struct Named {
    path: PathBuf,
    /// Holds the shared lock.
    file: File,
}

impl Named {
    /// Opens the communicator's file, or creates it with `bytes` bytes.
    pub(crate) fn open(key: Key, bytes: u64) -> io::Result<Self> {
        let path = directory().join(format!("{PREFIX}{key}"));
        loop {
            let file = options().create(true).truncate(false).open(&path)?;
            lock(&file, libc::LOCK_SH)?;
            let found = file.metadata()?;
            // Another rank removed the name between this rank's open and its lock.
            if found.nlink() == 0 {
                continue;
            }
            if found.len() != 0 && found.len() != bytes {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "ranks disagree on their number"));
            }
            file.set_len(bytes)?;
            return Ok(Self { path, file });
        }
    }

    pub(crate) fn map(&self, bytes: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing of this process.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { start, bytes })
    }

    /// Removes the name. The memory exists as long as a process has it mapped.
    pub(crate) fn unlink(&self) {
        // Another rank may have removed it first.
        let _ = fs::remove_file(&self.path);
    }
}

/// Shared memory, which is zero at first.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: what is placed in it (`at`) consists of atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The `T` at this offset.
    ///
    /// # Safety
    /// `T` must consist of atomics only, and every process must place the same `T` there.
    pub(crate) unsafe fn at<T>(&self, offset: usize) -> &T {
        let end = offset.checked_add(size_of::<T>());
        assert!(end.is_some_and(|end| end <= self.bytes) && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping and aligned (asserted; the mapping starts on a page). Atomics may have
        // any bytes, and others may write them while the reference exists.
        unsafe { self.start.add(offset).cast::<T>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this rank's own mapping, and references into it cannot outlive `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Removes names whose makers have ended. Other users' files cannot be opened and stay.
pub(crate) fn sweep() {
    for entry in fs::read_dir(directory()).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(file) = options().open(entry.path()) else { continue };
        if lock(&file, libc::LOCK_EX | libc::LOCK_NB).is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn directory() -> PathBuf {
    std::env::var_os("SIMGPU_SHM_DIR").map_or_else(|| Path::new("/dev/shm").to_owned(), PathBuf::from)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

fn lock(file: &File, how: i32) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open as long as `file` is.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
