//! Opens what can be replayed: a recording, a capture, or the folder that a collector keeps of a hang.

use std::path::{Path, PathBuf};

use xpu_recording::{FrameCursor, Recording, RecordingError};

use crate::kept;

/// A file that cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[error("cannot replay {path}: {error}", path = path.display())]
pub struct ReplayError {
    path: PathBuf,
    error: RecordingError,
}

/// # Errors
/// Fails if the file cannot be read, or holds nothing to show.
pub fn open(path: &Path) -> Result<FrameCursor, ReplayError> {
    let opened = if path.is_dir() { kept::open(path) } else { Recording::open_file(path) };
    opened.map(FrameCursor::new).map_err(|error| ReplayError { path: path.to_owned(), error })
}
