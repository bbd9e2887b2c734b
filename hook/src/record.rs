//! What a launching thread tells the hook's own thread: a small value that is copied into a ring.

use xpu_shared::{collective::Operation, datatype::DataType, gemm::GemmShape};

use crate::timer::TimerId;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Record {
    Gemm {
        shape: GemmShape,
        timer: Option<TimerId>,
    },
    Collective {
        /// Slot in the table of communicators.
        communicator: u16,
        operation: Operation,
        datatype: DataType,
        /// Message size and bytes over the bus.
        bytes: u64,
        bus_bytes: u64,
        /// The communicator's number of this collective; of a send or receive, the number among those.
        sequence: u64,
        /// When it was launched, in monotonic nanoseconds.
        at: u64,
        timer: Option<TimerId>,
    },
    /// The timed launch of what one communicator does in a group; its operations are counted each by itself.
    Interval {
        communicator: u16,
        operation: Operation,
        datatype: DataType,
        bytes: u64,
        bus_bytes: u64,
        /// Of the first collective; without one, of the first send or receive among those.
        sequence: u64,
        /// 0 if there are only sends and receives: what other ranks do is another thing.
        collectives: u64,
        timer: TimerId,
    },
    /// The launch of an executable graph, by its number.
    Graph {
        graph: u32,
        /// A hash of what it holds.
        signature: u32,
        /// Ranks of the widest communicator that it has a collective of; 0 without any.
        size: u32,
        /// When it was launched, in monotonic nanoseconds.
        at: u64,
        timer: Option<TimerId>,
    },
    /// The timed launch of a kernel, by the pattern that its name matches.
    Kernel {
        pattern: u8,
        timer: TimerId,
    },
    /// A pair of events with nothing in between.
    Gap {
        timer: TimerId,
    },
    Step {
        completed: u64,
        /// Monotonic nanoseconds.
        at: u64,
    },
}

impl Record {
    /// The pair of events that has to be read, and given back, for this record.
    pub(crate) fn timer(&self) -> Option<TimerId> {
        match *self {
            Self::Gemm { timer, .. } | Self::Collective { timer, .. } | Self::Graph { timer, .. } => timer,
            Self::Interval { timer, .. } | Self::Kernel { timer, .. } | Self::Gap { timer } => Some(timer),
            Self::Step { .. } => None,
        }
    }
}
