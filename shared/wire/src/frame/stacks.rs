//! Collector to viewer: where every thread of a rank is, on demand.

use serde::{Deserialize, Serialize};

use super::Inside;
use crate::{
    id::{DeviceIndex, JobName, Pid, Rank},
    unit::{Moment, Nanoseconds},
};

/// One rank's threads, in answer to [`super::Request::Stacks`]: one frame a rank, as they become known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankStacks {
    pub job: JobName,
    pub rank: Rank,
    pub pid: Pid,
    /// Time by the host's clock.
    pub read_at: Moment,
    /// The kernel's state of the whole process: its letter (`R`, `S`, `D`, `T` stopped, `t` traced, `Z`), or
    /// `None` if it is gone or cannot be seen.
    #[serde(deserialize_with = "crate::text::maybe_letter")]
    pub state: Option<char>,
    pub reading: Reading,
    /// The longest time that a thread was stopped for its native frames; `None` if these were not read.
    pub held_for_native: Option<Nanoseconds>,
    /// Duration of the reading, in a separate process.
    pub took: Nanoseconds,
    /// What is missing and why, each in a sentence; at most [`RankStacks::WHY`].
    #[serde(deserialize_with = "crate::text::each")]
    pub why: Vec<String>,
    /// At most [`RankStacks::THREADS`].
    pub threads: Vec<ThreadStack>,
    /// Threads left out.
    pub more_threads: u32,
}

impl RankStacks {
    pub fn main_thread(&self) -> Option<&ThreadStack> {
        self.threads.iter().find(|thread| thread.main)
    }

    /// Whether another reading would add nothing: this one has native frames, or `why` says why something
    /// could not be read.
    pub fn is_thorough(&self) -> bool {
        self.held_for_native.is_some() || !self.why.is_empty()
    }

    /// Whether no frame could be read, neither of Python nor native.
    pub fn has_failed(&self) -> bool {
        !self.why.is_empty() && self.threads.iter().all(|thread| thread.frames.is_empty())
    }

    /// Whether `other` has the kernels on the GPUs of the same process, and this one does not. Reading them
    /// ended the process, so there is no newer state.
    pub fn lacks_gpus_of(&self, other: &Self) -> bool {
        let has_gpus = |stacks: &Self| stacks.threads.iter().any(ThreadStack::is_gpu);
        self.pid == other.pid && has_gpus(other) && !has_gpus(self)
    }

    pub const THREADS: usize = 256;
    /// Frames of one thread: the innermost are kept.
    pub const FRAMES: usize = 128;
    /// Frames of all threads of a rank together, so that a rank fits into a frame of the wire.
    pub const ALL_FRAMES: usize = 8192;
    /// Longest text, in bytes.
    pub const TEXT: usize = 240;
    pub const WHY: usize = 4;

    /// A rank whose stacks could not be read.
    pub fn unread(job: JobName, rank: Rank, pid: Pid, why: String) -> Self {
        Self {
            job,
            rank,
            pid,
            read_at: Moment(0),
            state: None,
            reading: Reading::Kernel,
            held_for_native: None,
            took: Nanoseconds(0),
            why: vec![why],
            threads: Vec::new(),
            more_threads: 0,
        }
    }
}

/// How a rank's stacks were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Python frames from its memory while it ran on: it was not stopped.
    Running,
    /// Python frames while it was stopped for this time: a running process's memory changed during the
    /// reading.
    Held(Nanoseconds),
    /// No Python frames, only the kernel's data about its threads.
    Kernel,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadStack {
    /// Kernel thread id; `None` if it is unknown (Python before 3.11 does not provide it).
    pub thread: Option<u32>,
    /// Python's name of the thread, else the kernel's.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    /// Whether it is the process's first.
    pub main: bool,
    pub owns_gil: bool,
    /// The interposed call it is inside, by the ledger page.
    pub inside: Option<Inside>,
    pub task: Option<TaskState>,
    /// Outermost first: Python's frames, and native ones if they were read.
    pub frames: Vec<StackFrame>,
    /// Number of outer frames left out.
    pub more_frames: u32,
}

impl ThreadStack {
    /// A "thread" whose name begins with this represents a GPU: its frames are the kernels there.
    pub const GPU: &str = "GPU";
    /// The frame of a GPU without a kernel.
    pub const NO_KERNEL: &str = "no kernel";

    pub fn is_gpu(&self) -> bool {
        self.gpu().is_some()
    }

    /// The GPU's number in the process; `None` for a real thread.
    pub fn gpu(&self) -> Option<DeviceIndex> {
        let number = self.name.strip_prefix(Self::GPU)?.strip_prefix(' ')?.parse().ok();
        number.filter(|_| self.thread.is_none()).map(DeviceIndex)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StackFrame {
    #[serde(deserialize_with = "crate::text::line")]
    pub function: String,
    #[serde(deserialize_with = "crate::text::line")]
    pub file: String,
    /// 0 if it is unknown, as for native frames.
    pub line: u32,
}

impl StackFrame {
    /// The name of the function without that of its class, with which a method's name may begin.
    pub fn own_name(&self) -> &str {
        self.function.rsplit('.').next().unwrap_or_default()
    }

    pub fn is_python(&self) -> bool {
        [".py", ".pyx"].iter().any(|ending| self.file.ends_with(ending)) || self.file.starts_with('<')
    }

    /// Whether it is Python code of the program itself, neither of the standard library nor of an installed
    /// package.
    pub fn is_of_program(&self) -> bool {
        let library = ["/lib/python3", "/site-packages/", "/dist-packages/", "/torch/"];
        self.is_python()
            && !self.file.starts_with("<frozen ")
            && !library.iter().any(|part| self.file.contains(part))
    }
}

/// The kernel's data about one thread, as far as it may be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskState {
    #[serde(deserialize_with = "crate::text::letter")]
    pub letter: char,
    /// The kernel function it waits in.
    #[serde(deserialize_with = "crate::text::maybe")]
    pub waits_in: Option<String>,
    /// Number of the system call it is in (x86-64).
    pub call: Option<u32>,
}
