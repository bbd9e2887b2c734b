//! A reusable CUDA event without timing.

use std::{ffi::c_int, ptr};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};

use crate::gpu::runtime::{self, NO_TIMING, NOT_READY, SUCCESS};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    handle: cudaEvent_t,
    /// The device of its context; `None` until it is created.
    device: Option<c_int>,
}

// SAFETY: event handles may be used from any thread (CUDA runtime API documentation).
unsafe impl Send for Event {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    NotYet,
    Yes,
    /// CUDA failed: its context is gone or broken.
    Failed,
}

impl Event {
    pub(crate) const UNMADE: Self = Self { handle: ptr::null_mut(), device: None };

    /// The device that must be current for a query.
    pub(crate) fn device(self) -> Option<c_int> {
        self.device
    }

    /// Records the event on the stream, which belongs to this device, or else to the current one. Returns
    /// whether that succeeded. Not to be called while the event is pending.
    pub(crate) fn record(&mut self, stream: cudaStream_t, device: Option<c_int>) -> bool {
        let Some(event) = self.on(device.or_else(runtime::current_device)) else { return false };
        // SAFETY: a live event of the stream's device; the stream is the one the program launches on.
        let recorded = unsafe { runtime::record_event(event, stream) } == Some(SUCCESS);
        if !recorded {
            runtime::forget_error();
        }
        recorded
    }

    /// Whether the stream has reached the event. The event's device must be current.
    pub(crate) fn passed(self) -> Passed {
        // SAFETY: a live event, whose device is current.
        match unsafe { runtime::query_event(self.handle) } {
            Some(NOT_READY) => Passed::NotYet,
            Some(SUCCESS) => Passed::Yes,
            _ => Passed::Failed,
        }
    }

    /// The event on this device, created if needed. An event of another device is abandoned.
    fn on(&mut self, device: Option<c_int>) -> Option<cudaEvent_t> {
        let device = device?;
        if self.device != Some(device) {
            if self.device.take().is_some() {
                // SAFETY: the event is live and was reached, and nobody else uses it.
                unsafe { runtime::destroy_event(self.handle) };
            }
            self.handle = runtime::on_device(device, || runtime::make_event(NO_TIMING))?;
            self.device = Some(device);
        }
        Some(self.handle)
    }
}
