//! How the threads of ranks spent their time outside of the GPU's work, summed up by the collector.

use serde::{Deserialize, Serialize};

use super::StackFrame;
use crate::{
    id::{JobName, Pid, Rank},
    unit::Nanoseconds,
};

/// The ranks of a job on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostTimes {
    pub job: JobName,
    pub ranks: Vec<RankTimes>,
}

/// A rank's times over the last half minute. Several threads may make a time longer than the interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    pub rank: Rank,
    pub pid: Pid,
    /// The time covered.
    pub interval: Nanoseconds,
    /// Threads in calls that synchronize with the GPU.
    pub synchronizing: Nanoseconds,
    /// Threads in copies that are not asynchronous.
    pub copying: Nanoseconds,
    /// Threads that launch into a full queue.
    pub launching: Nanoseconds,
    /// Threads that wait for a batch: of PyTorch's `DataLoader`, or in the program's span `data`. `None` if
    /// neither is recorded.
    pub loading: Option<Nanoseconds>,
    /// Python's garbage collections, if they are recorded.
    pub collecting: Option<Nanoseconds>,
    /// Its main thread, if it was sampled in the last minutes.
    pub main: Option<MainThread>,
}

/// Where the samples found a Python main thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MainThread {
    pub samples: u32,
    /// Samples in PyTorch's `DataLoader`.
    pub loading: u32,
    /// The program's functions that it was in, the most frequent first; at most [`MainThread::PLACES`].
    pub places: Vec<SampledPlace>,
    /// The functions that other threads were in, from the samples in which one of them held the GIL.
    pub holders: Vec<SampledPlace>,
}

/// The innermost function of the program in some of the samples, with its most frequent line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledPlace {
    pub samples: u32,
    pub frame: StackFrame,
}

impl MainThread {
    pub const PLACES: usize = 4;
}
