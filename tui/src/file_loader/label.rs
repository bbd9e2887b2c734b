//! The label of a file, from its header and its end only.

use std::path::Path;

use xpu_recording::{Entry, Kind, Recording, RecordingError, Span};
use xpu_wire::{
    codec,
    frame::{Body, CaptureSheet, CaptureWindow, Frame},
    id::Rank,
    unit::Moment,
};

use super::traces;

/// Blocks that are read: from the start until the kind of file is known, and from the end back until the last
/// sheet is found.
const BLOCKS: usize = 4;

/// The error for a file that is not from xpu-top.
const NONE_OF_OURS: &str = "it is not a recording of xpu-top";

use xpu_client::capture::Extent;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub what: What,
    pub job: String,
    /// Whether it was closed.
    pub closed: bool,
    /// Parts that are damaged or cut off.
    pub damage: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A capture. If the job hung, the steps are the requested ones, which may not have been reached.
    Capture {
        of: Extent,
        ranks: usize,
        missing: usize,
        stalled: bool,
    },
    Recording {
        from: Moment,
        to: Moment,
        hosts: usize,
        ranks: usize,
    },
    /// A folder of traces by PyTorch's profiler; `of` is unknown until they are complete.
    Traces {
        of: Option<String>,
        ranks: usize,
        missing: usize,
    },
}

impl Label {
    /// Whether the file is a capture.
    pub fn is_capture(path: &Path) -> bool {
        matches!(Self::of(path), Ok(Self { what: What::Capture { .. }, .. }))
    }

    pub(super) fn of(path: &Path) -> Result<Self, String> {
        if path.is_dir() {
            return traces::label(path);
        }
        let mut recording = Recording::open_file(path).map_err(|error| match error {
            RecordingError::Foreign => NONE_OF_OURS.to_owned(),
            other => other.to_string(),
        })?;
        let header = recording.header().clone();
        let frames = |entry: &&Entry| entry.kind == Kind::Overview;
        let entries: Vec<Entry> = recording.entries().iter().filter(frames).copied().collect();
        let (mut sheet, mut ranks) = (None, std::collections::BTreeSet::<Rank>::new());
        let mut job = header.job;
        let ends = entries.len().saturating_sub(BLOCKS).max(BLOCKS.min(entries.len()));
        for entry in entries[..BLOCKS.min(entries.len())].iter().chain(&entries[ends..]) {
            let Some(block) = recording.block(entry).map_err(|error| error.to_string())? else { continue };
            for record in block.records() {
                let Ok(Frame { body, .. }) = codec::decode(record.frame) else { continue };
                if let Some((of, window)) = body.as_capture_sheet() {
                    sheet = Some(capture(of, window));
                }
                if let Body::Digest(digest) = body {
                    ranks.extend(digest.ranks.iter().map(|rank| rank.rank));
                    if job.is_empty() {
                        job = digest.job.to_string();
                    }
                }
            }
        }
        let what = sheet.unwrap_or_else(|| {
            let Span { first: from, last: to } = recording.span();
            What::Recording { from, to, hosts: header.hosts.len(), ranks: ranks.len() }
        });
        Ok(Self { what, job, closed: recording.is_closed(), damage: recording.damage().len() })
    }
}

fn capture(sheet: &CaptureSheet, window: Option<CaptureWindow>) -> What {
    What::Capture {
        of: Extent::of(sheet.order, window),
        ranks: sheet.ranks.len(),
        missing: sheet.missing.len(),
        stalled: sheet.stall.is_some(),
    }
}

pub(super) fn is_foreign(label: &Result<Label, String>) -> bool {
    matches!(label, Err(why) if why == NONE_OF_OURS)
}
