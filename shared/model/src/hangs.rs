//! The folders in which a collector saves jobs that hung, or whose rank failed: one folder for each.
//! `--replay` reads a folder even after the job and the collector are gone.

use std::{ffi::OsString, path::PathBuf};

use crate::baseline;

/// The recording in such a folder.
pub const RECORDING: &str = "recording.xpurec";

/// The status of the job, as `xpu-top status --json` has it.
pub const STATUS: &str = "status.json";

/// The unchanged answer of NCCL's RAS service; absent if there was none.
pub const RAS: &str = "ras.json";

/// The folders' place: `~/.local/state/xpu-top/hangs`, by these variables.
pub fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    Some(baseline::folder(variable)?.with_file_name("hangs"))
}
