//! What a thread queues between `ncclGroupStart` and the outermost `ncclGroupEnd`, where all of it launches.

use std::ffi::c_int;

use cudarc::runtime::sys::cudaStream_t;
use xpu_shared::{collective::Operation, datatype::DataType};

use crate::{
    lane::{Lane, Timing, monotonic},
    nccl::{IN_PROGRESS, Joining},
    record::Record,
    switch,
    timer::TimerId,
};

/// Operations of one group that are kept one by one: an all-to-all over a thousand ranks is two thousand. More are only
/// counted, by communicator. All are recorded at once when the group ends, and must fit into a ring that is not empty.
const LONGEST: usize = crate::ring::SLOTS / 2;

/// Communicators one group may make.
const MOST_JOINING: usize = 64;

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
    /// Gives it its number, and counts and records it as launched at this time.
    pub(crate) fn launched(&self, lane: &Lane, timer: Option<TimerId>, result: c_int, at: u64) {
        let slot = lane.observer().communicators.slot(self.communicator);
        slot.ran_on((result != IN_PROGRESS).then_some(self.stream.addr()));
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
            at,
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
    /// A single collective keeps its name; several become one fused operation, beside the counts of each.
    operation: Operation,
    collectives: u64,
    bus_bytes: u64,
    bytes: u64,
    datatype: DataType,
    captured: bool,
    timing: Timing,
}

/// What is kept of a communicator's operations beyond those of [`LONGEST`]: their number.
#[derive(Clone, Copy, Debug)]
struct Tally {
    /// The first collective of them, or the first of them.
    first: Message,
    collectives: Number,
    point_to_point: Number,
    bytes: u64,
    bus_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Number {
    all: u64,
    observed: u64,
    captured: u64,
}

impl Tally {
    fn add(&mut self, message: Message) {
        let collective = message.operation.is_collective();
        if collective && self.collectives.all == 0 {
            self.first = message;
        }
        if collective {
            self.bytes += message.bytes;
            self.bus_bytes += message.bus_bytes;
        }
        let number = if collective { &mut self.collectives } else { &mut self.point_to_point };
        number.all += 1;
        number.observed += u64::from(message.observed);
        number.captured += u64::from(message.observed && message.captured);
    }

    fn launched(&self, lane: &Lane, result: c_int) {
        let slot = lane.observer().communicators.slot(self.first.communicator);
        slot.ran_on((result != IN_PROGRESS).then_some(self.first.stream.addr()));
        slot.advance(true, self.collectives.all);
        slot.advance(false, self.point_to_point.all);
        if let Some(line) = slot.line(lane.observer().ledger()) {
            line.enqueue(self.collectives.all);
        }
        lane.counters.collectives.add(self.collectives.observed);
        lane.counters.point_to_point.add(self.point_to_point.observed);
        lane.counters.captured.add(self.collectives.captured + self.point_to_point.captured);
        lane.ring.lose(self.collectives.observed + self.point_to_point.observed);
    }

    fn refused(&self, lane: &Lane) {
        let slot = lane.observer().communicators.slot(self.first.communicator);
        if let Some(line) = slot.line(lane.observer().ledger()) {
            line.retract(self.collectives.all);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    depth: u32,
    messages: Vec<Message>,
    /// By communicator; what came after the messages.
    tallies: Vec<Tally>,
    intervals: Vec<Interval>,
    /// Communicators that are made when the group ends.
    pub(crate) joining: Vec<Joining>,
}

impl Group {
    /// Bytes the longest group takes.
    pub(crate) const MEMORY: usize = LONGEST * size_of::<Message>();

    pub(crate) fn is_open(&self) -> bool {
        self.depth > 0
    }

    pub(crate) fn is_outermost(&self) -> bool {
        self.depth == 1
    }

    pub(crate) fn open(&mut self) {
        self.depth += 1;
    }

    /// `false` if there is no memory to know of it.
    pub(crate) fn queue(&mut self, message: Message) -> bool {
        // Once some are only tallied all are: a communicator's operations keep their order.
        let fits = self.tallies.is_empty() && self.messages.len() < LONGEST;
        if fits && self.messages.try_reserve(1).is_ok() {
            self.messages.push(message);
            return true;
        }
        if let Some(known) =
            self.tallies.iter_mut().find(|tally| tally.first.communicator == message.communicator)
        {
            known.add(message);
            return true;
        }
        let room = self.tallies.try_reserve(1).is_ok();
        if room {
            let none = Number::default();
            let mut tally =
                Tally { first: message, collectives: none, point_to_point: none, bytes: 0, bus_bytes: 0 };
            tally.add(message);
            self.tallies.push(tally);
        }
        room
    }

    /// Remembers a communicator that is made when the group ends. One too many is forgotten: its calls count as unknown.
    pub(crate) fn join(&mut self, joining: Joining) {
        if self.joining.len() < MOST_JOINING && self.joining.try_reserve(1).is_ok() {
            self.joining.push(joining);
        }
    }

    /// Before the outermost end: starts timing the communicators whose turn it is.
    pub(crate) fn launch(&mut self, lane: &Lane) {
        self.intervals.clear();
        let single = |message: &Message| (*message, 1, message.bytes, message.bus_bytes);
        let kept = self.messages.iter().filter(|message| message.operation.is_collective()).map(single);
        let tallied = self.tallies.iter().filter(|tally| tally.collectives.all > 0);
        let tallied = tallied.map(|tally| (tally.first, tally.collectives.all, tally.bytes, tally.bus_bytes));
        for (message, collectives, bytes, bus_bytes) in kept.chain(tallied) {
            let known =
                self.intervals.iter_mut().find(|interval| interval.communicator == message.communicator);
            if let Some(interval) = known {
                interval.operation = Operation::Fused;
                interval.collectives += collectives;
                interval.bus_bytes += bus_bytes;
                interval.bytes += bytes;
                interval.captured |= message.captured;
            } else if self.intervals.try_reserve(1).is_ok() {
                self.intervals.push(Interval {
                    communicator: message.communicator,
                    stream: message.stream,
                    operation: if collectives > 1 { Operation::Fused } else { message.operation },
                    collectives,
                    bus_bytes,
                    bytes,
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
            if slot.size() > 1 && slot.choose(true) {
                interval.timing = lane.start_timing(interval.stream);
                if matches!(interval.timing, Timing::Not) {
                    lane.counters.untimed.add(1);
                }
            }
        }
    }

    /// After the end of a group that launches nothing, whichever depth it had.
    pub(crate) fn discard(&mut self, lane: &Lane, result: c_int) {
        if self.is_outermost() {
            self.messages.drain(..).for_each(|message| message.refused(lane));
            self.tallies.drain(..).for_each(|tally| tally.refused(lane));
        }
        self.close(lane, result);
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
                interval.record(lane);
            } else {
                lane.drop_timing(interval.timing);
            }
        }
        self.intervals.clear();
        let now = monotonic();
        for message in self.messages.drain(..) {
            if launched { message.launched(lane, None, result, now) } else { message.refused(lane) }
        }
        for tally in self.tallies.drain(..) {
            if launched { tally.launched(lane, result) } else { tally.refused(lane) }
        }
        for joining in self.joining.drain(..) {
            if launched {
                // SAFETY: NCCL wants the places to be valid until the group has ended, and has ended it.
                unsafe { joining.made(lane, result) };
            }
        }
    }
}

impl Interval {
    fn record(&self, lane: &Lane) {
        let observer = lane.observer();
        let slot = observer.communicators.slot(self.communicator);
        let Some(timer) = lane.stop_timing(self.timing, self.stream) else {
            if !self.captured && switch::is_on() {
                let last = slot.next(true) + self.collectives - 1;
                observer.completions.launched(lane, self.communicator, self.stream, last);
            }
            return;
        };
        lane.push(Record::Interval {
            communicator: self.communicator,
            operation: self.operation,
            datatype: self.datatype,
            bytes: self.bytes,
            bus_bytes: self.bus_bytes,
            sequence: slot.next(true),
            collectives: self.collectives,
            timer,
        });
    }
}
