//! The request for a capture.

use std::time::Duration;

use xpu_model::duration::duration;
use xpu_wire::{frame::CaptureWindow, id::Step, unit::Moment};

/// The request to each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub what: Wanted,
    pub begin: Begin,
    /// Number of earlier steps to include, as far as ranks still have them.
    pub before: u32,
    /// Whether to record all kernels, through CUPTI.
    pub activity: bool,
    /// Whether to record Python's functions.
    pub functions: bool,
    /// Whether collectors send what ranks spend their steps on, in place of the operations.
    pub functions_only: bool,
    /// Python's stacks, sampled.
    pub python: Option<Sampling>,
    /// Time limit of the whole capture.
    pub wait: Duration,
    /// Continues until a slow rank would be detected, so that the file contains the finding.
    pub watch: bool,
}

/// The length of a capture as people write it: `500ms`, `2s`, `1m`.
pub fn window_length(text: &str) -> Result<Duration, String> {
    let length = duration(text).filter(|length| !length.is_zero() && *length <= CaptureWindow::LONGEST);
    length.ok_or_else(|| "write a time like 500ms, 2s or 1m, ten minutes at most".to_owned())
}

/// When the capture begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// Begins as soon as all ranks can agree.
    #[default]
    Soon,
    /// Begins with the step, or at the moment, that another request has chosen.
    Step(Step),
    At(Moment),
}

/// How Python's stacks are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Readings per second.
    pub rate: u32,
    /// Native frames too: each thread is stopped for a moment at each reading.
    pub natively: bool,
}

impl Sampling {
    /// Default rates, without and with native frames.
    pub const RATE: u32 = 500;
    pub const NATIVE_RATE: u32 = 100;
}

/// A number of steps, or a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Steps(u32),
    Time(Duration),
}
