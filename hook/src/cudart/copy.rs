//! Copies and fills: how many, and how many bytes each way. One that is not asynchronous holds its thread.

use std::ffi::{c_int, c_void};

use cudarc::runtime::sys::cudaStream_t;
use xpu_shared::frame::{BlockingCall, Direction};

use crate::{
    activity::{DIRECTIONS, Waiting},
    capture,
    interpose::{interpose, interpose_twins},
    lane::{Lane, monotonic},
    record::{HostCall, Record},
    runtime::{CUDART, MISSING},
};

/// A copy of `bytes`, by `cudaMemcpyKind`; on a stream unless it holds its thread.
fn copied(lane: &Lane, result: c_int, kind: c_int, bytes: usize, stream: Option<cudaStream_t>) {
    let known = usize::try_from(kind).ok().filter(|&kind| kind < Direction::PeerToPeer as usize);
    if let (0, Some(kind)) = (result, known) {
        moved(lane, kind, bytes as u64, stream);
    }
}

fn copied_between_peers(lane: &Lane, result: c_int, bytes: usize, stream: Option<cudaStream_t>) {
    if result == 0 {
        moved(lane, Direction::PeerToPeer as usize, bytes as u64, stream);
    }
}

fn moved(lane: &Lane, direction: usize, bytes: u64, stream: Option<cudaStream_t>) {
    if let Some(capture) = stream.and_then(|stream| lane.observer().capture_of(stream)) {
        return lane.observer().graphs.captured(capture, |contents| {
            let (count, all) = contents.copies[direction];
            contents.copies[direction] = (count + 1, all + bytes);
        });
    }
    lane.counters.copies[direction].add(1, bytes);
    keep(lane, DIRECTIONS.get(direction).copied().map(HostCall::Copy), bytes);
}

/// While everything is recorded: that it was asked for. How long it took on the GPU nobody measures.
#[inline]
fn keep(lane: &Lane, call: Option<HostCall>, bytes: u64) {
    if let Some(call) = call.filter(|_| capture::is_on()) {
        let at = monotonic();
        lane.push(Record::Host { call, bytes, at, until: at });
    }
}

fn set(lane: &Lane, result: c_int, bytes: usize, stream: Option<cudaStream_t>) {
    if result != 0 {
        return;
    }
    let bytes = bytes as u64;
    if let Some(capture) = stream.and_then(|stream| lane.observer().capture_of(stream)) {
        return lane.observer().graphs.captured(capture, |contents| {
            contents.sets = (contents.sets.0 + 1, contents.sets.1 + bytes);
        });
    }
    lane.counters.sets.add(1, bytes);
    keep(lane, Some(HostCall::Set), bytes);
}

interpose_twins! {
    fn cudaMemcpy, cudaMemcpy_ptds(
        to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Waiting::begin(lane, BlockingCall::Copy);
    after |lane, waiting, result| {
        waiting.end(lane);
        copied(lane, result, kind, bytes, None);
    };

    fn cudaMemcpyAsync, cudaMemcpyAsync_ptsz(
        to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| copied(lane, result, kind, bytes, Some(stream));

    fn cudaMemcpy2D, cudaMemcpy2D_ptds(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: c_int,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Waiting::begin(lane, BlockingCall::Copy);
    after |lane, waiting, result| {
        waiting.end(lane);
        copied(lane, result, kind, width.saturating_mul(height), None);
    };

    fn cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: c_int, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| copied(lane, result, kind, width.saturating_mul(height), Some(stream));

    fn cudaMemset, cudaMemset_ptds(at: *mut c_void, value: c_int, bytes: usize) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| set(lane, result, bytes, None);

    fn cudaMemsetAsync, cudaMemsetAsync_ptsz(
        at: *mut c_void, value: c_int, bytes: usize, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| set(lane, result, bytes, Some(stream));

    fn cudaMemset2D, cudaMemset2D_ptds(
        at: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize,
    ) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| set(lane, result, width.saturating_mul(height), None);
}

interpose! {
    fn cudaMemcpyPeer(
        to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Waiting::begin(lane, BlockingCall::Copy);
    after |lane, waiting, result| {
        waiting.end(lane);
        copied_between_peers(lane, result, bytes, None);
    };

    fn cudaMemcpyPeerAsync(
        to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| copied_between_peers(lane, result, bytes, Some(stream));
}
