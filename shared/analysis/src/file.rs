//! Reads a capture from its file.

use std::path::Path;

use xpu_recording::{Kind as BlockKind, Recording};
use xpu_wire::codec;

use crate::capture::Capture;

/// Why a recording is no capture.
pub const NO_CAPTURE: &str = "it is a recording without a capture; `xpu-top capture -o FILE` makes one";

/// The capture in a file, and the unreadable parts of the file.
pub fn open(path: &Path) -> Result<(Capture, Vec<String>), String> {
    let mut recording = Recording::open_file(path).map_err(|error| error.to_string())?;
    let (mut capture, mut unread) = (Capture::default(), 0_u64);
    for entry in recording.entries().to_vec() {
        if entry.kind != BlockKind::Overview {
            continue;
        }
        let Some(block) = recording.block(&entry).map_err(|error| error.to_string())? else {
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
        return Err(NO_CAPTURE.to_owned());
    }
    let unread = (unread > 0).then(|| format!("{unread} frames are of another xpu-top version"));
    let damage = recording.damage().iter().map(ToString::to_string);
    Ok((capture, unread.into_iter().chain(damage).collect()))
}
