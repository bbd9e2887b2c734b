//! The hook's state and its cost.

use std::sync::atomic::Ordering::Relaxed;

use xpu_wire::{
    frame::{HookHealth, NcclReport},
    unit::Nanoseconds,
};

use super::Publisher;
use crate::{
    gpu::{exposure::Exposure, graphs::Graphs, streams::Streams},
    interpose::nccl::NCCL,
    observe::{allocations::Allocations, communicator::Communicators, lane::Lane, observer::Observer},
    process::switch,
    publish::{
        budget,
        rate::{self, Class},
    },
};

impl Publisher {
    pub(super) fn nccl(&self) -> NcclReport {
        let by_plugin = self.sum(|lane| &lane.counters.by_plugin);
        NcclReport {
            by_address: self.sum(|lane| &lane.counters.by_address),
            by_plugin,
            // Calls to another copy of NCCL may be counted through the plugin.
            uncounted: self.observer.communicators.unknown() + NCCL.elsewhere().saturating_sub(by_plugin),
            plans: self.fold.plans(NcclReport::PLANS),
        }
    }

    pub(super) fn health(&self) -> HookHealth {
        let dropped = self.observer.lanes().map(|lane| lane.ring.dropped()).sum::<u64>();
        let unobserved = self.observer.unobserved();
        let overhead = &self.observer.overhead;
        HookHealth {
            enabled: switch::is_enabled(),
            dropped_records: dropped + unobserved + self.fold.dropped_keys(),
            untimed: self.sum(|lane| &lane.counters.untimed) + self.fold.failed(),
            spent: Nanoseconds(overhead.spent.load(Relaxed)),
            thread_cpu: thread_cpu(),
            memory: (size_of::<Observer>()
                + Allocations::MEMORY
                + Graphs::MEMORY
                + Communicators::MEMORY
                + Exposure::MEMORY
                + Streams::MEMORY
                + self.observer.lanes().map(Lane::holds).sum::<usize>()
                + self.fold.memory()) as u64,
            budget_ppm: budget::ppm(),
            event_cost: Nanoseconds(overhead.event_cost.load(Relaxed)),
            event_gap: Nanoseconds(overhead.event_gap.load(Relaxed)),
            gemm_rate: rate::of(Class::Gemm),
            collective_rate: rate::of(Class::Collective),
            blind: self.blind(),
        }
    }
}

fn thread_cpu() -> Nanoseconds {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
