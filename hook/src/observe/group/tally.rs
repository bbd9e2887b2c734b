//! Counts a communicator's operations beyond those that are kept one by one.

use std::ffi::c_int;

use super::{Message, share::Share};
use crate::{interpose::nccl::IN_PROGRESS, observe::lane::Lane};

#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    /// The first collective among them, or else the first operation.
    pub(super) first: Message,
    pub(super) share: Share,
    collectives: Number,
    point_to_point: Number,
}

#[derive(Clone, Copy, Debug, Default)]
struct Number {
    all: u64,
    observed: u64,
}

impl Tally {
    pub(super) fn of(message: Message) -> Self {
        let none = Number::default();
        let mut tally =
            Self { first: message, share: Share::default(), collectives: none, point_to_point: none };
        tally.add(message);
        tally
    }

    /// Whether a message belongs to this tally. Messages of a graph capture count as if they were equal to
    /// the first one.
    pub(super) fn takes(&self, message: &Message) -> bool {
        let first = &self.first;
        let alike = message.graph_capture.is_none()
            || message.operation.is_collective() == first.operation.is_collective();
        (first.communicator, first.graph_capture) == (message.communicator, message.graph_capture) && alike
    }

    pub(super) fn add(&mut self, message: Message) {
        let collective = message.operation.is_collective();
        if collective && self.collectives.all == 0 {
            self.first = message;
        }
        self.share.add(&message);
        let number = if collective { &mut self.collectives } else { &mut self.point_to_point };
        number.all += 1;
        number.observed += u64::from(message.observed);
    }

    pub(super) fn launched(&self, lane: &Lane, result: c_int) {
        if let Some(graph_capture) = self.first.graph_capture {
            return self.first.kept(lane, graph_capture, self.collectives.all + self.point_to_point.all);
        }
        let slot = lane.observer().communicators.slot(self.first.communicator);
        if self.first.observed {
            self.first.holds_up_gemms(lane, slot);
        }
        let stream = (result != IN_PROGRESS).then_some(self.first.stream.addr() as u64);
        let writers = slot.writers();
        slot.progress.advance(writers, stream, self.collectives.all, self.point_to_point.all);
        if let Some(line) = slot.line(lane.observer().ledger()) {
            line.enqueue(slot.id(), self.collectives.all, writers);
        }
        lane.counters.collectives.add(self.collectives.observed);
        lane.counters.point_to_point.add(self.point_to_point.observed);
        lane.ring.lose(self.collectives.observed + self.point_to_point.observed);
    }

    pub(super) fn refused(&self, lane: &Lane) {
        let slot = lane.observer().communicators.slot(self.first.communicator);
        if let Some(line) = slot.line(lane.observer().ledger()).filter(|_| self.first.graph_capture.is_none())
        {
            line.retract(slot.id(), self.collectives.all);
        }
    }
}
