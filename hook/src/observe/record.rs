//! A record that a launching thread sends to the hook's thread: a small value, copied into a ring.

use std::ffi::c_int;

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{BlockingCall, Direction, StepSource},
    gemm::GemmShape,
    sampling::Rate,
};

use crate::{gpu::timer::TimerId, observe::launches::Launch};

/// Identifies a send or receive by properties that the other rank also knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageKey {
    pub(crate) peer: u32,
    /// Its number among the messages from one rank to the other.
    pub(crate) pair: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Record {
    Gemm {
        shape: GemmShape,
        /// Launch time in monotonic nanoseconds; 0 if the operation was not to be timed.
        at: u64,
        timer: Option<TimerId>,
        /// Its device, in a process that uses several.
        device: Option<c_int>,
    },
    Collective {
        /// Slot in the table of communicators.
        communicator: u16,
        operation: Operation,
        datatype: DataType,
        /// Message size and bytes over the bus.
        bytes: u64,
        bus_bytes: u64,
        /// Its number among the communicator's collectives, or among its sends and receives.
        sequence: u64,
        /// When it was launched, in monotonic nanoseconds.
        at: u64,
        /// The message of a send or receive.
        message: Option<MessageKey>,
        timer: Option<TimerId>,
        /// Its sampling rate, if GEMMs on its stream wait for it.
        exposed: Option<Rate>,
        /// Its ticket in the ledger's record.
        ticket: u64,
    },
    /// The timed launch of one communicator's part of a group; the part's operations have separate records.
    Interval {
        communicator: u16,
        operation: Operation,
        datatype: DataType,
        bytes: u64,
        bus_bytes: u64,
        /// The number of the first collective; without a collective, of the first send or receive.
        sequence: u64,
        /// The number of collectives; 0 if there are only sends and receives, which differ between ranks.
        collectives: u64,
        /// The send and the receive, if there is at most one of each and it moves the group's bytes.
        messages: [Option<MessageKey>; 2],
        /// When it was launched, in monotonic nanoseconds.
        at: u64,
        timer: TimerId,
        exposed: Option<Rate>,
    },
    /// The launch of an executable graph, by its number.
    Graph {
        graph: u32,
        /// When it was launched, in monotonic nanoseconds; 0 if it was not to be timed.
        at: u64,
        timer: Option<TimerId>,
    },
    /// The launch of a kernel selected for timing, by the pattern that its name matches.
    Kernel {
        pattern: u8,
        /// When it was launched, in monotonic nanoseconds; 0 if it was not to be timed.
        at: u64,
        timer: Option<TimerId>,
    },
    /// An asynchronous copy, or a fill, which has no direction. Only during a capture.
    Copy { direction: Option<Direction>, bytes: u64, at: u64, timer: Option<TimerId> },
    /// GEMMs wait for communication on another stream; the wait is timed.
    Wait { timer: TimerId },
    /// A pair of events with nothing in between.
    Gap { timer: TimerId },
    /// A call that blocked its thread, or that moved memory without a stream. Only during a capture.
    Host { call: HostCall, bytes: u64, at: u64, until: u64 },
    /// Any launch, during a search for steps.
    Launched { launch: Launch },
    /// A detected step began: number `steps` of the current count.
    Begun { steps: u64, at: u64 },
    /// The duration of a step on the GPU.
    StepTime { timer: TimerId },
    Step {
        source: StepSource,
        completed: u64,
        /// Monotonic nanoseconds.
        at: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HostCall {
    Copy(Direction),
    Set,
    Blocked(BlockingCall),
    /// A Python function, by its number.
    Function(u16),
    /// A span of the program, by the number of its name.
    Span(u16),
}

impl Record {
    /// The pair of events that the hook's thread must read and return for this record.
    #[inline]
    pub(crate) fn timer(&self) -> Option<TimerId> {
        match *self {
            Self::Gemm { timer, .. }
            | Self::Collective { timer, .. }
            | Self::Graph { timer, .. }
            | Self::Kernel { timer, .. }
            | Self::Copy { timer, .. } => timer,
            Self::Interval { timer, .. }
            | Self::Wait { timer, .. }
            | Self::Gap { timer }
            | Self::StepTime { timer } => Some(timer),
            Self::Step { .. } | Self::Host { .. } | Self::Launched { .. } | Self::Begun { .. } => None,
        }
    }

    /// Launch time in monotonic nanoseconds, if the clock was read.
    pub(crate) fn at(&self) -> Option<u64> {
        match *self {
            Self::Gemm { at, .. }
            | Self::Collective { at, .. }
            | Self::Interval { at, .. }
            | Self::Graph { at, .. }
            | Self::Kernel { at, .. }
            | Self::Copy { at, .. }
            | Self::Host { at, .. } => Some(at).filter(|&at| at > 0),
            Self::Wait { .. }
            | Self::Gap { .. }
            | Self::StepTime { .. }
            | Self::Step { .. }
            | Self::Launched { .. }
            | Self::Begun { .. } => None,
        }
    }
}
