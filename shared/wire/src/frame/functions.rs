//! The time that one rank spent in each function, which its collector makes of its captured operations.

use serde::{Deserialize, Serialize};

use super::{CaptureAccount, StackFrame};
use crate::{
    id::{CommunicatorId, JobName, Rank, Sequence},
    sampling::Rate,
    unit::Nanoseconds,
};

/// Collector to viewer, in place of a rank's [`super::CapturePart`]s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankFunctions {
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    pub account: CaptureAccount,
    /// The time of all whole steps, and their number.
    pub whole: Nanoseconds,
    pub steps: u32,
    /// Readings of the main thread in these steps.
    pub samples: u64,
    pub functions: Vec<FunctionTime>,
    pub collectives: Vec<FunctionCollectives>,
}

/// All executions of one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionTime {
    pub key: FunctionKey,
    /// Nanoseconds on the critical path, and of all executions, including time shared with others; without
    /// those of collectives, which are listed apart.
    pub critical: f64,
    pub total: f64,
    pub executions: u64,
    /// Executions with a rate. Sums over these: nanoseconds, amount of work, and amount² / nanoseconds.
    pub rated: u64,
    pub rated_for: f64,
    pub amount: f64,
    pub squares: f64,
}

/// The identity of a function: two functions with equal keys are the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FunctionKey {
    Named {
        class: FunctionClass,
        #[serde(deserialize_with = "crate::text::line")]
        name: String,
        unit: Option<FunctionUnit>,
    },
    /// Communication whose time includes waits.
    Waits(#[serde(deserialize_with = "crate::text::line")] String),
    /// A sampled Python function and its caller, with the most frequent lines.
    Sampled { function: StackFrame, caller: Option<StackFrame> },
}

/// Kinds of functions. If two run at the same time, the critical path goes through the kind listed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionClass {
    /// GEMMs, kernels, graphs.
    Compute,
    Communication,
    /// Copies and fills.
    Memory,
    /// A CUDA call that waits for the GPU.
    Runtime,
    /// Python functions, garbage collections, data loaders, spans of the program.
    Python,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionUnit {
    Tflops,
    /// Bus bandwidth of collectives, as nccl-tests reports it.
    GbytesPerS,
    /// Executions per second of their own time: the inverse of the mean duration, if the work is unknown.
    PerSecond,
}

impl FunctionClass {
    pub fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "comm",
            Self::Memory => "memory",
            Self::Runtime => "CUDA call",
            Self::Python => "Python",
        }
    }

    pub fn is_on_gpu(self) -> bool {
        matches!(self, Self::Compute | Self::Communication | Self::Memory)
    }
}

impl FunctionUnit {
    /// The rate of an amount of work in a nanosecond.
    pub fn of(self, amount_per_ns: f64) -> f64 {
        match self {
            Self::Tflops => amount_per_ns / 1e3,
            Self::GbytesPerS => amount_per_ns,
            Self::PerSecond => amount_per_ns * 1e9,
        }
    }
}

impl FunctionKey {
    pub fn class(&self) -> FunctionClass {
        match self {
            Self::Named { class, .. } => *class,
            Self::Waits(_) => FunctionClass::Communication,
            Self::Sampled { .. } => FunctionClass::Python,
        }
    }

    pub fn unit(&self) -> Option<FunctionUnit> {
        match self {
            Self::Named { unit, .. } => *unit,
            Self::Waits(_) | Self::Sampled { .. } => None,
        }
    }
}

/// The collectives of one communicator that are one function. Which part of their time was a wait is known
/// only with the times of all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCollectives {
    /// Index into the functions, and that of the function to which the waits belong.
    pub function: u32,
    pub waits: u32,
    pub communicator: CommunicatorId,
    /// Nanoseconds on the critical path, and of all executions, including waits.
    pub critical: f64,
    pub total: f64,
    /// All of them, or one in 2^rate by their numbers: the same ones on every rank.
    pub rate: Rate,
    pub each: Vec<CollectiveTime>,
}

/// One collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveTime {
    pub sequence: Sequence,
    pub took: Nanoseconds,
    /// Its time on the critical path, and when that began and ended, both before the end of the collective.
    pub critical: Nanoseconds,
    pub begun_before: Nanoseconds,
    pub ended_before: Nanoseconds,
    pub bus_bytes: u64,
}

impl RankFunctions {
    /// Collectives kept per function and communicator.
    pub const COLLECTIVES: usize = 256;
}
