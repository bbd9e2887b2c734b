//! A recording whose state at one moment the pages show.

use std::{
    io,
    path::{Path, PathBuf},
};

use xpu_recording::{Kind, RecordingError};
use xpu_wire::{
    codec,
    frame::{CaptureSheet, CaptureWindow, Frame},
    unit::Moment,
};

/// All frames of a recording, which ends at the moment that is shown.
#[derive(Debug)]
pub struct Recording {
    pub(super) frames: Vec<Frame>,
    pub(super) at: Moment,
    /// Where the recording itself is.
    pub(crate) path: PathBuf,
}

impl Recording {
    /// Reads all of `from`, a copy of the recording at `path` without what comes after the moment.
    ///
    /// # Errors
    /// If the copy cannot be read.
    pub fn open(from: &Path, at: Moment, path: PathBuf) -> io::Result<Self> {
        let mut recording = xpu_recording::Recording::open_file(from).map_err(|error| match error {
            RecordingError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        })?;
        let entries: Vec<_> = recording.entries().to_vec();
        let mut frames: Vec<(Moment, Frame)> = Vec::new();
        for entry in entries.iter().filter(|entry| matches!(entry.kind, Kind::Overview | Kind::Detail)) {
            let Some(block) = recording.block(entry)? else { continue };
            let decoded = block.records().filter_map(|one| Some((one.at, codec::decode(one.frame).ok()?)));
            frames.extend(decoded);
        }
        frames.sort_by_key(|(arrived, _)| *arrived);
        Ok(Self { frames: frames.into_iter().map(|(_, frame)| frame).collect(), at, path })
    }

    /// The request of the captured steps, if there are some.
    pub(crate) fn capture(&self) -> Option<(&CaptureSheet, Option<CaptureWindow>)> {
        self.frames.iter().rev().find_map(|frame| frame.body.as_capture_sheet())
    }
}
