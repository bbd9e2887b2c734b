//! A recording at a moment, for the screen, and for commands that report the same for a file as for a running
//! job.

use std::path::Path;

use xpu_client::{arrival::Arrival, follow::Following, replay_file, time};
use xpu_recording::FrameCursor;
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use crate::args::UsageError;

/// Opens a recording, at the moment `at` or at its end.
pub fn opened(path: &Path, at: Option<&str>) -> anyhow::Result<(FrameCursor, Moment)> {
    // An unreadable file is a usage error, because the exit code would otherwise be about the job.
    let cursor = replay_file::open(path).map_err(|error| UsageError::Value(format!("{error:#}")))?;
    let at = match at {
        Some(text) => time::moment_within(text, cursor.span()).map_err(UsageError::Value)?,
        None => cursor.span().last,
    };
    Ok((cursor, at))
}

/// The state at `at`, or at the recording's end, with the details of some ranks.
pub(super) fn followed(
    path: &Path,
    at: Option<&str>,
    job: Option<&JobName>,
    ranks: impl IntoIterator<Item = Rank>,
) -> anyhow::Result<(Following, Moment)> {
    let (mut cursor, at) = opened(path, at)?;
    cursor.watch_ranks(ranks.into_iter().collect());
    let mut following = Following::new([], job.cloned());
    following.note_what_goes();
    while let Some((came, frame)) = cursor.next(at)? {
        following.take_at(came, Arrival::Frame(Box::new(frame)));
    }
    cursor.complaints().iter().for_each(|complaint| eprintln!("xpu-top: {}: {complaint}", path.display()));
    Ok((following, at))
}
