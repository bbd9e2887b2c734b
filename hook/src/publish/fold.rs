//! Adds the records of launching threads to totals, on the hook's thread.

mod exposed;
mod gpus;
mod graphs;
mod kernels;
mod report;
mod steps;
mod totals;
mod waiting;

use std::{collections::VecDeque, ffi::c_int};

use exposed::Exposed;
use gpus::GpuTally;
use graphs::GraphTally;
use kernels::KernelTally;
pub(crate) use report::OnGpu;
use steps::Steps;
pub(crate) use steps::TakenSteps;
use totals::Totals;
use waiting::{Waiting, visit};
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    gemm::GemmShape,
    id::{CommunicatorId, DeviceIndex, DeviceUuid, Sequence},
    unit::Nanoseconds,
};

use crate::{
    capture::Capture,
    gpu::{
        runtime::{self, RELAXED},
        timer::Elapsed,
    },
    interpose::driver,
    observe::{
        lane::Lane,
        launches::Launch,
        observer::Observer,
        record::{MessageKey, Record},
    },
    process::clock::monotonic,
};

/// Maximum number of totals of one kind in one message. While a message is assembled, each takes up to 20
/// KiB.
const TOTALS_AT_ONCE: usize = 128;

/// Maximum number of samples kept between two summaries. The most important ones are sent.
const SAMPLES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Fold {
    gemms: Totals<GemmKey>,
    collectives: Totals<CollectiveKey>,
    graphs: GraphTally,
    kernels: KernelTally,
    exposed: Exposed,
    gpus: GpuTally,
    waiting: VecDeque<Waiting>,
    /// Whether events that show the GPU's progress are pending.
    marks_wait: bool,
    samples: Vec<Sample>,
    /// Durations of empty pairs of events since the last call that took them.
    gaps: Vec<Nanoseconds>,
    steps: Steps,
    pub(crate) capture: Capture,
    /// This thread's current device.
    device: Option<c_int>,
    /// CUDA's name of the first timing's device; empty if CUDA refuses, `None` before the query.
    device_name: Option<String>,
    device_uuid: Option<DeviceUuid>,
    /// Number of timings that CUDA refused.
    failed: u64,
    /// Number of timings read so far.
    read: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GemmKey {
    /// Its GPU, as in [`crate::gpu::gpus::Gpus::beside_home`].
    gpu: Option<DeviceIndex>,
    shape: GemmShape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CollectiveKey {
    gpu: Option<DeviceIndex>,
    communicator: CommunicatorId,
    operation: Operation,
    datatype: DataType,
    bytes: u64,
}

/// A timed collective, to be matched with those of other ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) communicator: CommunicatorId,
    /// The rank in the communicator. A process may have several ranks of a communicator.
    pub(crate) rank: u32,
    /// The communicator's size, and its number of collectives so far. The communicator may be closed when the
    /// sample is sent.
    pub(crate) size: u32,
    pub(crate) collectives: u64,
    pub(crate) sequence: Sequence,
    pub(crate) operation: Operation,
    pub(crate) bus_bytes: u64,
    pub(crate) duration: Nanoseconds,
    /// The peer of a send or receive.
    pub(crate) peer: Option<u32>,
}

/// A collective that the GPU has completed, or all collectives of a group.
struct Timed {
    communicator: u16,
    operation: Operation,
    datatype: DataType,
    bytes: u64,
    bus_bytes: u64,
    /// The number of the first collective, and how many collectives there are.
    sequence: u64,
    collectives: u64,
    duration: Nanoseconds,
}

impl Fold {
    /// Takes all records from the lanes, and reads finished timers.
    pub(crate) fn gather(&mut self, observer: &'static Observer) {
        let begun = monotonic();
        self.gpus.begin(begun);
        // Waits are counted before the records are read: so for each counted wait, the records show whether
        // it was selected.
        let waits = observer.lanes().map(|lane| lane.counters.waits.get()).sum();
        for (number, lane) in observer.lanes().enumerate() {
            while let Some(record) = lane.ring.pop() {
                self.count(observer, lane, &record);
                self.capture.launched(observer, number, &record);
                if let Some(timer) = record.timer() {
                    self.waiting.push_back(Waiting { thread: number, lane, timer, record });
                }
            }
        }
        self.steps.settle(begun);
        self.count_graphs(observer);
        self.count_kernels(observer);
        let mut waiting = std::mem::take(&mut self.waiting);
        visit(&mut waiting, Waiting::queue, |waiting| {
            self.make_current(waiting.lane.timers.device(waiting.timer));
            let result = waiting.lane.timers.read(waiting.timer);
            waiting.note_progress(observer, result);
            match result {
                Elapsed::NotYet => return false,
                Elapsed::Failed => {
                    self.failed += 1;
                    if matches!(waiting.record, Record::Wait { .. }) {
                        self.exposed.failed();
                    }
                }
                Elapsed::Took(duration) => {
                    self.read += 1;
                    self.time(observer, waiting, duration);
                    let Waiting { thread, lane, timer, ref record } = *waiting;
                    self.capture.timed(observer, thread, lane, timer, record, duration);
                }
            }
            waiting.lane.timers.give_back(waiting.timer);
            true
        });
        self.waiting = waiting;
        self.settle_gemms(&observer.gpus, false);
        self.exposed.settle(waits);
        let waiting = self.waiting.iter().filter_map(|waiting| waiting.record.at());
        self.capture.settle(self.device, waiting);
        let queued = observer.queue.gather(observer, |device| self.make_current(device));
        self.marks_wait = observer.completions.gather(observer, |device| self.make_current(device)) || queued;
        self.name_device();
        self.name_gpus(observer);
    }

    /// Makes this device current for this thread. A runtime call on a thread without a device would create a
    /// context on device 0, which takes half a gigabyte of GPU memory. The device of a pair of events already
    /// has a context.
    fn make_current(&mut self, device: Option<c_int>) {
        let Some(device) = device.filter(|_| device != self.device) else { return };
        runtime::make_current(device);
        if self.device.is_none() {
            // Called with a current device, because this call would also create a context.
            runtime::exchange_graph_capture_mode(RELAXED);
        }
        self.device = Some(device);
    }

    /// Queries the device's name once, when an event shows that the device has a context.
    fn name_device(&mut self) {
        let (None, Some(device)) = (&self.device_name, self.device) else { return };
        self.device_name = Some(driver::device_name(device).unwrap_or_default());
        self.device_uuid = driver::device_uuid(device);
    }

    /// The device's name; empty while it is unknown.
    pub(crate) fn device_name(&self) -> &str {
        self.device_name.as_deref().unwrap_or_default()
    }

    pub(crate) fn device_uuid(&self) -> Option<DeviceUuid> {
        self.device_uuid
    }

    fn count(&mut self, observer: &Observer, lane: &Lane, record: &Record) {
        match *record {
            Record::Gemm { shape, .. } => {
                self.steps.gemm(&shape);
                let device = gpus::device_of(observer, lane, record);
                self.gpus.count(device, |launches| launches.gemms += 1);
                self.add_gemm(&observer.gpus, device, shape, None);
            }
            Record::Collective { communicator, operation, datatype, bytes, at, .. } => {
                let slot = observer.communicators.slot(communicator);
                let launch = Launch { at, ..Launch::collective(operation, bytes, slot.size()) };
                let ended = self.steps.collective(observer, &launch, slot.size());
                self.detected(ended);
                let (gpu, communicator) = (observer.gpus.beside_home(slot.device()), slot.id());
                self.gpus.count(slot.device(), |launches| launches.count_nccl(operation, 1));
                self.collectives.count(CollectiveKey { gpu, communicator, operation, datatype, bytes }, 1);
            }
            Record::Launched { launch } => self.steps.launched(lane.address(), launch),
            Record::Begun { steps, at } => {
                let ended = self.steps.begun(observer, steps, at);
                self.detected(ended);
            }
            Record::Interval { .. }
            | Record::Graph { .. }
            | Record::Kernel { .. }
            | Record::Copy { .. }
            | Record::Gap { .. }
            | Record::StepTime { .. }
            | Record::Host { .. } => {}
            Record::Wait { .. } => self.exposed.choose(),
            Record::Step { source, completed, at } => {
                if self.steps.mark(source, completed, at) {
                    self.capture.mark(completed, at, source);
                }
            }
        }
    }

    fn time(&mut self, observer: &Observer, waiting: &Waiting, duration: Nanoseconds) {
        let &Waiting { lane, timer, ref record, .. } = waiting;
        match *record {
            Record::Gemm { shape, .. } => {
                let device = gpus::device_of(observer, lane, record);
                self.gpus.timed(&observer.gpus, device);
                self.add_gemm(&observer.gpus, device, shape, Some(duration));
            }
            Record::Collective {
                communicator,
                operation,
                datatype,
                bytes,
                bus_bytes,
                sequence,
                message,
                exposed,
                ..
            } => {
                self.exposed.communicated(observer, lane.timers.device(timer), duration, exposed);
                if let Some(message) = message {
                    self.keep_message(observer, communicator, operation, message, bus_bytes, duration);
                }
                let collectives = u64::from(operation.is_collective());
                self.time_collective(
                    observer,
                    &Timed {
                        communicator,
                        operation,
                        datatype,
                        bytes,
                        bus_bytes,
                        sequence,
                        collectives,
                        duration,
                    },
                );
            }
            Record::Interval {
                communicator,
                operation,
                datatype,
                bytes,
                bus_bytes,
                sequence,
                collectives,
                messages,
                exposed,
                ..
            } => {
                self.exposed.communicated(observer, lane.timers.device(timer), duration, exposed);
                for (operation, message) in [Operation::Send, Operation::Recv].into_iter().zip(messages) {
                    if let Some(message) = message {
                        self.keep_message(observer, communicator, operation, message, bus_bytes, duration);
                    }
                }
                let several = match operation {
                    Operation::Fused | Operation::SendRecv => true,
                    // An all-to-all may consist of sends and receives, or be one collective.
                    Operation::AlltoAll => collectives == 0,
                    _ => false,
                };
                if several {
                    let slot = observer.communicators.slot(communicator);
                    let (gpu, communicator) = (observer.gpus.beside_home(slot.device()), slot.id());
                    self.collectives
                        .count(CollectiveKey { gpu, communicator, operation, datatype, bytes }, 1);
                }
                self.time_collective(
                    observer,
                    &Timed {
                        communicator,
                        operation,
                        datatype,
                        bytes,
                        bus_bytes,
                        sequence,
                        collectives,
                        duration,
                    },
                );
            }
            Record::Graph { graph, .. } => self.graphs.time(graph, duration),
            Record::Kernel { pattern, .. } => self.kernels.time(pattern, duration),
            Record::Wait { .. } => self.exposed.waited(observer, lane.timers.device(timer), duration),
            Record::Gap { .. } => self.gaps.push(duration),
            Record::StepTime { .. } => self.steps.timed(duration),
            Record::Step { .. }
            | Record::Copy { .. }
            | Record::Host { .. }
            | Record::Launched { .. }
            | Record::Begun { .. } => {}
        }
    }

    /// Passes a detected step that ended to the capture: its number, and when it ended.
    fn detected(&mut self, ended: Option<(u64, u64)>) {
        if let Some((completed, at)) = ended {
            self.capture.mark(completed, at, self.steps.source_of_detected());
        }
    }

    /// Keeps a timed send or receive, to be matched with the rank at the other end.
    fn keep_message(
        &mut self,
        observer: &Observer,
        index: u16,
        operation: Operation,
        message: MessageKey,
        bus_bytes: u64,
        duration: Nanoseconds,
    ) {
        let slot = observer.communicators.slot(index);
        if self.samples.len() < SAMPLES {
            self.samples.push(Sample {
                communicator: slot.id(),
                rank: slot.rank(),
                size: slot.size(),
                collectives: slot.next(true),
                sequence: Sequence(u64::from(message.pair)),
                operation,
                bus_bytes,
                duration,
                peer: Some(message.peer),
            });
        }
    }

    fn time_collective(&mut self, observer: &Observer, timed: &Timed) {
        let &Timed { operation, datatype, bytes, bus_bytes, sequence, collectives, duration, .. } = timed;
        let slot = observer.communicators.slot(timed.communicator);
        let (gpu, communicator) = (observer.gpus.beside_home(slot.device()), slot.id());
        self.collectives.time(CollectiveKey { gpu, communicator, operation, datatype, bytes }, duration);
        if collectives == 0 {
            return;
        }
        if let Some(line) = slot.line(observer.ledger()) {
            line.complete(communicator, sequence + collectives - 1);
        }
        if self.samples.len() < SAMPLES {
            let sequence = Sequence(sequence);
            self.samples.push(Sample {
                communicator,
                rank: slot.rank(),
                size: slot.size(),
                collectives: slot.next(true),
                sequence,
                operation,
                bus_bytes,
                duration,
                peer: None,
            });
        }
    }
}
