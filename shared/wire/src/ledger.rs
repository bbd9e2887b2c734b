//! The ledger page: a rank's current state, readable from outside when it is hung, stopped or dead.
//!
//! The hook writes it with plain stores, and the collector maps the same pages read-only. It lives in a memfd
//! that the collector opens through `/proc/<pid>/fd/<n>`: nothing is left on disk when the rank is killed,
//! and a mapping made before the rank died stays readable after it. Every field is one atomic word. A reader
//! sees each line consistently, though not all lines at one moment: every completed operation was enqueued,
//! every enqueued one was entered, and no line mixes parts of two owners.

mod call;
mod communicator;
mod last;
mod memory;
mod page;
mod record;
mod sync;
mod thread;

pub use call::Call;
pub use communicator::{CommunicatorLine, CommunicatorReading, Writers};
pub use last::{Bytes, Claimed, ErrorReading, ExitNote, Fault, FaultReading, LastReading, REGISTERS};
pub use memory::{Allocating, LARGE, MEMORY_SITES, MemorySiteReading, MemorySites};
pub use page::{LedgerPage, out_of_the_way};
pub use record::{
    CALLS, CallReading, Calling, How, KERNEL_NAME, NATIVE_SITES, NO_TICKET, NativeText, PRECEDED, Preceding,
    Record, SITES, SiteReading, SiteText, Work,
};
pub use thread::{ThreadLine, ThreadReading};

use serde::{Deserialize, Serialize};
use sync::{AtomicU64, Relaxed};

use crate::{
    id::{Pid, Step},
    unit::Moment,
};

/// `xpuledg` and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"xpuledg\x0b");

/// Largest number of communicators in a page; a 5-way parallel job uses about ten.
pub const COMMUNICATORS: usize = 64;

/// Largest number of threads in a page that are inside a call.
pub const THREADS: usize = 64;

/// The page as it lies in memory, all words little-endian of the same machine.
#[repr(C)]
#[derive(Debug)]
pub struct Ledger {
    magic: AtomicU64,
    pid: AtomicU64,
    /// When the hook's thread last ran: it continues while the program hangs, and stops with SIGSTOP.
    heartbeat: AtomicU64,
    /// Steps completed, and when the last one was.
    step: AtomicU64,
    step_at: AtomicU64,
    /// A step and Kineto's count within it, in one word, so that no reader sees parts of two: see
    /// [`KinetoCount`].
    kineto: AtomicU64,
    pub communicators: [CommunicatorLine; COMMUNICATORS],
    pub threads: [ThreadLine; THREADS],
    /// Its last NCCL calls. Takes memory as they are made.
    pub record: Record,
    /// Its GPU memory by call site. Takes memory as sites occur.
    pub memory: MemorySites,
    /// Its note of its own end. Takes no memory before that.
    pub last: ExitNote,
}

impl Ledger {
    pub fn heartbeat(&self, now: Moment) {
        self.heartbeat.store(now.0, Relaxed);
    }

    pub fn step(&self, completed: Step, now: Moment) {
        self.step.store(completed.0, Relaxed);
        self.step_at.store(now.0, Relaxed);
    }

    /// Completed steps, by the last report.
    pub fn completed(&self) -> Step {
        Step(self.step.load(Relaxed))
    }

    pub fn kineto(&self, count: KinetoCount) {
        let word = (count.step.0 & HALF) << 32 | u64::from(count.counted);
        self.kineto.store(word, Relaxed);
    }

    /// Kineto's count, without a copy of the other fields: it is read often.
    pub fn kineto_count(&self) -> Option<KinetoCount> {
        let word = self.kineto.load(Relaxed);
        let counted = (word & HALF) as u32;
        (counted > 0).then_some(KinetoCount { step: Step(word >> 32), counted })
    }

    pub fn pid(&self) -> Pid {
        Pid(self.pid.load(Relaxed) as u32)
    }

    pub fn read(&self) -> Reading {
        let threads = self.threads.iter().filter_map(ThreadLine::read).collect();
        Reading {
            pid: self.pid(),
            heartbeat: Moment(self.heartbeat.load(Relaxed)),
            step: Step(self.step.load(Relaxed)),
            step_at: Moment(self.step_at.load(Relaxed)),
            communicators: self.communicators.iter().filter_map(CommunicatorLine::read).collect(),
            threads,
        }
    }
}

/// The lower half of a word.
const HALF: u64 = u32::MAX as u64;

/// The step count of PyTorch's profiler, by which Kineto starts a trace. It counts optimizer calls, so it
/// differs from the step number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoCount {
    /// The step of the call counted last, by its number at completion.
    pub step: Step,
    pub counted: u32,
}

/// The page at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    pub pid: Pid,
    pub heartbeat: Moment,
    pub step: Step,
    pub step_at: Moment,
    pub communicators: Vec<CommunicatorReading>,
    /// Threads that are inside a call now.
    pub threads: Vec<ThreadReading>,
}
