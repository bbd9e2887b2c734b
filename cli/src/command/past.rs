//! What a recording holds, up to a moment: for commands that say the same of a file as of a job that runs.

use std::path::Path;

use xpu_client::{arrival::Arrival, follow::Following, frame_cursor::FrameCursor, time};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use crate::args::UsageError;

/// What was heard until `at`, or until its end, with the details of some ranks.
pub(super) fn followed(
    path: &Path,
    at: Option<&str>,
    job: Option<&JobName>,
    ranks: impl IntoIterator<Item = Rank>,
) -> anyhow::Result<(Following, Moment)> {
    // Neither health nor its lack: as with a file that was never named.
    let mut cursor = FrameCursor::open_file(path).map_err(|error| UsageError::Value(format!("{error:#}")))?;
    let at = match at {
        Some(text) => time::moment_within(text, cursor.span()).map_err(UsageError::Value)?,
        None => cursor.span().last,
    };
    cursor.watch_ranks(ranks.into_iter().collect());
    let mut following = Following::new([], job.cloned());
    following.note_what_goes();
    while let Some((came, frame)) = cursor.next(at)? {
        following.take_at(came, Arrival::Frame(Box::new(frame)));
    }
    cursor.complaints().iter().for_each(|complaint| eprintln!("xpu-top: {}: {complaint}", path.display()));
    Ok((following, at))
}
