//! What a thread queues between `ncclGroupStart` and the outermost `ncclGroupEnd`, where all of it launches.

use std::ffi::c_int;

use cudarc::runtime::sys::cudaStream_t;
use xpu_shared::{collective::Operation, datatype::DataType};

use crate::{
    lane::{Lane, Timing},
    nccl::IN_PROGRESS,
    record::Record,
    switch,
    timer::TimerId,
};

/// Operations of one group that are kept: an all-to-all over a thousand ranks is two thousand.
const LONGEST: usize = 4096;

/// An operation as the program asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) communicator: u16,
    pub(crate) operation: Operation,
    pub(crate) datatype: DataType,
    pub(crate) bytes: u64,
    pub(crate) bus_bytes: u64,
    pub(crate) stream: cudaStream_t,
    /// Observing was on when the program asked for it.
    pub(crate) observed: bool,
    /// It goes into a CUDA graph, and is not launched now.
    pub(crate) captured: bool,
}

impl Message {
    /// Gives it its number, and counts and records it.
    pub(crate) fn launched(&self, lane: &Lane, timer: Option<TimerId>) {
        let slot = lane.observer().communicators.slot(self.communicator);
        let collective = self.operation.is_collective();
        let sequence = slot.next(collective);
        slot.advance(collective, 1);
        if let Some(line) = slot.line(lane.observer().ledger()).filter(|_| collective) {
            line.enqueue(1);
        }
        if !self.observed {
            return;
        }
        lane.push(Record::Collective {
            communicator: self.communicator,
            operation: self.operation,
            datatype: self.datatype,
            bytes: self.bytes,
            bus_bytes: self.bus_bytes,
            sequence,
            timer,
        });
        if collective {
            lane.counters.collectives.add(1)
        } else {
            lane.counters.point_to_point.add(1)
        };
        if self.captured {
            lane.counters.captured.add(1);
        }
    }

    /// Takes back that it was entered.
    fn refused(&self, lane: &Lane) {
        let slot = lane.observer().communicators.slot(self.communicator);
        if let Some(line) = slot.line(lane.observer().ledger()).filter(|_| self.operation.is_collective()) {
            line.retract(1);
        }
    }
}

/// The collectives of one communicator in a group: they launch as one kernel and are timed as one.
#[derive(Clone, Copy, Debug)]
struct Interval {
    communicator: u16,
    stream: cudaStream_t,
    collectives: u64,
    bus_bytes: u64,
    bytes: u64,
    datatype: DataType,
    captured: bool,
    timing: Timing,
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    depth: u32,
    messages: Vec<Message>,
    intervals: Vec<Interval>,
}

impl Group {
    pub(crate) fn is_open(&self) -> bool {
        self.depth > 0
    }

    pub(crate) fn is_outermost(&self) -> bool {
        self.depth == 1
    }

    pub(crate) fn open(&mut self) {
        self.depth += 1;
    }

    /// `false` if the group is already as long as can be kept.
    pub(crate) fn queue(&mut self, message: Message) -> bool {
        let fits = self.messages.len() < LONGEST && self.messages.try_reserve(1).is_ok();
        if fits {
            self.messages.push(message);
        }
        fits
    }

    /// Before the outermost end: starts timing the communicators whose turn it is.
    pub(crate) fn launch(&mut self, lane: &Lane) {
        self.intervals.clear();
        for message in self.messages.iter().filter(|message| message.operation.is_collective()) {
            let known =
                self.intervals.iter_mut().find(|interval| interval.communicator == message.communicator);
            if let Some(interval) = known {
                interval.collectives += 1;
                interval.bus_bytes += message.bus_bytes;
                interval.bytes += message.bytes;
                interval.captured |= message.captured;
            } else {
                self.intervals.push(Interval {
                    communicator: message.communicator,
                    stream: message.stream,
                    collectives: 1,
                    bus_bytes: message.bus_bytes,
                    bytes: message.bytes,
                    datatype: message.datatype,
                    captured: message.captured,
                    timing: Timing::Not,
                });
            }
        }
        if !switch::is_on() {
            return;
        }
        for interval in self.intervals.iter_mut().filter(|interval| !interval.captured) {
            let slot = lane.observer().communicators.slot(interval.communicator);
            if slot.size() > 1 && switch::collective_rate().times(slot.next(true)) {
                interval.timing = lane.start_timing(interval.stream);
                if matches!(interval.timing, Timing::Not) {
                    lane.counters.untimed.add(1);
                }
            }
        }
    }

    /// After the end of a group, whichever depth it had.
    pub(crate) fn close(&mut self, lane: &Lane, result: c_int) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 {
            return;
        }
        let launched = result == 0 || result == IN_PROGRESS;
        for interval in &self.intervals {
            // A launch that goes on in another thread is not between our two events.
            if result == 0 {
                self.record_interval(lane, interval);
            } else {
                lane.drop_timing(interval.timing);
            }
        }
        self.intervals.clear();
        for message in self.messages.drain(..) {
            if launched { message.launched(lane, None) } else { message.refused(lane) }
        }
    }

    /// A single collective keeps its name; several become one fused operation, beside the counts of each.
    fn record_interval(&self, lane: &Lane, interval: &Interval) {
        let Some(timer) = lane.stop_timing(interval.timing, interval.stream) else { return };
        let slot = lane.observer().communicators.slot(interval.communicator);
        lane.push(Record::Interval {
            communicator: interval.communicator,
            operation: self.name_of(interval),
            datatype: interval.datatype,
            bytes: interval.bytes,
            bus_bytes: interval.bus_bytes,
            sequence: slot.next(true),
            collectives: interval.collectives,
            timer,
        });
    }

    fn name_of(&self, interval: &Interval) -> Operation {
        let mut members = self
            .messages
            .iter()
            .filter(|m| m.operation.is_collective() && m.communicator == interval.communicator);
        match (members.next(), members.next()) {
            (Some(only), None) => only.operation,
            _ => Operation::Fused,
        }
    }
}
