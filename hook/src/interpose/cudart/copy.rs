//! Copies and fills: their number, and the bytes in each direction. A synchronous call blocks its thread.

use std::ffi::{c_int, c_void};

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::{
    frame::{BlockingCall, Direction},
    ledger::Work,
};

use crate::{
    capture,
    gpu::{
        graphs::GraphCaptureId,
        runtime::{CUDART, MISSING},
    },
    interpose::{interpose, interpose_twins},
    observe::{
        activity::{DIRECTIONS, Waiting},
        lane::{Lane, Timing},
        launches::{self, Launch},
        record::{HostCall, Record},
    },
    process::clock::{approximate, monotonic},
};

/// An asynchronous copy or fill in progress; timed only during a capture.
#[derive(Debug)]
pub(crate) struct Move {
    stream: cudaStream_t,
    graph_capture: Option<GraphCaptureId>,
    timing: Timing,
    /// The launch time, in the record's units.
    at: u64,
}

impl Move {
    /// Begins the operation, before the call: starts timing during a capture.
    #[inline]
    pub(crate) fn begin(lane: &Lane, stream: cudaStream_t) -> Self {
        let graph_capture = lane.observer().graph_capture_of(stream);
        let mut new = Self { stream, graph_capture, timing: Timing::Not, at: 0 };
        if graph_capture.is_none() && capture::is_on() {
            new.at = approximate();
            new.timing = lane.start_timing(stream);
            lane.counters.untimed.add(u64::from(matches!(new.timing, Timing::Not)));
        }
        new
    }

    /// Ends a copy with a `cudaMemcpyKind`, after the call.
    pub(crate) fn end_copy(self, lane: &Lane, result: c_int, kind: c_int, bytes: usize) {
        match direction(kind) {
            Some(direction) => self.end(lane, result, Some(direction), bytes),
            None => lane.drop_timing(self.timing),
        }
    }

    /// Ends the operation and counts it, after the call. A fill has no direction.
    pub(crate) fn end(self, lane: &Lane, result: c_int, direction: Option<Direction>, bytes: usize) {
        if result != 0 {
            return lane.drop_timing(self.timing);
        }
        let timer = lane.stop_timing(self.timing, self.stream);
        let bytes = bytes as u64;
        if let Some(graph_capture) = self.graph_capture {
            return lane.observer().graphs.add(graph_capture, |contents| {
                let place = direction
                    .map_or(&mut contents.sets, |direction| &mut contents.copies[direction as usize]);
                *place = (place.0 + 1, place.1 + bytes);
            });
        }
        count(lane, direction, bytes);
        let observer = lane.observer();
        if observer.exposure.has_communication() {
            observer.streams.launched(self.stream, Work::Copy { bytes }.pack(), lane.ticks());
        }
        if self.at > 0 {
            lane.push(Record::Copy { direction, bytes, at: self.at, timer });
        }
    }
}

fn direction(kind: c_int) -> Option<Direction> {
    let known = usize::try_from(kind).ok().filter(|&kind| kind < Direction::PeerToPeer as usize);
    known.and_then(|kind| DIRECTIONS.get(kind).copied())
}

fn count(lane: &Lane, direction: Option<Direction>, bytes: u64) {
    if direction == Some(Direction::HostToDevice) {
        launches::launched(lane, || Launch::copy(bytes));
    }
    match direction {
        Some(direction) => lane.counters.copies[direction as usize].add(1, bytes),
        None => lane.counters.sets.add(1, bytes),
    }
}

/// Counts a copy or a fill without a stream, after the call. Its duration is the time for which it blocked
/// the thread.
fn done(lane: &Lane, result: c_int, direction: Option<Direction>, bytes: usize) {
    if result != 0 {
        return;
    }
    let bytes = bytes as u64;
    count(lane, direction, bytes);
    if capture::is_on() {
        let at = monotonic();
        let call = direction.map_or(HostCall::Set, HostCall::Copy);
        lane.push(Record::Host { call, bytes, at, until: at });
    }
}

fn copied(lane: &Lane, result: c_int, kind: c_int, bytes: usize) {
    if let Some(direction) = direction(kind) {
        done(lane, result, Some(direction), bytes);
    }
}

interpose_twins! {
    fn cudaMemcpy, cudaMemcpy_ptds(
        to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Waiting::begin(lane, BlockingCall::Copy);
    after |lane, waiting, result| {
        waiting.end(lane);
        copied(lane, result, kind, bytes);
    };

    fn cudaMemcpyAsync, cudaMemcpyAsync_ptsz(
        to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Move::begin(lane, stream);
    after |lane, moving, result| moving.end_copy(lane, result, kind, bytes);

    fn cudaMemcpy2D, cudaMemcpy2D_ptds(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: c_int,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Waiting::begin(lane, BlockingCall::Copy);
    after |lane, waiting, result| {
        waiting.end(lane);
        copied(lane, result, kind, width.saturating_mul(height));
    };

    fn cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: c_int, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Move::begin(lane, stream);
    after |lane, moving, result| moving.end_copy(lane, result, kind, width.saturating_mul(height));

    fn cudaMemset, cudaMemset_ptds(at: *mut c_void, value: c_int, bytes: usize) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| done(lane, result, None, bytes);

    fn cudaMemsetAsync, cudaMemsetAsync_ptsz(
        at: *mut c_void, value: c_int, bytes: usize, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Move::begin(lane, stream);
    after |lane, moving, result| moving.end(lane, result, None, bytes);

    fn cudaMemset2D, cudaMemset2D_ptds(
        at: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize,
    ) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| done(lane, result, None, width.saturating_mul(height));
}

interpose! {
    fn cudaMemcpyPeer(
        to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Waiting::begin(lane, BlockingCall::Copy);
    after |lane, waiting, result| {
        waiting.end(lane);
        done(lane, result, Some(Direction::PeerToPeer), bytes);
    };

    fn cudaMemcpyPeerAsync(
        to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Move::begin(lane, stream);
    after |lane, moving, result| moving.end(lane, result, Some(Direction::PeerToPeer), bytes);
}
