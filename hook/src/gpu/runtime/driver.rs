//! The driver's functions for events and streams, and the contexts that they require.
//!
//! The runtime makes a device's context current by itself. The driver requires a current context on each
//! thread, so the context of each device is kept.

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};
use xpu_wire::id::Rank;

use super::SUCCESS;
use crate::interpose::{
    driver::CUDA,
    symbol::{Foreign, foreign},
};

/// A `CUcontext`.
type Context = *mut c_void;

foreign! { fn cuEventCreate(event: *mut cudaEvent_t, flags: c_uint) -> c_int in CUDA }
foreign! { fn cuEventDestroy_v2(event: cudaEvent_t) -> c_int in CUDA }
foreign! { fn cuEventRecord(event: cudaEvent_t, stream: cudaStream_t) -> c_int in CUDA }
foreign! { fn cuEventQuery(event: cudaEvent_t) -> c_int in CUDA }
foreign! { fn cuEventElapsedTime(milliseconds: *mut f32, start: cudaEvent_t, end: cudaEvent_t) -> c_int in CUDA }
foreign! { fn cuStreamCreate(stream: *mut cudaStream_t, flags: c_uint) -> c_int in CUDA }
foreign! { fn cuStreamIsCapturing(stream: cudaStream_t, status: *mut c_int) -> c_int in CUDA }
foreign! {
    /// Since CUDA 11.3.
    fn cuStreamGetCaptureInfo_v2(
        stream: cudaStream_t, status: *mut c_int, id: *mut u64, graph: *mut c_void, nodes: *mut c_void,
        count: *mut usize,
    ) -> c_int in CUDA
}
foreign! { fn cuStreamGetCtx(stream: cudaStream_t, context: *mut Context) -> c_int in CUDA }
foreign! { fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int in CUDA }
foreign! { fn cuCtxGetCurrent(context: *mut Context) -> c_int in CUDA }
foreign! { fn cuCtxSetCurrent(context: Context) -> c_int in CUDA }
foreign! { fn cuCtxPushCurrent_v2(context: Context) -> c_int in CUDA }
foreign! { fn cuCtxPopCurrent_v2(context: *mut Context) -> c_int in CUDA }
foreign! { fn cuCtxGetDevice(device: *mut c_int) -> c_int in CUDA }

/// The functions without which nothing can be timed.
static NEEDED: [Foreign; 8] = [
    Foreign::new(c"cuEventCreate", &CUDA),
    Foreign::new(c"cuEventRecord", &CUDA),
    Foreign::new(c"cuEventQuery", &CUDA),
    Foreign::new(c"cuEventElapsedTime", &CUDA),
    Foreign::new(c"cuStreamIsCapturing", &CUDA),
    Foreign::new(c"cuCtxGetCurrent", &CUDA),
    Foreign::new(c"cuCtxSetCurrent", &CUDA),
    Foreign::new(c"cuCtxGetDevice", &CUDA),
];

/// The context in which the hook works on each device: the one that was current there first.
static CONTEXTS: [AtomicPtr<c_void>; Rank::GPUS as usize] =
    [const { AtomicPtr::new(ptr::null_mut()) }; Rank::GPUS as usize];

/// Whether the program also works in another context of a device.
static HAS_OTHERS: AtomicBool = AtomicBool::new(false);

pub(super) fn is_complete() -> bool {
    NEEDED.iter().all(|function| !function.find().is_null())
}

/// The device of this thread's context. `None` without a context, and for a second context of a device:
/// events of one context cannot be recorded in another.
pub(super) fn current_device() -> Option<c_int> {
    let mut context = ptr::null_mut();
    // SAFETY: `context` outlives the call.
    let is_known = unsafe { cuCtxGetCurrent(&raw mut context) } == Some(SUCCESS);
    if !is_known || context.is_null() {
        return None;
    }
    device_of_context(context).or_else(|| register(context))
}

/// The device of a stream's context.
pub(super) fn device_of(stream: cudaStream_t) -> Option<c_int> {
    let mut context = ptr::null_mut();
    // SAFETY: the caller's stream exists; `context` outlives the call.
    let is_known = unsafe { cuStreamGetCtx(stream, &raw mut context) } == Some(SUCCESS);
    if !is_known || context.is_null() {
        return None;
    }
    device_of_context(context).or_else(|| within(context, || register(context)))
}

fn device_of_context(context: Context) -> Option<c_int> {
    CONTEXTS.iter().position(|known| known.load(Acquire) == context).map(|device| device as c_int)
}

/// Keeps the current context as that of its device.
#[cold]
fn register(context: Context) -> Option<c_int> {
    let mut device = 0;
    // SAFETY: `device` outlives the call.
    if unsafe { cuCtxGetDevice(&raw mut device) } != Some(SUCCESS) {
        return None;
    }
    let place = CONTEXTS.get(usize::try_from(device).ok()?)?;
    match place.compare_exchange(ptr::null_mut(), context, AcqRel, Acquire) {
        Err(known) if known != context => {
            HAS_OTHERS.store(true, Relaxed);
            None
        }
        _ => Some(device),
    }
}

/// The context of this device, if the program has used it.
fn context_of(device: c_int) -> Option<Context> {
    let context = CONTEXTS.get(usize::try_from(device).ok()?)?.load(Acquire);
    (!context.is_null()).then_some(context)
}

/// Makes the device's context current for this thread, which is the hook's.
pub(super) fn make_current(device: c_int) {
    if let Some(context) = context_of(device) {
        // SAFETY: it was the program's current context.
        unsafe { cuCtxSetCurrent(context) };
    }
}

/// Runs `make` with the context of this device current, then restores the previous context.
pub(super) fn on_device<T>(device: c_int, make: impl FnOnce() -> Option<T>) -> Option<T> {
    within(context_of(device)?, make)
}

fn within<T>(context: Context, make: impl FnOnce() -> Option<T>) -> Option<T> {
    // SAFETY: the context belongs to this process.
    if unsafe { cuCtxPushCurrent_v2(context) } != Some(SUCCESS) {
        return None;
    }
    let made = make();
    let mut popped = ptr::null_mut();
    // SAFETY: the context was pushed above; `popped` outlives the call.
    unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
    made
}

/// Whether the program works in a context that is not watched.
pub(super) fn has_other_contexts() -> bool {
    HAS_OTHERS.load(Relaxed)
}
