//! A lane's counts of copies, and the time for which its thread was blocked.

use xpu_wire::{
    frame::{BlockingCall, Direction},
    ledger::Call,
};

use crate::{
    capture,
    observe::{
        lane::{Count, Lane},
        record::{HostCall, Record},
    },
    process::clock::{coarse_now, monotonic},
};

/// The directions in the order of `cudaMemcpyKind`; the last is for copies that name two devices.
pub(crate) const DIRECTIONS: [Direction; 6] = [
    Direction::HostToHost,
    Direction::HostToDevice,
    Direction::DeviceToHost,
    Direction::DeviceToDevice,
    Direction::ByAddress,
    Direction::PeerToPeer,
];

pub(crate) const BLOCKING: [BlockingCall; 5] = [
    BlockingCall::StreamSynchronize,
    BlockingCall::DeviceSynchronize,
    BlockingCall::EventSynchronize,
    BlockingCall::Copy,
    BlockingCall::Launch,
];

#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) count: Count,
    pub(crate) bytes: Count,
}

impl Moved {
    pub(crate) fn add(&self, count: u64, bytes: u64) {
        self.count.add(count);
        self.bytes.add(bytes);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) count: Count,
    /// Nanoseconds.
    pub(crate) waited: Count,
    pub(crate) longest: Count,
}

/// A thread inside a call that waits for the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    call: BlockingCall,
    from: u64,
}

impl Waiting {
    /// Notes in the ledger, before the call, that this thread is inside it.
    pub(crate) fn begin(lane: &Lane, call: BlockingCall) -> Self {
        let shown = match call {
            BlockingCall::StreamSynchronize => Call::StreamSynchronize,
            BlockingCall::DeviceSynchronize => Call::DeviceSynchronize,
            BlockingCall::EventSynchronize => Call::EventSynchronize,
            BlockingCall::Copy => Call::Memory,
            // For a launch, only the lane keeps the time.
            BlockingCall::Launch => Call::Unknown,
        };
        lane.entered(shown, coarse_now());
        Self { call, from: monotonic() }
    }

    /// Counts the blocked time, after the call and whatever its result, because the thread was blocked in any
    /// case.
    pub(crate) fn end(self, lane: &Lane) {
        let waited = monotonic().saturating_sub(self.from);
        lane.left();
        lane.observer().queue.waited();
        let held = &lane.counters.held[self.call as usize];
        held.count.add(1);
        held.waited.add(waited);
        held.longest.raise(waited);
        if capture::is_on() {
            let call = HostCall::Blocked(self.call);
            lane.push(Record::Host { call, bytes: 0, at: self.from, until: self.from + waited });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_match_the_names() {
        assert!(DIRECTIONS.iter().enumerate().all(|(place, &direction)| direction as usize == place));
        assert!(BLOCKING.iter().enumerate().all(|(place, &call)| call as usize == place));
    }
}
