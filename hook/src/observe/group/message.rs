//! An NCCL operation as the program requested it.

use std::ffi::c_int;

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::{collective::Operation, datatype::DataType, sampling::Rate};

use crate::{
    gpu::{graphs::GraphCaptureId, timer::TimerId},
    interpose::nccl::IN_PROGRESS,
    observe::{
        communicator::Slot,
        lane::Lane,
        launches::{self, Launch},
        record::{MessageKey, Record},
    },
};

/// The peer of an operation without one.
pub(crate) const NO_PEER: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) communicator: u16,
    /// Its ticket in the ledger's record.
    pub(crate) ticket: u64,
    pub(crate) operation: Operation,
    /// The peer of a send or receive.
    pub(crate) peer: u32,
    /// Its number among the messages from one rank to the other, if these are counted.
    pub(crate) pair: Option<u32>,
    pub(crate) datatype: DataType,
    pub(crate) bytes: u64,
    pub(crate) bus_bytes: u64,
    pub(crate) stream: cudaStream_t,
    /// Whether observing was on at the request.
    pub(crate) observed: bool,
    /// The graph capture, if the operation goes into a CUDA graph and is not launched now.
    pub(crate) graph_capture: Option<GraphCaptureId>,
}

/// The timer of a launch, and the sampling rate by which it was selected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) timer: TimerId,
    pub(crate) rate: Rate,
}

impl Message {
    /// Numbers the operation, and counts and records it as launched at this time. `slot` is that of its
    /// communicator.
    #[allow(clippy::inline_always, reason = "it is on the path of every NCCL call, and has two callers")]
    #[inline(always)]
    pub(crate) fn launched(&self, lane: &Lane, slot: &Slot, timed: Option<Timed>, result: c_int, at: u64) {
        if let Some(graph_capture) = self.graph_capture {
            return self.kept(lane, graph_capture, 1);
        }
        let stream = (result != IN_PROGRESS).then_some(self.stream.addr() as u64);
        let collective = self.operation.is_collective();
        let sequence = slot.next(collective);
        let writers = slot.writers();
        slot.progress.advance(writers, stream, u64::from(collective), u64::from(!collective));
        let ledger = lane.observer().ledger();
        ledger.record.enqueued(self.ticket);
        if let Some(line) = slot.line(ledger).filter(|_| collective) {
            line.enqueue(slot.id(), 1, writers);
        }
        if !self.observed {
            return;
        }
        launches::launched(lane, || Launch::collective(self.operation, self.bytes, slot.size()));
        let holds_up = self.holds_up_gemms(lane, slot);
        lane.push(Record::Collective {
            communicator: self.communicator,
            operation: self.operation,
            datatype: self.datatype,
            bytes: self.bytes,
            bus_bytes: self.bus_bytes,
            sequence,
            at,
            message: self.key(),
            timer: timed.map(|timed| timed.timer),
            exposed: timed.map(|timed| timed.rate).filter(|_| holds_up),
            ticket: self.ticket,
        });
        if collective {
            lane.counters.collectives.add(1)
        } else {
            lane.counters.point_to_point.add(1)
        };
    }

    /// Identifies the message for the rank at the other end.
    pub(super) fn key(&self) -> Option<MessageKey> {
        let pair = self.pair.filter(|_| matches!(self.operation, Operation::Send | Operation::Recv))?;
        Some(MessageKey { peer: self.peer, pair })
    }

    /// Notes the operation's stream. Returns whether GEMMs on that stream wait for it.
    pub(super) fn holds_up_gemms(&self, lane: &Lane, slot: &Slot) -> bool {
        slot.size() > 1 && lane.observer().exposure.communicates_on(self.stream)
    }

    /// Adds `count` operations of this kind to a graph; they get numbers when the graph is launched.
    pub(super) fn kept(&self, lane: &Lane, graph_capture: GraphCaptureId, count: u64) {
        let observer = lane.observer();
        let slot = observer.communicators.slot(self.communicator);
        slot.graph_captured();
        observer.graphs.add(graph_capture, |contents| contents.add_messages(self, slot.id(), count));
        if self.observed {
            lane.counters.graph_captured.add(count);
        }
    }

    /// Removes the operation's entry from the ledger's record.
    pub(crate) fn refused(&self, lane: &Lane) {
        let ledger = lane.observer().ledger();
        ledger.record.refused(self.ticket);
        let slot = lane.observer().communicators.slot(self.communicator);
        let counts = self.operation.is_collective() && self.graph_capture.is_none();
        if let Some(line) = slot.line(ledger).filter(|_| counts) {
            line.retract(slot.id(), 1);
        }
    }
}
