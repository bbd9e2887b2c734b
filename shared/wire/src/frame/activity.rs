//! A rank's activity other than GEMMs and collectives: graphs, named kernels, memory, waits; and the work it
//! reports.

use serde::{Deserialize, Serialize};

use super::CallSite;
use crate::{histogram::Histogram, id::Step, unit::Nanoseconds};

/// One executable CUDA graph, launched as a whole. Every launch adds its GEMMs and collectives to the rank's
/// counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphTotals {
    /// The graph's number in this process, from 1, in the order of instantiation; 0 if its instantiation was
    /// not seen.
    pub graph: u32,
    /// What one launch contains: GEMMs and their FLOPs, NCCL operations and their bytes over the bus.
    pub gemms: u32,
    pub flops: f64,
    pub collectives: u32,
    pub bus_bytes: u64,
    /// Whether it contains nothing else than GEMMs, so that its time is theirs.
    pub only_gemms: bool,
    /// Launches since the rank started.
    pub count: u64,
    pub timed: u64,
    pub timed_for: Nanoseconds,
    pub durations: Histogram,
}

/// Kernels whose name matches a pattern the user gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelTotals {
    #[serde(deserialize_with = "crate::text::line")]
    pub pattern: String,
    pub count: u64,
    pub timed: u64,
    pub timed_for: Nanoseconds,
    pub durations: Histogram,
}

/// Memory, by the calls of the CUDA runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryTotals {
    /// Device memory allocated and not freed, in bytes, and its maximum.
    pub held: u64,
    pub peak: u64,
    /// Page-locked host memory allocated and not freed, in bytes.
    pub host_held: u64,
    pub allocations: u64,
    pub frees: u64,
    /// Bytes set by `cudaMemset`, and its calls.
    pub set: u64,
    pub sets: u64,
    /// Copies by direction; only directions that occurred.
    pub copies: Vec<Copies>,
    /// Decrease of free GPU memory during NCCL's calls, in bytes; `None` if that is unknown. See
    /// [`MemoryTotals::NCCL_CALLS`].
    pub nccl: Option<u64>,
    /// By call site, most growth first, at most [`MemoryTotals::SITES`]. Filled by the collector, not by the
    /// hook.
    pub sites: Vec<MemorySite>,
}

impl MemoryTotals {
    /// Largest number of call sites in a frame.
    pub const SITES: usize = 4;

    /// Free memory is read around the creation of a communicator, and around this many of its first
    /// operations, in which NCCL makes its connections.
    pub const NCCL_CALLS: u64 = 16;
}

/// GPU memory that was allocated at one call site and not freed. Bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySite {
    pub site: CallSite,
    pub held: u64,
    /// `held` after the rank's first steps; `None` if that is unknown.
    pub held_before: Option<u64>,
    /// Allocations since the rank started.
    pub allocations: u64,
    /// Steps completed at the first and at the last allocation.
    pub first_step: Step,
    pub last_step: Step,
}

impl MemorySite {
    /// The growth since the first steps.
    pub fn grown(&self) -> Option<u64> {
        Some(self.held.saturating_sub(self.held_before?))
    }
}

/// Steady growth of the device memory held, over the last minutes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryGrowth {
    /// Bytes per step, and its 95 % interval, which excludes zero.
    pub per_step: f64,
    pub least: f64,
    pub most: f64,
    /// The steps and the time over which it was observed.
    pub steps: u64,
    pub over: Nanoseconds,
}

impl MemoryGrowth {
    /// Bytes per second.
    pub fn per_second(&self) -> f64 {
        self.per_step * self.steps as f64 / self.over.seconds()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    pub direction: Direction,
    pub count: u64,
    pub bytes: u64,
}

/// `cudaMemcpyKind`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// `cudaMemcpyDefault`: CUDA derives the direction from the addresses.
    ByAddress,
    PeerToPeer,
}

/// Garbage collections and batches of a Python program, if they are recorded all the time
/// (`XPU_TOP_TRACE_FUNCS_ALWAYS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonTotals {
    /// Garbage collections, and their time.
    pub collections: u64,
    pub collecting: Nanoseconds,
    /// Batches requested from PyTorch's `DataLoader`, and the time until they arrived.
    pub batches: u64,
    pub loading: Nanoseconds,
}

/// A call in which a thread waits for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    pub call: BlockingCall,
    pub count: u64,
    /// Total since the rank started.
    pub waited: Nanoseconds,
    pub longest: Nanoseconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BlockingCall {
    StreamSynchronize,
    DeviceSynchronize,
    EventSynchronize,
    /// A copy that is not asynchronous.
    Copy,
    /// Kernel launches into a full queue.
    Launch,
}

/// The spans of one name that the program reports (`Tracer.span`), since the rank started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanTotals {
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    pub count: u64,
    /// Time from begin to end over all threads, including nested spans.
    pub took: Nanoseconds,
}

/// What a program reports with `step(tokens=, samples=, loss=)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Since the rank started; 0 if the program never reports it.
    pub tokens: u64,
    pub samples: u64,
    /// The last loss reported.
    pub loss: Option<f64>,
}
