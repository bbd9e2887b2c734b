//! The function that a rank's main thread is in most often, by samples of its stack.

use std::fmt;

use serde::Serialize;
use xpu_wire::{
    frame::{MainThread, StackFrame},
    id::Rank,
};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MainThreadSeen {
    pub rank: Rank,
    pub samples: u32,
    pub pct: f64,
    pub function: String,
    pub file: String,
    pub line: u32,
}

impl MainThreadSeen {
    pub(super) fn of(rank: Rank, main: &MainThread) -> Option<Self> {
        let place = main.places.first().filter(|_| main.samples > 0)?;
        let StackFrame { function, file, line } = place.frame.clone();
        let pct = 100.0 * f64::from(place.samples) / f64::from(main.samples);
        Some(Self { rank, samples: main.samples, pct, function, file, line })
    }
}

/// `rank 0 is in collate_fn (data.py:40) in 62 % of 40 samples`
impl fmt::Display for MainThreadSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, samples, pct, function, file, line } = self;
        let name = file.rsplit('/').next().unwrap_or_default();
        write!(f, "rank {rank} is in {function} ({name}:{line}) in {pct:.0} % of {samples} samples")
    }
}
