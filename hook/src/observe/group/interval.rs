//! One communicator's part of a group. It usually launches as one kernel, and is timed as one.

use xpu_wire::sampling::Rate;

use super::{Message, share::Share};
use crate::{
    gpu::timer::TimerId,
    observe::{
        communicator::Slot,
        lane::{Lane, Timing},
        record::{MessageKey, Record},
    },
    process::{clock::approximate, switch},
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// The first collective, or else the first operation.
    first: Message,
    share: Share,
    timing: Timing,
    /// The sampling rate, if the part was selected for timing.
    chosen: Option<Rate>,
    timer: Option<TimerId>,
    /// When it was launched, in monotonic nanoseconds.
    at: u64,
    /// The number of the first collective, or else of the first operation.
    number: u64,
}

impl Interval {
    pub(super) fn of(first: Message, share: Share) -> Self {
        Self { first, share, timing: Timing::Not, chosen: None, timer: None, at: 0, number: 0 }
    }

    pub(super) fn communicator(&self) -> u16 {
        self.first.communicator
    }

    pub(super) fn add(&mut self, message: Message, share: &Share) {
        if self.share.collectives == 0 && share.collectives > 0 {
            self.first = message;
        }
        self.share.merge(share);
    }

    /// Whether the number is that of a collective. Such numbers are the same on all ranks, and decide whether
    /// the part is timed. Sends and receives have separate numbers.
    fn is_collective(&self) -> bool {
        self.share.collectives > 0
    }

    /// Starts timing if the part is selected. Called before the launch.
    pub(super) fn start(&mut self, lane: &Lane) {
        let slot = lane.observer().communicators.slot(self.communicator());
        let timeable = slot.size() > 1 && !self.share.is_one_sided();
        if timeable {
            let queue = &lane.observer().queue;
            let Message { ticket, stream, .. } = self.first;
            let device = slot.device_of(stream);
            if self.is_collective() {
                queue.join(lane, ticket, slot.next(true), stream, device);
            } else {
                queue.join_message(lane, ticket, slot.next(false), stream, device);
            }
        }
        self.chosen = if timeable { self.choose(slot) } else { None };
        if self.chosen.is_some() {
            self.at = approximate();
            self.timing = lane.start_timing_on(self.first.stream, slot.device_of(self.first.stream));
            if matches!(self.timing, Timing::Not) {
                lane.counters.untimed.add(1);
            }
        }
    }

    /// The sampling rate if the part is selected for timing. With at most one message in each direction, both
    /// ends of a message select the same messages.
    fn choose(&self, slot: &Slot) -> Option<Rate> {
        let mut pairs = self.message_keys().into_iter().flatten().map(|key| key.pair);
        match pairs.next() {
            None => slot.choose(self.is_collective(), None),
            Some(first) => {
                let chosen = slot.choose(false, Some(first));
                pairs.next().map_or(chosen, |second| chosen.or_else(|| slot.choose(false, Some(second))))
            }
        }
    }

    fn message_keys(&self) -> [Option<MessageKey>; 2] {
        if self.is_collective() { [None; 2] } else { self.share.message_keys() }
    }

    /// Stops timing: the part was launched since [`Self::start`]. Its operations have no numbers yet.
    pub(super) fn stop(&mut self, lane: &Lane) {
        self.timer = lane.stop_timing(self.timing, self.first.stream);
        self.number = lane.observer().communicators.slot(self.communicator()).next(self.is_collective());
    }

    /// Records the part, after its operations were recorded.
    pub(super) fn record(&self, lane: &Lane) {
        let observer = lane.observer();
        let slot = observer.communicators.slot(self.communicator());
        let Some(timer) = self.timer else {
            if self.is_collective() && switch::is_on() {
                let last = self.number + self.share.collectives - 1;
                observer.completions.launched(lane, self.communicator(), self.first.stream, last);
            }
            return;
        };
        let (operation, bytes, bus_bytes) = self.share.key(&self.first, slot.rank(), slot.size());
        lane.push(Record::Interval {
            communicator: self.communicator(),
            operation,
            datatype: self.first.datatype,
            bytes,
            bus_bytes,
            sequence: self.number,
            collectives: self.share.collectives,
            messages: self.message_keys(),
            at: self.at,
            timer,
            exposed: self.chosen.filter(|_| self.first.holds_up_gemms(lane, slot)),
        });
    }

    /// Drops the timing of a part that was not launched here, or not at all.
    pub(super) fn drop(&self, lane: &Lane) {
        lane.drop_timing(self.timing);
    }
}
