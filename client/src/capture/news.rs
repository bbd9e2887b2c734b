//! Messages about a capture in progress, and its result.

use std::{fmt, path::PathBuf};

use xpu_model::figure;

use super::Extent;

/// Progress of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub of: Extent,
    pub ranks: usize,
    pub agreed: usize,
    /// Ranks with complete data.
    pub whole: usize,
}

impl Progress {
    /// Progress of the ranks: first the number that agreed, and once all have, the number whose data arrived.
    /// A full bar without data would look like the end.
    pub fn far(&self) -> (usize, &'static str) {
        if self.whole > 0 || self.agreed >= self.ranks {
            (self.whole, "here")
        } else {
            (self.agreed, "agreed")
        }
    }

    /// The filled cells of a bar of `cells`.
    pub fn filled(&self, cells: usize) -> usize {
        (cells * self.far().0).checked_div(self.ranks).unwrap_or(0).min(cells)
    }
}

/// `steps 812 to 814: 8 of 8 ranks agreed, 3 of 8 arrived`
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, ranks, agreed, whole } = self;
        write!(f, "{of}: {agreed} of {ranks} ranks agreed, {whole} of {ranks} arrived")
    }
}

/// Called with messages while the capture runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureEvent {
    Far(Progress),
    Word(String),
}

/// The result of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub path: PathBuf,
    /// Problems.
    pub complaints: Vec<String>,
    /// `steps 812 to 814 of 8 of 8 ranks, 2,160 operations, none dropped`
    pub summary: String,
    /// Bytes of the file; 0 if no rank sent anything and there is no file.
    pub bytes: u64,
    /// Ranks whose recorded data is complete, and the ranks among them that reached the last step.
    pub whole: usize,
    pub done: usize,
    pub ranks: usize,
}

/// `c.bin: steps 812 to 814 of 8 of 8 ranks, 2,160 operations, none dropped; 18.4 KiB`
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            0 => write!(f, "no rank sent anything: {} was not written", self.path.display()),
            bytes => write!(f, "{}: {}; {}", self.path.display(), self.summary, figure::bytes(bytes)),
        }
    }
}
