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
    /// Another thread, if it held the GIL in most samples.
    pub gil: Option<GilHolder>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GilHolder {
    pub pct: f64,
    pub function: String,
    pub file: String,
    pub line: u32,
}

/// Share of the samples, in percent.
const MOST: f64 = 50.0;

impl MainThreadSeen {
    pub fn of(rank: Rank, main: &MainThread) -> Option<Self> {
        let place = main.places.first().filter(|_| main.samples > 0)?;
        let pct = |samples: u32| 100.0 * f64::from(samples) / f64::from(main.samples);
        let held: u32 = main.holders.iter().map(|holder| holder.samples).sum();
        let gil = main.holders.first().filter(|_| pct(held) >= MOST).map(|holder| {
            let StackFrame { function, file, line } = holder.frame.clone();
            GilHolder { pct: pct(holder.samples), function, file, line }
        });
        let StackFrame { function, file, line } = place.frame.clone();
        Some(Self { rank, samples: main.samples, pct: pct(place.samples), function, file, line, gil })
    }
}

/// `rank 0 is in collate_fn (data.py:40) in 62 % of 40 samples`
impl fmt::Display for MainThreadSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, samples, pct, function, file, line, gil } = self;
        let name = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
        write!(f, "rank {rank} is in {function} ({}:{line}) in {pct:.0} % of {samples} samples", name(file))?;
        gil.as_ref().map_or(Ok(()), |GilHolder { pct, function, file, line }| {
            let file = name(file);
            write!(f, ", and another thread holds the GIL in {pct:.0} %, in {function} ({file}:{line})")
        })
    }
}
