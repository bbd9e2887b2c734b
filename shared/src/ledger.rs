//! The ledger page: what a rank is doing, readable from outside when it is hung, stopped or dead.
//!
//! The hook writes it with plain relaxed stores, the collector maps the same pages read-only. It lives in a memfd that
//! the collector opens through `/proc/<pid>/fd/<n>`: nothing is left on disk when the rank is killed, and a mapping made
//! before the rank died stays readable after it. Every field is one atomic word; a reader may see two fields from two
//! moments, never half a field.

mod page;

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

pub use page::LedgerPage;

use serde::{Deserialize, Serialize};

use crate::{
    collective::Operation,
    id::{CommunicatorId, Pid, Step},
    unit::Moment,
};

/// `xpuledg` and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"xpuledg\x01");

/// Communicators a rank can show at once; a 5-way parallel job uses about ten.
pub const COMMUNICATORS: usize = 64;

/// Threads that can be shown inside a call at once.
pub const THREADS: usize = 64;

/// The page as it lies in memory, all words little-endian of the same machine.
#[repr(C)]
#[derive(Debug)]
pub struct Ledger {
    magic: AtomicU64,
    pid: AtomicU64,
    /// When the hook's own thread last ran: it goes on while the program is hung, and stops with SIGSTOP.
    heartbeat: AtomicU64,
    /// Steps completed, and when the last one was.
    step: AtomicU64,
    step_at: AtomicU64,
    pub communicators: [CommunicatorLine; COMMUNICATORS],
    pub threads: [ThreadLine; THREADS],
}

/// One communicator's counters. A line whose id is 0 is free.
#[repr(C)]
#[derive(Debug)]
pub struct CommunicatorLine {
    id: AtomicU64,
    /// Collectives whose call was entered, whose call returned, and that are known to have completed on the GPU.
    entered: AtomicU64,
    enqueued: AtomicU64,
    completed: AtomicU64,
    /// The last one entered: operation in the top byte, bytes below.
    last: AtomicU64,
    last_at: AtomicU64,
    /// This rank's number in it, and its size, 32 bits each.
    place: AtomicU64,
    /// Sends and receives entered; they carry no sequence number of their own.
    point_to_point: AtomicU64,
}

/// What one thread is inside of. A line whose thread is 0 is free.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadLine {
    /// Kernel thread id in the low half, [`Call`] in the high half.
    thread_and_call: AtomicU64,
    since: AtomicU64,
}

/// An interposed call that can block its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Call {
    None = 0,
    Collective = 1,
    GroupEnd = 2,
    CommunicatorInit = 3,
    CommunicatorEnd = 4,
    StreamSynchronize = 5,
    DeviceSynchronize = 6,
    EventSynchronize = 7,
    /// A copy or an allocation that may wait for the GPU.
    Memory = 8,
    GraphLaunch = 9,
    /// A call of a hook newer than this reader.
    Unknown = u32::MAX,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "no call",
            Self::Collective => "an NCCL operation",
            Self::GroupEnd => "ncclGroupEnd",
            Self::CommunicatorInit => "making a communicator",
            Self::CommunicatorEnd => "ending a communicator",
            Self::StreamSynchronize => "cudaStreamSynchronize",
            Self::DeviceSynchronize => "cudaDeviceSynchronize",
            Self::EventSynchronize => "cudaEventSynchronize",
            Self::Memory => "a copy or an allocation",
            Self::GraphLaunch => "cudaGraphLaunch",
            Self::Unknown => "a call this version does not know",
        })
    }
}

impl Call {
    fn from_word(word: u32) -> Self {
        match word {
            0 => Self::None,
            1 => Self::Collective,
            2 => Self::GroupEnd,
            3 => Self::CommunicatorInit,
            4 => Self::CommunicatorEnd,
            5 => Self::StreamSynchronize,
            6 => Self::DeviceSynchronize,
            7 => Self::EventSynchronize,
            8 => Self::Memory,
            9 => Self::GraphLaunch,
            _ => Self::Unknown,
        }
    }
}

impl Ledger {
    pub fn beat(&self, now: Moment) {
        self.heartbeat.store(now.0, Relaxed);
    }

    pub fn step(&self, completed: Step, now: Moment) {
        self.step.store(completed.0, Relaxed);
        self.step_at.store(now.0, Relaxed);
    }

    pub fn read(&self) -> Reading {
        let threads = self.threads.iter().filter_map(ThreadLine::read).collect();
        Reading {
            pid: Pid(self.pid.load(Relaxed) as u32),
            heartbeat: Moment(self.heartbeat.load(Relaxed)),
            step: Step(self.step.load(Relaxed)),
            step_at: Moment(self.step_at.load(Relaxed)),
            communicators: self.communicators.iter().filter_map(CommunicatorLine::read).collect(),
            threads,
        }
    }
}

impl CommunicatorLine {
    pub fn open(&self, id: CommunicatorId, rank: u32, size: u32) {
        for word in
            [&self.entered, &self.enqueued, &self.completed, &self.last, &self.last_at, &self.point_to_point]
        {
            word.store(0, Relaxed);
        }
        self.place.store(u64::from(rank) << 32 | u64::from(size), Relaxed);
        self.id.store(id.0, Relaxed);
    }

    pub fn is_free(&self) -> bool {
        self.id.load(Relaxed) == 0
    }

    pub fn close(&self) {
        self.id.store(0, Relaxed);
    }

    /// `count` more collectives were entered; `operation` of `bytes` was the last.
    pub fn enter(&self, count: u64, operation: Operation, bytes: u64, now: Moment) {
        self.last.store((operation as u64) << 56 | bytes.min((1 << 56) - 1), Relaxed);
        self.last_at.store(now.0, Relaxed);
        self.entered.store(self.entered.load(Relaxed) + count, Relaxed);
    }

    /// `count` entered ones were refused by NCCL after all.
    pub fn retract(&self, count: u64) {
        self.entered.store(self.entered.load(Relaxed).saturating_sub(count), Relaxed);
    }

    pub fn enqueue(&self, count: u64) {
        self.enqueued.store(self.enqueued.load(Relaxed) + count, Relaxed);
    }

    /// Everything up to and including collective number `sequence` is done. Never goes back.
    pub fn complete(&self, sequence: u64) {
        self.completed.fetch_max(sequence + 1, Relaxed);
    }

    /// `count` more sends and receives were entered.
    pub fn point_to_point(&self, count: u64) {
        self.point_to_point.store(self.point_to_point.load(Relaxed) + count, Relaxed);
    }

    fn read(&self) -> Option<CommunicatorReading> {
        let id = self.id.load(Relaxed);
        let last = self.last.load(Relaxed);
        let place = self.place.load(Relaxed);
        (id != 0).then(|| CommunicatorReading {
            id: CommunicatorId(id),
            rank: (place >> 32) as u32,
            size: place as u32,
            entered: self.entered.load(Relaxed),
            enqueued: self.enqueued.load(Relaxed),
            completed: self.completed.load(Relaxed),
            last_operation: Operation::ALL.get((last >> 56) as usize).copied(),
            last_bytes: last & ((1 << 56) - 1),
            last_at: Moment(self.last_at.load(Relaxed)),
            point_to_point: self.point_to_point.load(Relaxed),
        })
    }
}

impl ThreadLine {
    /// Takes a free line for this thread. `false` if another thread was faster.
    pub fn claim(&self, thread: u32) -> bool {
        self.thread_and_call.compare_exchange(0, u64::from(thread), Relaxed, Relaxed).is_ok()
    }

    /// Gives the line back, whoever it belonged to.
    pub fn release(&self) {
        self.thread_and_call.store(0, Relaxed);
    }

    pub fn thread(&self) -> u32 {
        self.thread_and_call.load(Relaxed) as u32
    }

    pub fn enter(&self, call: Call, now: Moment) {
        self.since.store(now.0, Relaxed);
        self.thread_and_call.store(u64::from(call as u32) << 32 | u64::from(self.thread()), Relaxed);
    }

    pub fn leave(&self) {
        self.thread_and_call.store(u64::from(self.thread()), Relaxed);
    }

    fn read(&self) -> Option<ThreadReading> {
        let word = self.thread_and_call.load(Relaxed);
        let call = Call::from_word((word >> 32) as u32);
        (word != 0 && call != Call::None).then(|| ThreadReading {
            thread: word as u32,
            call,
            since: Moment(self.since.load(Relaxed)),
        })
    }
}

/// What the page said at one moment.
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

#[derive(Clone, Debug, PartialEq)]
pub struct CommunicatorReading {
    pub id: CommunicatorId,
    pub rank: u32,
    pub size: u32,
    pub entered: u64,
    pub enqueued: u64,
    /// At least so many are done; more may be.
    pub completed: u64,
    pub last_operation: Option<Operation>,
    pub last_bytes: u64,
    pub last_at: Moment,
    pub point_to_point: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadReading {
    pub thread: u32,
    pub call: Call,
    pub since: Moment,
}
