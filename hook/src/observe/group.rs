//! Operations that a thread queues between `ncclGroupStart` and the outermost `ncclGroupEnd`, which launches
//! all of them.

mod interval;
mod message;
mod share;
mod tally;

use std::ffi::c_int;

use crate::{
    interpose::nccl::{IN_PROGRESS, Joining, is_early},
    observe::lane::Lane,
    process::{clock::approximate, switch},
};
use interval::Interval;
use share::Share;
use tally::Tally;

pub(crate) use message::{Message, NO_PEER, Timed};

/// Maximum number of operations of one group that are kept one by one: an all-to-all over a thousand ranks
/// has two thousand. Further ones are only counted by communicator. All are recorded at once when the group
/// ends, and must fit into a ring that is not empty.
const fn longest(slots: usize) -> usize {
    slots / 2
}

/// Maximum number of communicators that one group may create.
const MOST_JOINING: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Group {
    depth: u32,
    /// The ticket of its first call in the ledger's record.
    first: u64,
    messages: Vec<Message>,
    /// Operations beyond those in `messages`, by communicator.
    tallies: Vec<Tally>,
    intervals: Vec<Interval>,
    /// Communicators that NCCL creates when the group ends.
    pub(crate) joining: Vec<Joining>,
}

impl Group {
    /// Bytes that the longest group takes.
    pub(crate) const fn memory(slots: usize) -> usize {
        longest(slots) * size_of::<Message>()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.depth > 0
    }

    pub(crate) fn is_outermost(&self) -> bool {
        self.depth == 1
    }

    pub(crate) fn open(&mut self) {
        self.depth += 1;
    }

    /// Queues an operation. `false` if there is no memory for it.
    pub(crate) fn queue(&mut self, message: Message, slots: usize) -> bool {
        if self.messages.is_empty() && self.tallies.is_empty() {
            self.first = message.ticket;
        }
        // After the first operation that is only counted, all later ones are only counted too, so that a
        // communicator's operations keep their order.
        let fits = self.tallies.is_empty() && self.messages.len() < longest(slots);
        if fits && self.messages.try_reserve(1).is_ok() {
            self.messages.push(message);
            return true;
        }
        if let Some(known) = self.tallies.iter_mut().find(|tally| tally.takes(&message)) {
            known.add(message);
            return true;
        }
        let fits = self.tallies.try_reserve(1).is_ok();
        if fits {
            self.tallies.push(Tally::of(message));
        }
        fits
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Keeps a communicator that NCCL creates when the group ends. If there are too many, it is dropped, and
    /// its calls count as unknown.
    pub(crate) fn join(&mut self, joining: Joining) {
        if self.joining.len() < MOST_JOINING && self.joining.try_reserve(1).is_ok() {
            self.joining.push(joining);
        }
    }

    /// Whether the end of the group may allocate memory: NCCL creates communicators, or makes connections for
    /// first operations.
    pub(crate) fn may_allocate(&self, lane: &Lane) -> bool {
        let communicators = &lane.observer().communicators;
        let is_early = |message: &Message| {
            let slot = communicators.slot(message.communicator);
            message.graph_capture.is_none() && is_early(slot.next(message.operation.is_collective()))
        };
        let (first, last) = (self.messages.first(), self.messages.last());
        !self.joining.is_empty() || first.into_iter().chain(last).any(is_early)
    }

    /// Starts timing the selected communicators, before the outermost end.
    pub(crate) fn launch(&mut self, lane: &Lane) {
        self.intervals.clear();
        let single = |message: &Message| {
            let mut share = Share::default();
            share.add(message);
            (*message, share)
        };
        let tallied = self.tallies.iter().map(|tally| (tally.first, tally.share));
        let all = self.messages.iter().map(single).chain(tallied);
        for (message, share) in all.filter(|(message, _)| message.graph_capture.is_none()) {
            let known =
                self.intervals.iter_mut().find(|interval| interval.communicator() == message.communicator);
            if let Some(interval) = known {
                interval.add(message, &share);
            } else if self.intervals.try_reserve(1).is_ok() {
                self.intervals.push(Interval::of(message, share));
            }
        }
        if switch::is_on() {
            self.intervals.iter_mut().for_each(|interval| interval.start(lane));
        }
    }

    /// Closes a group that launches nothing, after its end at any depth.
    pub(crate) fn discard(&mut self, lane: &Lane, result: c_int) {
        if self.is_outermost() {
            self.messages.drain(..).for_each(|message| message.refused(lane));
            self.tallies.drain(..).for_each(|tally| tally.refused(lane));
        }
        self.close(lane, result);
    }

    /// Closes a group, after its end at any depth. The outermost end records the operations.
    pub(crate) fn close(&mut self, lane: &Lane, result: c_int) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 {
            return;
        }
        let launched = result == 0 || result == IN_PROGRESS;
        for interval in &mut self.intervals {
            // If another thread continues the launch, the launch is not between the hook's two events.
            if result == 0 {
                interval.stop(lane);
            } else {
                interval.drop(lane);
            }
        }
        let now = approximate();
        for message in self.messages.drain(..) {
            let slot = lane.observer().communicators.slot(message.communicator);
            if launched { message.launched(lane, slot, None, result, now) } else { message.refused(lane) }
        }
        for tally in self.tallies.drain(..) {
            if launched { tally.launched(lane, result) } else { tally.refused(lane) }
        }
        // Parts are recorded after their operations, because an operation must not appear completed before it
        // appears enqueued.
        for interval in self.intervals.drain(..) {
            if result == 0 {
                interval.record(lane);
            }
        }
        for joining in self.joining.drain(..) {
            if launched {
                // SAFETY: NCCL requires valid places until the group has ended, and the group has just ended.
                unsafe { joining.made(lane, result) };
            }
        }
    }
}
