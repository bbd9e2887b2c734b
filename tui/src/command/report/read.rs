//! A capture from its file.

use std::path::Path;

use xpu_shared::{
    capture::Capture,
    codec,
    recording::{Kind as BlockKind, Recording},
};

use crate::args::UsageError;

/// What a file holds of a capture. What of it could not be read is told, and the rest is gone on with.
pub(in crate::command) fn read(path: &Path) -> Result<Capture, UsageError> {
    let wrong = |why: String| UsageError::Value(format!("cannot read {}: {why}", path.display()));
    let mut recording = Recording::open_file(path).map_err(|error| wrong(error.to_string()))?;
    let (mut capture, mut unread) = (Capture::default(), 0_u64);
    for entry in recording.entries().to_vec() {
        if entry.kind != BlockKind::Overview {
            continue;
        }
        let Some(block) = recording.block(&entry).map_err(|error| wrong(error.to_string()))? else {
            continue;
        };
        for record in block.records() {
            match codec::decode(record.frame) {
                Ok(frame) => capture.take(&frame),
                Err(_) => unread += 1,
            }
        }
    }
    if capture.is_empty() {
        let why = "it is a recording, and no capture is in it; `xpu-top capture -o FILE` makes one";
        return Err(wrong(why.to_owned()));
    }
    if unread > 0 {
        eprintln!("xpu-top: {}: {unread} frames in it are of another version of xpu-top", path.display());
    }
    for damage in recording.damage() {
        eprintln!("xpu-top: {}: {damage}", path.display());
    }
    Ok(capture)
}
