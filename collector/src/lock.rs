//! One collector per user, host and base port: only the holder of the lock serves.
//!
//! The lock is on an open file, so the kernel releases it when the process ends for any reason.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

/// The lock, held as long as this lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock without waiting.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let at = |error| LockError::Unusable { path: path.to_owned(), error };
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(at)?;
        // SAFETY: the descriptor is open for the length of the call; flock has no other precondition.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Self { file });
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Err(LockError::Held),
            error => Err(at(error)),
        }
    }

    /// Writes a note for processes that find the lock held.
    pub fn note(&self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another collector of this user serves here already")]
    Held,
    #[error("cannot lock {path}: {error}; set XPU_TOP_RUNTIME_DIR to a local directory you own", path = path.display())]
    Unusable { path: PathBuf, error: io::Error },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_holds_the_lock_and_it_is_released() {
        let path = std::env::temp_dir().join(format!("xpu-top-lock-{}", std::process::id()));
        let first = Lock::take(&path).unwrap();
        assert!(matches!(Lock::take(&path), Err(LockError::Held)));
        drop(first);
        Lock::take(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
