//! Python stacks of a rank, read repeatedly while steps are captured.

use serde::{Deserialize, Serialize};

use super::{CaptureOrder, CaptureWindow, StackFrame};
use crate::{
    id::{JobName, Rank},
    unit::{Moment, Nanoseconds},
};

/// Viewer to collector: sample the Python stacks of ranks during a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleOrder {
    /// The capture during which the stacks are sampled. Sampling ends with it.
    pub capture: CaptureOrder,
    /// The capture's period, if it covers a period instead of steps.
    pub window: Option<CaptureWindow>,
    /// Readings per second.
    pub rate: u32,
    /// Native frames too: each thread is stopped for a moment at each reading.
    pub natively: bool,
}

impl SampleOrder {
    /// The highest rate.
    pub const RATE: u32 = 1000;
}

/// Collector to viewer: some of the samples of a rank. Each part can be read by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PythonSamples {
    /// The capture that they belong to.
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    /// The number of the part, from 0 on.
    pub part: u32,
    /// Present only in the last part.
    pub account: Option<SampleAccount>,
    /// The moment from which the first sample's `after` counts, by the host's clock.
    pub since: Moment,
    pub threads: Vec<SampledThread>,
    pub frames: Vec<StackFrame>,
    pub stacks: Vec<SampledStack>,
    pub samples: Vec<PythonSample>,
}

impl PythonSamples {
    /// Samples, stacks and frames in one part, at most: a part is much smaller than the largest frame.
    pub const SAMPLES: usize = 8192;
    pub const STACKS: usize = 2048;
    pub const FRAMES: usize = 4096;
    pub const THREADS: usize = 256;
    /// Parts of one rank.
    pub const PARTS: u32 = 128;
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SampledThread {
    /// Kernel thread id; `None` if it is unknown.
    pub number: Option<u32>,
    /// Python's name of it.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    /// Whether it is the process's first.
    pub main: bool,
}

/// Indices into the threads and the frames of the same part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampledStack {
    pub thread: u32,
    /// Outermost first.
    pub frames: Vec<u32>,
}

/// One stack at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonSample {
    /// Nanoseconds since the previous sample.
    pub after: Nanoseconds,
    /// Index into the stacks of the same part.
    pub stack: u32,
}

/// How the sampling went, and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleAccount {
    pub began: Moment,
    pub ended: Moment,
    /// The requested rate.
    pub rate: u32,
    pub natively: bool,
    /// Readings that succeeded, each of all threads of the rank.
    pub readings: u64,
    /// Readings that failed: the memory of a running process changes between two reads.
    pub failed: u64,
    /// Readings that were due and left out, because the one before took too long.
    pub missed: u64,
    /// CPU time of the process that read them.
    pub cpu: Nanoseconds,
    /// For native frames: how often a thread was stopped, for how long in all, and the longest stop.
    pub stops: u64,
    pub stopped: Nanoseconds,
    pub longest_stop: Nanoseconds,
    /// What is missing, and why.
    #[serde(deserialize_with = "crate::text::maybe")]
    pub why: Option<String>,
}
