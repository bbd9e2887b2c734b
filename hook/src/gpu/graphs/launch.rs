//! The launch of an executable graph: all its contents are counted, and the launch is timed as one operation.

use std::ffi::c_int;

use cudarc::runtime::sys::{cudaGraphExec_t, cudaStream_t};
use xpu_wire::{
    collective::Operation,
    ledger::{Call, Calling, How, Work, Writers},
    unit::Moment,
};

use super::{Contents, GraphCaptureId, contents::Share, executable::Executable};
use crate::{
    observe::{
        communicator::Slot,
        lane::{Lane, Timing},
        launches,
        observer::Observer,
        record::Record,
    },
    process::{
        clock::{approximate, coarse_now},
        switch,
    },
    publish::rate::{self, Class},
};

#[derive(Debug)]
pub(crate) struct Launch {
    executable: &'static Executable,
    stream: cudaStream_t,
    /// The graph capture into another graph, if there is one.
    graph_capture: Option<GraphCaptureId>,
    /// Whether it was selected for timing.
    chosen: bool,
    timing: Timing,
}

impl Launch {
    /// Begins the launch, before the call: starts timing if the launch is selected.
    pub(crate) fn begin(lane: &'static Lane, graph: cudaGraphExec_t, stream: cudaStream_t) -> Self {
        let observer = lane.observer();
        let executable = observer.graphs.executables.pin(graph.addr());
        let graph_capture = observer.graph_capture_of(stream);
        let now = coarse_now();
        lane.entered(Call::GraphLaunch, now);
        let (mut chosen, mut timing) = (false, Timing::Not);
        if graph_capture.is_none() {
            if let Some(contents) = executable.contents() {
                contents.enter(observer, stream, now);
            }
            if switch::is_on() {
                launches::launched(lane, || {
                    launches::Launch::graph(executable.number(), executable.signature())
                });
                lane.before_launch(|| Some(stream));
            }
            chosen = switch::is_on() && rate::of(Class::Graph).times(lane.counters.graphs.get());
            if chosen {
                timing = lane.start_timing(stream);
                lane.counters.untimed.add(u64::from(matches!(timing, Timing::Not)));
            }
        }
        Self { executable, stream, graph_capture, chosen, timing }
    }

    /// Ends the launch, after the call: counts the graph's contents.
    pub(crate) fn end(self, lane: &'static Lane, result: c_int) {
        lane.left();
        let observer = lane.observer();
        let contents = self.executable.contents();
        match (self.graph_capture, contents) {
            (Some(graph_capture), Some(contents)) if result == 0 => {
                observer.graphs.add(graph_capture, |outer| outer.merge(contents));
            }
            (Some(_), _) => {}
            (None, contents) if result != 0 => {
                lane.drop_timing(self.timing);
                if let Some(contents) = contents {
                    contents.retract(observer);
                }
            }
            (None, contents) => {
                let timer = lane.stop_timing(self.timing, self.stream);
                if let Some(contents) = contents {
                    contents.enqueue(lane, self.stream);
                }
                if switch::is_on() {
                    let device = observer.gpus.of_launch();
                    observer.streams.launched(self.stream, Work::Graph.pack(), lane.ticks());
                    lane.counters.graphs.add(1);
                    if let Some(contents) = contents {
                        contents.count(lane, device);
                        if contents.gemms > 0 {
                            observer.exposure.multiplies_on(self.stream);
                        }
                    }
                    self.executable.launched(device);
                }
                if timer.is_some() || switch::is_on() {
                    let at = if self.chosen { approximate() } else { 0 };
                    lane.push(Record::Graph { graph: self.executable.number(), at, timer });
                }
                if let Some((optimizer, steps)) = contents.and_then(Contents::optimizer) {
                    observer.optimizer_stepped(lane, optimizer, steps);
                }
            }
        }
        self.executable.unpin();
    }
}

impl Share {
    /// The communicator's slot, if the communicator was not closed meanwhile.
    fn slot<'a>(&self, observer: &'a Observer) -> Option<&'a Slot> {
        Some(observer.communicators.slot(self.communicator)).filter(|slot| slot.id() == self.id)
    }
}

impl Contents {
    fn enter(&self, observer: &Observer, stream: cudaStream_t, now: Moment) {
        for share in self.shares() {
            let Some(slot) = share.slot(observer) else { continue };
            let Some(line) = slot.line(observer.ledger()) else { continue };
            let note = |number, operation, count: u64| {
                observer.ledger().record.enter(&Calling {
                    communicator: share.id,
                    member: slot.rank(),
                    number,
                    operation,
                    datatype: u8::MAX,
                    reduction: 0,
                    peer: -1,
                    bytes: 0,
                    stream: stream.addr() as u64,
                    how: How::Replayed(u32::try_from(count).unwrap_or(u32::MAX)),
                    at: now,
                    returns_to: 0,
                    site: 0,
                })
            };
            if let Some((operation, bytes)) = share.last {
                let number = line.enter(share.id, share.collectives, operation, bytes, now, Writers::Many);
                note(number, operation, share.collectives);
            }
            line.point_to_point(share.id, share.point_to_point, Writers::Many);
            if share.point_to_point > 0 {
                note(None, Operation::SendRecv, share.point_to_point);
            }
        }
    }

    fn retract(&self, observer: &Observer) {
        for share in self.shares() {
            if let Some(line) = share.slot(observer).and_then(|slot| slot.line(observer.ledger())) {
                line.retract(share.id, share.collectives);
            }
        }
    }

    fn enqueue(&self, lane: &'static Lane, stream: cudaStream_t) {
        let observer = lane.observer();
        for share in self.shares() {
            let Some(slot) = share.slot(observer) else { continue };
            let on = Some(stream.addr() as u64);
            let before = slot.progress.advance(Writers::Many, on, share.collectives, share.point_to_point);
            if let Some(line) = slot.line(observer.ledger()) {
                line.enqueue(share.id, share.collectives, Writers::Many);
                if switch::is_on() && share.collectives > 0 {
                    observer.completions.launched(
                        lane,
                        share.communicator,
                        stream,
                        before + share.collectives - 1,
                    );
                }
            }
        }
    }

    /// Adds to the lane's counts; the fold counts GEMMs and operations by kind.
    fn count(&self, lane: &Lane, device: Option<c_int>) {
        let counters = &lane.counters;
        counters.replayed.kernels.add(self.kernels);
        lane.count_kernels_beside(device, self.kernels);
        counters.replayed.gemms.add(self.gemms);
        counters.replayed.collectives.add(self.collectives);
        counters.replayed.point_to_point.add(self.point_to_point);
        for (counter, (count, bytes)) in counters.copies.iter().zip(self.copies) {
            counter.add(count, bytes);
        }
        counters.sets.add(self.sets.0, self.sets.1);
    }
}
