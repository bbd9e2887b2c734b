//! The counts of all lanes, in the wire's format.

use xpu_wire::{
    frame::{Blocked, Copies, MemoryTotals},
    unit::Nanoseconds,
};

use super::Publisher;
use crate::observe::{
    activity::{BLOCKING, DIRECTIONS},
    allocations::MemoryOwner,
};

impl Publisher {
    pub(super) fn memory(&self) -> MemoryTotals {
        let known = &self.observer.allocations;
        let (held, peak) = known.bytes(MemoryOwner::Device);
        let (host_held, _) = known.bytes(MemoryOwner::Host);
        let (allocations, frees) = known.calls();
        let copies = DIRECTIONS.into_iter().enumerate().map(|(place, direction)| Copies {
            direction,
            count: self.sum(|lane| &lane.counters.copies[place].count),
            bytes: self.sum(|lane| &lane.counters.copies[place].bytes),
        });
        MemoryTotals {
            held,
            peak,
            host_held,
            allocations,
            frees,
            set: self.sum(|lane| &lane.counters.sets.bytes),
            sets: self.sum(|lane| &lane.counters.sets.count),
            copies: copies.filter(|copies| copies.count > 0).collect(),
            nccl: self.observer.nccl_memory.bytes(),
            sites: Vec::new(),
        }
    }

    pub(super) fn blocked(&self) -> Vec<Blocked> {
        let all = BLOCKING.into_iter().enumerate().map(|(place, call)| Blocked {
            call,
            count: self.sum(|lane| &lane.counters.held[place].count),
            waited: Nanoseconds(self.sum(|lane| &lane.counters.held[place].waited)),
            longest: Nanoseconds(
                self.observer.lanes().map(|lane| lane.counters.held[place].longest.get()).max().unwrap_or(0),
            ),
        });
        all.filter(|blocked| blocked.count > 0).collect()
    }
}
