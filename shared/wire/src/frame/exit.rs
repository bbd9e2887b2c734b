//! How a rank failed: collector to viewers, topic `<job>/e`, and after each snapshot.

mod sentence;

use std::time::Duration;

pub use sentence::{kernel_block, kernel_extent, kernel_size, signal_name};

use serde::{Deserialize, Serialize};

use super::{MemorySite, StackFrame};
use crate::{
    id::{JobName, Pid, Rank, Step},
    text,
    unit::Moment,
};

/// Longest times between an error that is not lasting and the exception, or the abort, that it explains.
const RAISED_WITHIN: Duration = Duration::from_millis(500);
const ABORTED_WITHIN: Duration = Duration::from_secs(2);

/// `SIGABRT`
const ABORT: i32 = 6;

/// `SIGTERM`, with which launchers end the remaining ranks.
pub const TERM: i32 = 15;

/// One rank's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankExit {
    pub job: JobName,
    pub rank: Rank,
    pub pid: Pid,
    /// Time by the host's clock: when the rank noted its end, else when the collector found the process gone.
    pub at: Moment,
    pub step: Option<Step>,
    pub ending: Ending,
    pub exception: Option<PythonException>,
    pub error: Option<ApiError>,
    /// The kernel that failed, from a core dump of the GPU.
    pub kernel: Option<FailedKernel>,
    /// Present if CUDA had no GPU memory left.
    pub memory: Option<RefusedMemory>,
    pub asked: Option<StopRequest>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ending {
    /// It called `exit()`, or `main` ended.
    Code(i32),
    Signal(FatalSignal),
    /// The kernel ended it because memory was exhausted.
    OutOfMemory {
        /// The kernel's log names this process; otherwise some process of its control group, or its host, was
        /// OOM-killed.
        certain: bool,
        #[serde(deserialize_with = "crate::text::line")]
        source: String,
    },
    /// It recorded nothing: SIGKILL, a signal that its own handlers caught, or an exit that bypassed the C
    /// library.
    Unnoted,
}

/// A signal that ended it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FatalSignal {
    pub number: i32,
    /// `si_code` (`sigaction(2)`).
    pub code: i32,
    /// The address it could not access, if the kernel sent the signal.
    pub address: Option<u64>,
    /// The sender, if it was a process.
    pub sender: Option<Pid>,
    /// Kernel thread id, and its name.
    pub thread: u32,
    #[serde(deserialize_with = "crate::text::line")]
    pub thread_name: String,
    /// Whether the signal certainly ended the process: `false` if the program had its own handler.
    pub certain: bool,
    /// Native frames, outermost first, at most [`RankExit::FRAMES`]; none if they could not be determined.
    pub frames: Vec<StackFrame>,
}

/// The thread in which CUDA's driver aborts a process, after a GPU exception and its core dump.
const CUDA_THREAD: &str = "cuda-EvtHandlr";

impl FatalSignal {
    fn is_by_cuda(&self) -> bool {
        self.number == ABORT && self.thread_name == CUDA_THREAD
    }
}

/// An uncaught Python exception.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PythonException {
    #[serde(deserialize_with = "crate::text::line")]
    pub kind: String,
    #[serde(deserialize_with = "crate::text::lines")]
    pub message: String,
    /// The thread's name; empty for the main thread.
    #[serde(deserialize_with = "crate::text::line")]
    pub thread: String,
    /// Outermost first, at most [`RankExit::FRAMES`].
    pub frames: Vec<StackFrame>,
    pub at: Moment,
}

/// A function of CUDA, cuBLAS or NCCL that returned an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiError {
    #[serde(deserialize_with = "crate::text::line")]
    pub function: String,
    pub code: i32,
    /// Whether CUDA returns an error for every later call of the process.
    pub lasting: bool,
    pub at: Moment,
}

/// A kernel that an exception of the GPU stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedKernel {
    pub device: u32,
    /// Demangled; empty if no loaded module has it.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    /// `illegal address`
    #[serde(deserialize_with = "crate::text::line")]
    pub error: String,
    /// Where the exception occurred. Unknown if this block had ended before the core dump.
    pub block: Option<[u32; 3]>,
    /// Blocks of the grid, and threads of a block. Unknown if all blocks had ended.
    pub grid_size: Option<[u32; 3]>,
    pub block_size: Option<[u32; 3]>,
    /// Blocks that were on multiprocessors, and the number of those multiprocessors.
    pub blocks: u32,
    pub sms: u32,
}

/// GPU memory that CUDA refused. Bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedMemory {
    pub requested: u64,
    /// Allocated by the process through the CUDA runtime and not freed: caching allocators keep more than
    /// they use.
    pub held: u64,
    /// The number of its first steps, and `held` after them.
    pub held_at: Option<(Step, u64)>,
    /// GPU memory used by all processes at the last reading before the error, and the GPU's memory size.
    pub used: Option<(u64, u64)>,
    /// Free GPU memory at the moment of the error, as the driver reports it.
    pub free: Option<u64>,
    /// [`super::MemoryTotals::nccl`] of the last report before the error.
    pub nccl: Option<u64>,
    /// Call sites by growth since the first steps, largest first; before those steps, by the memory they
    /// hold. At most [`super::MemoryTotals::SITES`].
    pub sites: Vec<MemorySite>,
}

impl RefusedMemory {
    /// Whether it held clearly more than after its first steps.
    pub fn grew(&self) -> bool {
        self.held_at.is_some_and(|(_, before)| self.held > before + before / 10)
    }

    pub fn is_mostly_of_others(&self) -> bool {
        self.used.is_some_and(|(used, _)| used > 2 * self.held)
    }
}

/// It received SIGTERM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopRequest {
    pub by: Pid,
    /// The name of that process; empty if it is unknown.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    pub at: Moment,
}

/// Why a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    Oom,
    NcclError,
    CudaError,
    Exception,
    Signal,
    ExitCode,
    /// It recorded nothing.
    Dead,
}

impl RankExit {
    pub const FRAMES: usize = 64;

    /// The cause of the end, in one word.
    pub fn cause(&self) -> EndCause {
        let error = self.error.as_ref().filter(|error| error.lasting || self.explains(error));
        match (&self.ending, &self.exception) {
            (Ending::OutOfMemory { .. }, _) => EndCause::Oom,
            _ if error.is_some_and(|error| error.function.starts_with("nccl")) => EndCause::NcclError,
            _ if error.is_some() || self.kernel.is_some() => EndCause::CudaError,
            (Ending::Signal(signal), _) if signal.is_by_cuda() => EndCause::CudaError,
            (Ending::Code(_) | Ending::Unnoted, Some(_)) => EndCause::Exception,
            (Ending::Signal(_), _) => EndCause::Signal,
            (Ending::Code(_), None) => EndCause::ExitCode,
            (Ending::Unnoted, None) => EndCause::Dead,
        }
    }

    /// Whether an error that is not lasting likely caused the end: an exception or an abort followed it
    /// shortly. A failed allocation that the program repeated with success long before causes no end.
    fn explains(&self, error: &ApiError) -> bool {
        let (end, patience) = match (&self.exception, &self.ending) {
            (Some(exception), _) => (exception.at, RAISED_WITHIN),
            (None, Ending::Signal(signal)) if signal.number == ABORT => (self.at, ABORTED_WITHIN),
            _ => return false,
        };
        error.at <= end && end.since(error.at) < patience
    }

    /// Whether another process requested the end by SIGTERM.
    pub fn was_asked_to_end(&self) -> bool {
        self.asked.is_some() || matches!(&self.ending, Ending::Signal(signal) if signal.number == TERM)
    }

    /// Whether the recorded ending is certain.
    pub fn is_certain(&self) -> bool {
        match &self.ending {
            Ending::Code(_) | Ending::Unnoted => true,
            Ending::Signal(signal) => signal.certain,
            Ending::OutOfMemory { certain, .. } => *certain,
        }
    }

    /// Memory that PyTorch had reserved but did not use when its allocation failed: no single block of it was
    /// large enough, or it is kept for other streams. `None` if it was less than requested, or is unknown.
    pub fn fragmented(&self) -> Option<u64> {
        let unused = self.exception.as_ref()?.unused_by_pytorch()?;
        (unused >= self.memory.as_ref()?.requested).then_some(unused)
    }

    /// Frames of where it ended, outermost first: Python's, else native ones.
    pub fn frames(&self) -> &[StackFrame] {
        match (&self.exception, &self.ending) {
            (Some(exception), _) if !exception.frames.is_empty() => &exception.frames,
            (_, Ending::Signal(signal)) => &signal.frames,
            _ => &[],
        }
    }
}

/// PyTorch's sentence about what it has reserved and does not use: a number and a unit come before it.
const UNUSED: &str = " is reserved by PyTorch but unallocated";

impl PythonException {
    /// Memory that PyTorch had reserved and did not use, from PyTorch's message, which gives it with two
    /// decimals.
    pub fn unused_by_pytorch(&self) -> Option<u64> {
        let before = &self.message[..self.message.find(UNUSED)?];
        let mut words = before.rsplit(' ');
        let unit = match words.next()? {
            "bytes" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        let number: f64 = words.next()?.parse().ok().filter(|&number: &f64| number >= 0.0)?;
        Some((number * f64::from(unit)) as u64)
    }

    /// Parses what the hook writes: kind, thread, message and frames, separated by NUL. Each line of the
    /// frames has a function, a file and a line number, separated by tabs.
    pub fn parse(text: &str, at: Moment) -> Self {
        let clean = |text: &str| text::clean(text).into_owned();
        let mut parts = text.split('\0');
        let mut part = || parts.next().unwrap_or_default();
        let (kind, thread, message, frames) = (clean(part()), clean(part()), part(), part());
        let message = text::clean_lines(message).into_owned();
        let frame = |line: &str| {
            let mut fields = line.splitn(3, '\t');
            let (function, file) = (clean(fields.next()?), clean(fields.next()?));
            Some(StackFrame { function, file, line: fields.next()?.trim().parse().ok()? })
        };
        let frames = frames.lines().filter_map(frame).take(RankExit::FRAMES).collect();
        Self { kind, message, thread, frames, at }
    }
}

#[cfg(test)]
mod tests;
