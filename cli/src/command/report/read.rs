//! A capture from its file.

use std::path::Path;

use xpu_analysis::{capture::Capture, file};

use crate::args::UsageError;

/// Reads the capture in a file. Reports unreadable parts, and continues with the rest.
pub(in crate::command) fn read(path: &Path) -> Result<Capture, UsageError> {
    let wrong = |why: String| UsageError::Value(format!("cannot read {}: {why}", path.display()));
    let (capture, complaints) = file::open(path).map_err(wrong)?;
    for complaint in complaints {
        eprintln!("xpu-top: {}: {complaint}", path.display());
    }
    Ok(capture)
}
