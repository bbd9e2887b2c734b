//! What a summary holds: totals, what is new, and how well the hook itself does.

use std::time::Instant;

use xpu_shared::{
    frame::{
        CollectiveSample, CommunicatorState, HookHealth, Launches, MemoryTotals, StepSource, Steps, Summary,
    },
    ledger::CommunicatorReading,
    unit::Nanoseconds,
};

use super::Publisher;
use crate::{
    communicator::Slot,
    fold::Sample,
    lane::{Count, Lane},
    observer::Observer,
    switch,
};

/// What a launch costs its thread that is recorded but not timed (a product 25 ns, a collective 35 ns, in a group 55 ns), and one
/// that is only counted (a kernel, 8 ns): twice what `make bench` finds in warm caches, or nearly.
const NS_RECORDED: u64 = 60;
const NS_COUNTED: u64 = 20;

impl Publisher {
    fn sum(&self, counter: impl Fn(&Lane) -> &Count) -> u64 {
        self.observer.lanes().map(|lane| counter(lane).get()).sum()
    }

    pub(super) fn launches(&self) -> Launches {
        Launches {
            kernels: self.sum(|lane| &lane.counters.kernels),
            graphs: self.sum(|lane| &lane.counters.graphs),
            gemms: self.sum(|lane| &lane.counters.gemms),
            collectives: self.sum(|lane| &lane.counters.collectives),
            point_to_point: self.sum(|lane| &lane.counters.point_to_point),
            captured: self.sum(|lane| &lane.counters.captured),
        }
    }

    /// What fits into one message; steps and samples are in the last of them.
    pub(super) fn summary(&mut self, launches: Launches) -> Summary {
        let interval = Nanoseconds::from(self.published.elapsed());
        self.published = Instant::now();
        let reading = self.observer.ledger().read();
        let communicators: Vec<_> =
            reading.communicators.iter().map(|line| self.communicator(line)).collect();
        self.charge();
        let (gemms, collectives) = (self.fold.take_gemms(), self.fold.take_collectives());
        let (mut steps, mut samples) = (None, Vec::new());
        if !self.fold.has_more() {
            samples = self.fold.take_samples(Summary::SAMPLES);
            steps = self.fold.take_steps().map(|(completed, durations)| Steps {
                source: StepSource::Marked,
                completed: xpu_shared::id::Step(completed),
                at: reading.step_at,
                durations,
                work: self.observer.work.read(),
            });
        }
        Summary {
            interval,
            steps,
            gemms,
            collectives,
            samples: samples.iter().filter_map(|sample| indexed(sample, &communicators)).collect(),
            communicators,
            launches,
            graphs: Vec::new(),
            kernels: Vec::new(),
            memory: MemoryTotals::default(),
            blocked: Vec::new(),
            device: String::new(),
            hook: self.health(),
        }
    }

    /// Estimates what launching threads spent since the last summary: operations timed at the dearest lane's typical price,
    /// the others at a fixed one.
    fn charge(&mut self) {
        let launches = self.launches();
        let recorded = launches.gemms + launches.collectives + launches.point_to_point;
        let timed = self.sum(|lane| &lane.counters.timed);
        let price = self.observer.lanes().map(Lane::typical_cost).max().unwrap_or(0);
        let recorded = recorded.saturating_sub(timed);
        let counted = launches.kernels + launches.graphs;
        self.spent += (timed - self.timed) * price
            + recorded.saturating_sub(self.recorded) * NS_RECORDED
            + (counted - self.counted) * NS_COUNTED;
        (self.timed, self.recorded, self.counted) = (timed, recorded, counted);
    }

    fn communicator(&self, line: &CommunicatorReading) -> CommunicatorState {
        let mut open = self.observer.communicators.open();
        let parent = open.find(|slot| slot.id() == line.id).and_then(Slot::parent);
        CommunicatorState { parent, ..line.into() }
    }

    fn health(&self) -> HookHealth {
        let lanes = self.observer.lanes().count();
        let dropped = self.observer.lanes().map(|lane| lane.ring.dropped()).sum::<u64>();
        let unobserved = self.observer.unobserved();
        HookHealth {
            enabled: switch::is_on(),
            dropped_records: dropped + unobserved + self.fold.dropped_keys(),
            untimed: self.sum(|lane| &lane.counters.untimed) + self.fold.failed(),
            spent: Nanoseconds(self.spent),
            thread_cpu: thread_cpu(),
            memory: (size_of::<Observer>() + lanes * Lane::MEMORY + self.fold.memory()) as u64,
            budget_ppm: None,
            event_cost: Nanoseconds::default(),
            event_gap: Nanoseconds::default(),
            gemm_rate: switch::gemm_rate(),
            collective_rate: switch::collective_rate(),
            blind: self.blind(),
        }
    }

    fn blind(&self) -> Vec<String> {
        let unknown = self.observer.communicators.unknown();
        let mut blind: Vec<String> = self.observer.complaint.iter().cloned().collect();
        if unknown > 0 {
            blind.push(format!("{unknown} NCCL calls on communicators whose making was not seen"));
        }
        blind
    }
}

/// A sample with its communicator's place in the message; dropped if the communicator is closed already.
fn indexed(sample: &Sample, communicators: &[CommunicatorState]) -> Option<CollectiveSample> {
    let index = communicators.iter().position(|communicator| communicator.id == sample.communicator)?;
    Some(CollectiveSample {
        communicator: u8::try_from(index).ok()?,
        sequence: sample.sequence,
        operation: sample.operation,
        bus_bytes: sample.bus_bytes,
        duration: sample.duration,
    })
}

fn thread_cpu() -> Nanoseconds {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
