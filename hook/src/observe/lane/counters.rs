//! The counters of a launching thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xpu_wire::id::{DeviceIndex, Rank};

use crate::observe::{
    activity::{Held, Moved},
    kernels::PATTERNS,
};

/// Totals of a lane, each written by one thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) kernels: Count,
    /// In a process with several devices: the launches on each device except the first, including those in
    /// graphs.
    pub(crate) kernels_beside: Beside,
    /// Launches of kernels with requested names.
    pub(crate) named_kernels: Count,
    /// The same by pattern.
    pub(crate) named: [Count; PATTERNS],
    pub(crate) graphs: Count,
    pub(crate) gemms: Count,
    pub(crate) collectives: Count,
    pub(crate) point_to_point: Count,
    /// Kernels, graphs and GEMMs that were launched before the last collective.
    work_before: AtomicU64,
    pub(crate) graph_captured: Count,
    /// NCCL operations called by a looked-up address, or seen only by NCCL's plugin interface.
    pub(crate) by_address: Count,
    pub(crate) by_plugin: Count,
    /// Events that were recorded or awaited by streams; and the waits in which GEMMs wait for communication.
    pub(crate) ordered: Count,
    pub(crate) waits: Count,
    /// Operations that should have been timed but were not.
    pub(crate) untimed: Count,
    pub(crate) timed: Count,
    /// Empty pairs of events.
    pub(crate) gaps: Count,
    /// Single events that show the GPU's progress.
    pub(crate) marks: Count,
    /// Launches that may have such an event in front: of collectives, and of sends and receives.
    pub(crate) fronts: Count,
    pub(crate) message_fronts: Count,
    /// Operations launched in graphs, which the counters above exclude.
    pub(crate) replayed: Replayed,
    /// By direction: see [`crate::observe::activity::DIRECTIONS`].
    pub(crate) copies: [Moved; 6],
    pub(crate) sets: Moved,
    /// By call: see [`crate::observe::activity::BLOCKING`].
    pub(crate) held: [Held; 5],
}

impl Counters {
    /// Whether the thread has launched kernels since this was last asked.
    #[inline]
    pub(crate) fn has_launched_kernels(&self) -> bool {
        let work = self.kernels.get() + self.graphs.get() + self.gemms.get();
        let before = self.work_before.load(Relaxed);
        self.work_before.store(work, Relaxed);
        work != before
    }

    /// Grows whenever the thread launches or orders anything on a stream.
    pub(crate) fn launched(&self) -> u64 {
        let launches = [
            &self.kernels,
            &self.graphs,
            &self.gemms,
            &self.collectives,
            &self.point_to_point,
            &self.ordered,
            &self.sets.count,
        ];
        let copies = self.copies.iter().map(|moved| &moved.count);
        launches.into_iter().chain(copies).map(Count::get).sum()
    }
}

#[derive(Debug)]
pub(crate) struct Beside([Count; Rank::GPUS as usize]);

impl Default for Beside {
    fn default() -> Self {
        Self([const { Count(AtomicU64::new(0)) }; Rank::GPUS as usize])
    }
}

impl Beside {
    pub(crate) fn of(&self, device: DeviceIndex) -> Option<&Count> {
        self.0.get(device.0 as usize)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) kernels: Count,
    pub(crate) gemms: Count,
    pub(crate) collectives: Count,
    pub(crate) point_to_point: Count,
}

/// A counter with one writer. It uses a load and a store, and no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, n: u64) -> u64 {
        let before = self.0.load(Relaxed);
        self.0.store(before + n, Relaxed);
        before
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Keeps the larger value.
    pub(crate) fn raise(&self, to: u64) {
        if to > self.get() {
            self.0.store(to, Relaxed);
        }
    }
}
