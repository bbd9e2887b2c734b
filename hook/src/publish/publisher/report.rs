//! The content of a summary: totals, and events since the last summary.

use std::time::Instant;

use xpu_wire::{
    frame::{CollectiveSample, CommunicatorState, GpuSummary, Launches, StepSource, Steps, Summary},
    id::DeviceIndex,
    ledger::{COMMUNICATORS, CommunicatorReading},
    unit::Nanoseconds,
};

use super::Publisher;
use crate::{
    observe::{
        communicator::Slot,
        lane::{Count, Counters, Lane},
        spans,
    },
    process::clock::monotonic,
    publish::fold::{OnGpu, Sample, TakenSteps},
    python::functions,
};

impl Publisher {
    pub(super) fn sum(&self, counter: impl Fn(&Lane) -> &Count) -> u64 {
        self.observer.lanes().map(|lane| counter(lane).get()).sum()
    }

    pub(super) fn launches(&self) -> Launches {
        let both = |counter: fn(&Counters) -> [&Count; 2]| -> u64 {
            self.observer.lanes().flat_map(|lane| counter(&lane.counters)).map(Count::get).sum()
        };
        Launches {
            kernels: both(|all| [&all.kernels, &all.replayed.kernels]),
            graphs: self.sum(|lane| &lane.counters.graphs),
            gemms: both(|all| [&all.gemms, &all.replayed.gemms]),
            collectives: both(|all| [&all.collectives, &all.replayed.collectives]),
            point_to_point: both(|all| [&all.point_to_point, &all.replayed.point_to_point]),
            captured: self.sum(|lane| &lane.counters.graph_captured),
        }
    }

    /// The content of one message. Steps and samples are in the last message of a summary.
    pub(super) fn summary(&mut self, launches: Launches, gpus: &[DeviceIndex]) -> Summary {
        let interval = Nanoseconds::from(self.published.elapsed());
        self.published = Instant::now();
        let reading = self.observer.ledger().read();
        let mut communicators: Vec<_> =
            reading.communicators.iter().map(|line| self.communicator(line)).collect();
        self.governor.visit(self.observer, monotonic());
        let (gemms, collectives) = (self.fold.take_gemms(), self.fold.take_collectives());
        let (graphs, kernels) = (self.fold.take_graphs(&self.observer.gpus), self.fold.take_kernels());
        let (mut steps, mut samples) = (None, Vec::new());
        // The last of several messages, after which no totals remain.
        if !self.fold.has_more() {
            samples = self.fold.take_samples(Summary::SAMPLES);
            add_closed(&mut communicators, &samples);
            steps = self.fold.take_steps().map(|TakenSteps { last, durations, timed_by }| Steps {
                source: last.source,
                completed: xpu_wire::id::Step(last.completed),
                at: last.moment(),
                durations,
                timed_by,
                optimizer: match last.source {
                    StepSource::Optimizer => self.observer.optimizers.name(),
                    StepSource::Marked | StepSource::Detected | StepSource::DetectedLate => String::new(),
                },
                work: self.observer.work.read(),
            });
        }
        let mut gpus = self.gpus(gpus, &communicators, launches);
        Summary {
            interval,
            steps,
            gemms: self.by_gpu(gemms, &mut gpus, |gpu| &mut gpu.gemms),
            collectives: self.by_gpu(collectives, &mut gpus, |gpu| &mut gpu.collectives),
            samples: samples.iter().filter_map(|sample| indexed(sample, &communicators)).collect(),
            communicators,
            launches,
            graphs: self.by_gpu(graphs, &mut gpus, |gpu| &mut gpu.graphs),
            kernels,
            memory: self.memory(),
            blocked: self.blocked(),
            exposed_for: self.fold.exposed_for(self.observer),
            python: functions::totals(),
            spans: spans::totals(),
            device: self.fold.device_name().to_owned(),
            device_uuid: self.fold.device_uuid(),
            gpus,
            hook: self.health(),
        }
    }

    /// The data of each GPU, without totals.
    fn gpus(
        &self,
        gpus: &[DeviceIndex],
        communicators: &[CommunicatorState],
        launches: Launches,
    ) -> Vec<GpuSummary> {
        let kernels = |gpu| {
            let counts = self.observer.lanes().filter_map(|lane| lane.counters.kernels_beside.of(gpu));
            counts.map(Count::get).sum::<u64>()
        };
        let beside: u64 = gpus.iter().map(|&gpu| kernels(gpu)).sum();
        let device = |state: &CommunicatorState| {
            let mut open = self.observer.communicators.open();
            let slot = open.find(|slot| (slot.id(), slot.rank()) == (state.id, state.rank));
            slot.and_then(|slot| self.observer.gpus.beside_home(slot.device()))
        };
        let devices: Vec<_> = communicators.iter().map(device).collect();
        let each = gpus.iter().map(|&index| {
            let here = self.beside_home(index);
            let (name, uuid) = self.fold.name_of_gpu(index);
            let (memory_held, memory_peak) = self.observer.allocations.held_on(index);
            let of_process = launches.kernels.saturating_sub(beside);
            GpuSummary {
                index,
                name,
                uuid,
                communicators: (0..=u8::MAX)
                    .zip(&devices)
                    .filter(|&(_, &on)| on == here)
                    .map(|(at, _)| at)
                    .collect(),
                launches: Launches {
                    kernels: here.map_or(of_process, kernels),
                    ..self.fold.launches_on(&self.observer.gpus, here)
                },
                exposed_for: self.fold.exposed_on(self.observer, here),
                memory_held,
                memory_peak,
                ..GpuSummary::default()
            }
        });
        each.collect()
    }

    fn beside_home(&self, gpu: DeviceIndex) -> Option<DeviceIndex> {
        self.observer.gpus.beside_home(Some(gpu.0.cast_signed()))
    }

    /// Assigns totals to their GPUs. With a single GPU, all totals stay with the process.
    fn by_gpu<T>(
        &self,
        totals: Vec<OnGpu<T>>,
        gpus: &mut [GpuSummary],
        of: impl Fn(&mut GpuSummary) -> &mut Vec<T>,
    ) -> Vec<T> {
        let mut rest = Vec::new();
        for (gpu, total) in totals {
            match gpus.iter_mut().find(|one| self.beside_home(one.index) == gpu) {
                Some(gpu) => of(gpu).push(total),
                None => rest.push(total),
            }
        }
        rest
    }

    fn communicator(&self, line: &CommunicatorReading) -> CommunicatorState {
        let mut open = self.observer.communicators.open();
        let slot = open.find(|slot| slot.id() == line.id);
        let name = slot.map(|slot| slot.name().to_string()).unwrap_or_default();
        CommunicatorState { parent: slot.and_then(Slot::parent), name, ..line.into() }
    }
}

/// Adds the communicators of these samples that were closed since the last message.
fn add_closed(communicators: &mut Vec<CommunicatorState>, samples: &[Sample]) {
    for sample in samples {
        let is_listed = communicators.iter().any(|state| is_of(sample, state));
        // A communicator's size is unknown if it was closed before NCCL was queried.
        if !is_listed && sample.size > 0 && communicators.len() < COMMUNICATORS {
            communicators.push(CommunicatorState {
                id: sample.communicator,
                parent: None,
                name: String::new(),
                rank: sample.rank,
                size: sample.size,
                entered: sample.collectives,
                enqueued: sample.collectives,
                completed: sample.collectives,
                last_operation: Some(sample.operation),
                last_bytes: 0,
            });
        }
    }
}

fn is_of(sample: &Sample, state: &CommunicatorState) -> bool {
    (state.id, state.rank) == (sample.communicator, sample.rank)
}

/// A sample with the index of its communicator in the message; `None` if the message does not have that
/// communicator.
fn indexed(sample: &Sample, communicators: &[CommunicatorState]) -> Option<CollectiveSample> {
    let index = communicators.iter().position(|state| is_of(sample, state))?;
    Some(CollectiveSample {
        communicator: u8::try_from(index).ok()?,
        sequence: match sample.peer {
            Some(peer) => CollectiveSample::sequence_of(peer, sample.sequence.0 as u32),
            None => sample.sequence,
        },
        operation: sample.operation,
        bus_bytes: sample.bus_bytes,
        duration: sample.duration,
    })
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        collective::Operation,
        id::{CommunicatorId, Sequence},
    };

    use super::*;

    fn sample(communicator: u64, sequence: u64) -> Sample {
        Sample {
            communicator: CommunicatorId(communicator),
            rank: 1,
            size: 2,
            collectives: 25,
            sequence: Sequence(sequence),
            operation: Operation::AllReduce,
            bus_bytes: 8,
            duration: Nanoseconds(5),
            peer: None,
        }
    }

    #[test]
    fn a_communicator_that_was_closed_meanwhile_is_sent_with_its_samples() {
        let mut communicators = Vec::new();
        add_closed(&mut communicators, &[sample(7, 0), sample(7, 1), sample(8, 0)]);
        let ids: Vec<_> =
            communicators.iter().map(|state| (state.id.0, state.size, state.completed)).collect();
        assert_eq!(ids, [(7, 2, 25), (8, 2, 25)]);
        assert_eq!(indexed(&sample(8, 3), &communicators).map(|sample| sample.communicator), Some(1));
    }

    #[test]
    fn a_message_holds_no_more_communicators_than_the_ledger_page() {
        let mut communicators = Vec::new();
        let samples: Vec<_> = (0..100).map(|id| sample(id, 0)).collect();
        add_closed(&mut communicators, &samples);
        assert_eq!(communicators.len(), COMMUNICATORS);
        assert_eq!(indexed(&sample(99, 0), &communicators), None);
    }
}
