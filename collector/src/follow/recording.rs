//! The recording that the pages show, at one moment or while it plays.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;
use xpu_recording::{FrameCursor, RecordingError, Span};
use xpu_wire::{
    frame::{CaptureSheet, CaptureWindow},
    unit::Moment,
};

use super::Known;
use crate::metrics::Pages;

/// Longest time that one advance covers, so that the recording does not jump after a page was not served for
/// longer.
const LONGEST_TURN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Recording {
    cursor: FrameCursor,
    at: Moment,
    speed: f64,
    /// When the recording was last advanced; `None` while it does not play.
    advanced: Option<Instant>,
    /// The request of the captured steps, if the recording is a capture.
    pub(crate) capture: Option<(CaptureSheet, Option<CaptureWindow>)>,
    /// The path of the recording itself, which may be shown from a copy.
    pub(crate) path: PathBuf,
}

/// The state of a replay in documents. Times are in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Replay {
    pub(crate) begin: f64,
    pub(crate) end: f64,
    pub(crate) at: f64,
    pub(crate) is_playing: bool,
    pub(crate) speed: f64,
}

impl Replay {
    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }
}

impl Recording {
    pub(crate) const SPEEDS: std::ops::RangeInclusive<f64> = 0.25..=64.0;

    /// Opens `from`, which is the recording at `path` or a copy of it.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn open(from: &Path, at: Moment, path: PathBuf) -> io::Result<Self> {
        let recording = xpu_recording::Recording::open_file(from).map_err(|error| match error {
            RecordingError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        })?;
        let cursor = FrameCursor::new(recording);
        let Span { first, last } = cursor.span();
        Ok(Self { cursor, at: at.clamp(first, last), speed: 1.0, advanced: None, capture: None, path })
    }

    /// The state at the moment that is shown, read from the file.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(super) fn known(&mut self, pages: Pages) -> io::Result<Known> {
        // The first reading finds the ranks. The second reading includes their details.
        loop {
            let mut known = Known::recorded(self.at, pages);
            self.cursor.rewind(self.at);
            self.read(&mut known)?;
            if self.watches_all(&known) {
                return Ok(known);
            }
        }
    }

    /// Moves to `to`. Reads on if `to` is near, else starts from somewhat before it.
    pub(super) fn seek(&mut self, known: &mut Known, pages: Pages, to: Moment) -> io::Result<()> {
        let Span { first, last } = self.cursor.span();
        let (from, to) = (self.at, to.clamp(first, last));
        self.at = to;
        if to < from || !self.cursor.is_near(to) {
            *known = self.known(pages)?;
            return Ok(());
        }
        known.set_position(to);
        self.read(known)?;
        self.watches_all(known);
        Ok(())
    }

    /// Plays on to the moment due at `now`.
    pub(super) fn advance(&mut self, known: &mut Known, pages: Pages, now: Instant) -> io::Result<()> {
        let Some(before) = self.advanced.replace(now) else { return Ok(()) };
        let by = now.saturating_duration_since(before).min(LONGEST_TURN).mul_f64(self.speed);
        self.seek(known, pages, self.at.after(by))?;
        if self.at == self.cursor.span().last {
            self.advanced = None;
        }
        Ok(())
    }

    pub(super) fn is_playing(&self) -> bool {
        self.advanced.is_some()
    }

    pub(super) fn play(&mut self, plays: bool, now: Instant) {
        self.advanced = plays.then(|| self.advanced.unwrap_or(now));
    }

    pub(super) fn set_speed(&mut self, speed: f64) {
        self.speed = speed.clamp(*Self::SPEEDS.start(), *Self::SPEEDS.end());
    }

    pub(super) fn replay(&self) -> Replay {
        let Span { first, last } = self.cursor.span();
        let [begin, end, at] = [first, last, self.at].map(|moment| moment.0 as f64 / 1e9);
        Replay { begin, end, at, is_playing: self.is_playing(), speed: self.speed }
    }

    fn read(&mut self, known: &mut Known) -> io::Result<()> {
        while let Some((_, frame)) = self.cursor.next(self.at)? {
            if let Some((sheet, window)) = frame.body.as_capture_sheet() {
                self.capture = Some((sheet.clone(), window));
            }
            known.replay(&frame);
        }
        Ok(())
    }

    /// Whether the details of all known ranks were read. If not, they are read from now on.
    fn watches_all(&mut self, known: &Known) -> bool {
        let jobs = known.jobs();
        let mut ranks = self.cursor.ranks().clone();
        ranks.extend(jobs.iter().flat_map(|job| job.ranks().map(|(rank, _)| rank)));
        let all = ranks.len() == self.cursor.ranks().len();
        if !all {
            self.cursor.watch_ranks(ranks);
        }
        all
    }
}
