//! One moment per device with a known time on the host's clock. All times of a capture are relative to it.
//!
//! An event shows the moment. It is alone on a stream of the hook: the event never waits, and nothing waits
//! for it.

use std::{ffi::c_int, ptr};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};

use crate::{
    gpu::{
        runtime::{self, NOT_READY, SUCCESS},
        timer::{TimerId, Timers},
    },
    process::clock::monotonic,
};

/// Maximum number of devices in a capture of one process.
const DEVICES: usize = 16;

/// How long one attempt polls until the event is done, in nanoseconds.
const LOOK: u64 = 5_000_000;

/// Maximum number of attempts: the last one is used, and a small error ends them.
const TRIES: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Bases(Vec<Base>);

#[derive(Debug)]
struct Base {
    device: c_int,
    stream: cudaStream_t,
    event: cudaEvent_t,
    /// When the GPU reached the event, in monotonic nanoseconds, and the error of this time; `None` until it
    /// is known.
    at: Option<(u64, u64)>,
    /// CUDA refused the stream or the event, so there is no further attempt.
    refused: bool,
}

// SAFETY: any thread may use CUDA's handles; only the hook's thread does.
unsafe impl Send for Base {}

impl Bases {
    /// Makes the next capture determine the bases again: clocks drift, and times far from the base are
    /// coarse.
    pub(super) fn forget(&mut self) {
        self.0.iter_mut().for_each(|base| base.at = None);
    }

    /// Determines the base of the current device, if it is unknown.
    pub(super) fn make(&mut self, device: c_int) {
        self.of(device);
    }

    fn of(&mut self, device: c_int) -> Option<&Base> {
        let known = self.0.iter().position(|base| base.device == device);
        let index = match known {
            Some(index) => index,
            None if self.0.len() >= DEVICES => return None,
            None => {
                // The only error on this thread is the hook's own: that an event was not ready.
                runtime::forget_error();
                self.0.push(Base::new(device));
                self.0.len() - 1
            }
        };
        let base = &mut self.0[index];
        base.find();
        (base.at.is_some()).then_some(&*base)
    }

    /// When a timed operation began on the current device, in monotonic nanoseconds, and the error of this
    /// time.
    pub(super) fn begin_of(&mut self, device: c_int, timers: &Timers, timer: TimerId) -> Option<(i64, u64)> {
        let base = self.of(device)?;
        let (at, error) = base.at?;
        Some((at as i64 + timers.start_after(timer, base.event)?, error))
    }
}

impl Base {
    fn new(device: c_int) -> Self {
        let stream = runtime::make_stream();
        let event = stream.and_then(|_| runtime::make_event(0));
        Self {
            device,
            stream: stream.unwrap_or(ptr::null_mut()),
            event: event.unwrap_or(ptr::null_mut()),
            at: None,
            refused: event.is_none(),
        }
    }

    fn find(&mut self) {
        if self.refused || self.at.is_some() {
            return;
        }
        let mut best: Option<(u64, u64)> = None;
        for _ in 0..TRIES {
            let Some(found) = self.record() else { break };
            // The event keeps the time of its last record, so the attempts must end with a good one.
            let good = best.is_none_or(|(_, error)| found.1 <= error);
            best = Some(found);
            if good && found.1 < 20_000 {
                break;
            }
        }
        self.at = best;
        self.refused = best.is_none();
    }

    /// Records the event and polls until it is done. Returns when the GPU reached it, and the error of this
    /// time.
    fn record(&self) -> Option<(u64, u64)> {
        let before = monotonic();
        // SAFETY: the event and the stream are live, belong to the hook, and are on the current device.
        if unsafe { runtime::record_event(self.event, self.stream) } != Some(SUCCESS) {
            runtime::forget_error();
            return None;
        }
        loop {
            // SAFETY: a live event.
            let state = unsafe { runtime::query_event(self.event) };
            let now = monotonic();
            match state {
                Some(SUCCESS) => return Some((before + (now - before) / 2, (now - before).div_ceil(2))),
                Some(NOT_READY) if now - before < LOOK => std::thread::yield_now(),
                _ => {
                    runtime::forget_error();
                    return None;
                }
            }
        }
    }
}
