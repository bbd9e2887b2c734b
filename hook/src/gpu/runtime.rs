//! The CUDA functions that the hook calls itself: the runtime's, or the driver's in a process without a shared
//! runtime. One that is linked statically cannot be called. Streams and events are the same in both, and so
//! are the results that matter here.

mod driver;

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    ptr,
    sync::atomic::{
        AtomicU8,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};

use crate::{
    gpu::graphs::GraphCaptureId,
    interpose::symbol::{Foreign, Library, foreign},
};

pub(crate) static CUDART: Library = Library::new("the CUDA runtime", c"cudaGetDevice").in_files("libcudart");

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const NOT_READY: c_int = 600;
/// `cudaErrorSharedObjectInitFailed`: the result that the program gets if the library is missing.
pub(crate) const MISSING: c_int = 303;
/// `cudaEventDisableTiming`
pub(crate) const NO_TIMING: c_uint = 2;
/// `cudaStreamNonBlocking`
const NON_BLOCKING: c_uint = 1;
/// `cudaStreamCaptureStatusNone`
pub(crate) const NOT_GRAPH_CAPTURING: c_int = 0;
/// Handles up to this one (NULL included) name default streams, which differ between devices and threads.
pub(crate) const DEFAULT_STREAMS: usize = 2;
/// `cudaStreamPerThread`
pub(crate) const PER_THREAD: usize = 2;
/// `cudaStreamCaptureModeRelaxed`
pub(crate) const RELAXED: c_int = 2;

foreign! { fn cudaEventCreateWithFlags(event: *mut cudaEvent_t, flags: c_uint) -> c_int in CUDART }
foreign! { fn cudaEventDestroy(event: cudaEvent_t) -> c_int in CUDART }
foreign! { fn cudaEventRecord(event: cudaEvent_t, stream: cudaStream_t) -> c_int in CUDART }
foreign! { fn cudaEventQuery(event: cudaEvent_t) -> c_int in CUDART }
foreign! { fn cudaEventElapsedTime(milliseconds: *mut f32, start: cudaEvent_t, end: cudaEvent_t) -> c_int in CUDART }
foreign! { fn cudaStreamCreateWithFlags(stream: *mut cudaStream_t, flags: c_uint) -> c_int in CUDART }
foreign! { fn cudaStreamIsCapturing(stream: cudaStream_t, status: *mut c_int) -> c_int in CUDART }
foreign! {
    /// Up to CUDA 12 the function has three arguments and reads no more. From CUDA 13 on it has all of these;
    /// the last may be NULL.
    fn cudaStreamGetCaptureInfo(
        stream: cudaStream_t, status: *mut c_int, id: *mut u64, graph: *mut c_void, nodes: *mut c_void,
        edges: *mut c_void, count: *mut usize,
    ) -> c_int in CUDART
}
foreign! { fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int in CUDART }
foreign! { fn cudaPeekAtLastError() -> c_int in CUDART }
foreign! { fn cudaGetLastError() -> c_int in CUDART }
foreign! { fn cudaGetDevice(device: *mut c_int) -> c_int in CUDART }
foreign! {
    /// Since CUDA 12.3.
    fn cudaFuncGetName(name: *mut *const c_char, function: *const c_void) -> c_int in CUDART
}
foreign! {
    /// Since CUDA 12.8.
    fn cudaStreamGetDevice(stream: cudaStream_t, device: *mut c_int) -> c_int in CUDART
}
foreign! { fn cudaSetDevice(device: c_int) -> c_int in CUDART }

/// The functions without which nothing can be timed.
static NEEDED: [Foreign; 8] = [
    Foreign::new(c"cudaPeekAtLastError", &CUDART),
    Foreign::new(c"cudaEventCreateWithFlags", &CUDART),
    Foreign::new(c"cudaEventRecord", &CUDART),
    Foreign::new(c"cudaEventQuery", &CUDART),
    Foreign::new(c"cudaEventElapsedTime", &CUDART),
    Foreign::new(c"cudaStreamIsCapturing", &CUDART),
    Foreign::new(c"cudaGetDevice", &CUDART),
    Foreign::new(c"cudaSetDevice", &CUDART),
];

/// The interface that the hook calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Interface {
    Runtime = 1,
    Driver = 2,
}

/// 0 until the interface is chosen. It never changes, so each event is created, recorded and queried through
/// one interface, also if the program loads a runtime later.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// `None` while neither is loaded.
#[inline]
fn interface() -> Option<Interface> {
    match CHOSEN.load(Relaxed) {
        1 => Some(Interface::Runtime),
        2 => Some(Interface::Driver),
        _ => choose(),
    }
}

#[cold]
fn choose() -> Option<Interface> {
    let chosen = if NEEDED.iter().all(|function| !function.find().is_null()) {
        Interface::Runtime
    } else if driver::is_complete() {
        Interface::Driver
    } else {
        return None;
    };
    // Of two threads that choose at once, the first one's choice holds.
    match CHOSEN.compare_exchange(0, chosen as u8, AcqRel, Acquire) {
        Err(1) => Some(Interface::Runtime),
        Err(_) => Some(Interface::Driver),
        Ok(_) => Some(chosen),
    }
}

/// Defines a function that both interfaces have.
macro_rules! either {
    (fn $name:ident($($argument:ident: $type:ty),*) in $runtime:ident or $driver:ident) => {
        /// `None` if the library is not loaded.
        ///
        /// # Safety
        /// As CUDA documents.
        pub(crate) unsafe fn $name($($argument: $type),*) -> Option<c_int> {
            match interface()? {
                // SAFETY: the caller's promise.
                Interface::Runtime => unsafe { $runtime($($argument),*) },
                // SAFETY: the caller's promise.
                Interface::Driver => unsafe { driver::$driver($($argument),*) },
            }
        }
    };
}

either! { fn create_event(event: *mut cudaEvent_t, flags: c_uint) in cudaEventCreateWithFlags or cuEventCreate }
either! { fn destroy_event(event: cudaEvent_t) in cudaEventDestroy or cuEventDestroy_v2 }
either! { fn record_event(event: cudaEvent_t, stream: cudaStream_t) in cudaEventRecord or cuEventRecord }
either! { fn query_event(event: cudaEvent_t) in cudaEventQuery or cuEventQuery }
either! {
    fn elapsed_time(milliseconds: *mut f32, start: cudaEvent_t, end: cudaEvent_t)
        in cudaEventElapsedTime or cuEventElapsedTime
}
either! { fn create_stream(stream: *mut cudaStream_t, flags: c_uint) in cudaStreamCreateWithFlags or cuStreamCreate }
either! { fn is_capturing(stream: cudaStream_t, status: *mut c_int) in cudaStreamIsCapturing or cuStreamIsCapturing }
either! {
    fn exchange_mode(mode: *mut c_int) in cudaThreadExchangeStreamCaptureMode or cuThreadExchangeStreamCaptureMode
}

/// The status and the number of the stream's graph capture.
///
/// # Safety
/// As CUDA documents.
unsafe fn capture_info(stream: cudaStream_t, status: &mut c_int, id: &mut u64) -> Option<c_int> {
    let none = ptr::null_mut();
    match interface()? {
        // SAFETY: the caller's promise; the last four may be NULL.
        Interface::Runtime => unsafe {
            cudaStreamGetCaptureInfo(stream, status, id, none, none, none, ptr::null_mut())
        },
        // SAFETY: the caller's promise; the last three may be NULL.
        Interface::Driver => unsafe {
            driver::cuStreamGetCaptureInfo_v2(stream, status, id, none, none, ptr::null_mut())
        },
    }
}

/// Whether `stream` is being captured into a graph; `None` if CUDA refuses.
pub(crate) fn is_graph_capturing(stream: cudaStream_t) -> Option<bool> {
    let mut status = NOT_GRAPH_CAPTURING;
    // SAFETY: the stream is the one the program is about to launch on; `status` outlives the call.
    let rc = unsafe { is_capturing(stream, &raw mut status) }?;
    (rc == SUCCESS).then_some(status != NOT_GRAPH_CAPTURING)
}

/// Whether an event may be recorded on `stream` now: not during a graph capture, and not while the
/// program has an unread error, because the hook's error must not be mixed with it.
pub(crate) fn may_record(stream: cudaStream_t) -> bool {
    if !error_free() {
        return false;
    }
    let graph_capturing = is_graph_capturing(stream);
    if graph_capturing.is_none() {
        forget_error();
    }
    graph_capturing == Some(false)
}

/// The graph capture of `stream`. A stream that joined through an event has the same one.
///
/// While another stream is captured, CUDA refuses this query for the default stream, and the query's error
/// would replace one that the program has not read yet. So the default stream is not queried during graph
/// captures. For any other stream, CUDA refuses this query only if it also refuses the program's call.
pub(crate) fn graph_capture_of(stream: cudaStream_t) -> Option<GraphCaptureId> {
    let was_free = error_free();
    if !was_free && stream.addr() <= DEFAULT_STREAMS {
        return None;
    }
    let (mut status, mut id) = (NOT_GRAPH_CAPTURING, 0_u64);
    // SAFETY: the stream is the one the program is about to use.
    match unsafe { capture_info(stream, &mut status, &mut id) } {
        Some(SUCCESS) if status == NOT_GRAPH_CAPTURING => None,
        Some(SUCCESS) => Some(GraphCaptureId::new(id as u32).unwrap_or(GraphCaptureId::MAX)),
        // An old library reports only whether there is a graph capture. All then get an unused number,
        // under which nothing is kept.
        None => is_graph_capturing(stream).unwrap_or(false).then_some(GraphCaptureId::MAX),
        Some(_) => {
            if was_free {
                forget_error();
            }
            None
        }
    }
}

/// The device this thread launches on. To be called only after [`error_free`].
pub(crate) fn current_device() -> Option<c_int> {
    if interface()? == Interface::Driver {
        return driver::current_device();
    }
    let mut device = 0;
    // SAFETY: `device` outlives the call.
    let is_known = unsafe { cudaGetDevice(&raw mut device) } == Some(SUCCESS);
    if !is_known {
        forget_error();
    }
    is_known.then_some(device)
}

/// The device of a stream that the program is about to use. `None` for a default stream, which may belong to
/// any device, and with an older CUDA.
pub(crate) fn device_of(stream: cudaStream_t) -> Option<c_int> {
    if stream.addr() <= DEFAULT_STREAMS || !error_free() {
        return None;
    }
    if interface()? == Interface::Driver {
        return driver::device_of(stream);
    }
    let mut device = 0;
    // SAFETY: the stream exists; `device` outlives the call.
    let answered = unsafe { cudaStreamGetDevice(stream, &raw mut device) };
    if answered.is_some_and(|rc| rc != SUCCESS) {
        forget_error();
    }
    (answered == Some(SUCCESS)).then_some(device)
}

/// Whether the program has no unread error on this thread that a call of the hook could be mixed with. The
/// driver keeps none.
pub(crate) fn error_free() -> bool {
    match interface() {
        Some(Interface::Runtime) => runtime_error_free(),
        Some(Interface::Driver) => true,
        None => false,
    }
}

/// The same for a call that only the runtime has.
pub(crate) fn runtime_error_free() -> bool {
    // SAFETY: no precondition.
    unsafe { cudaPeekAtLastError() == Some(SUCCESS) }
}

/// Whether neither interface has the functions that timing needs.
pub(crate) fn is_missing() -> bool {
    interface().is_none()
}

/// Whether the program works in a second context of a device, whose operations are not timed.
pub(crate) fn has_other_contexts() -> bool {
    driver::has_other_contexts()
}

/// Clears the error of one of the hook's calls. To be called only if [`error_free`] was true before that
/// call.
pub(crate) fn forget_error() {
    if interface() == Some(Interface::Runtime) {
        forget_runtime_error();
    }
}

pub(crate) fn forget_runtime_error() {
    // SAFETY: no precondition.
    unsafe { cudaGetLastError() };
}

/// Makes this device current for this thread, which is the hook's. The device has a context of this process.
pub(crate) fn make_current(device: c_int) {
    match interface() {
        Some(Interface::Runtime) => {
            // SAFETY: the device has a context, made by the program.
            unsafe { cudaSetDevice(device) };
        }
        Some(Interface::Driver) => driver::make_current(device),
        None => {}
    }
}

/// Runs `make` with this device current, then restores the previous device. NCCL's own calls do the same, so
/// this is to be called only within a call of NCCL, and only after [`error_free`].
pub(crate) fn on_device<T>(device: c_int, make: impl FnOnce() -> Option<T>) -> Option<T> {
    let current = current_device()?;
    if current == device {
        return make();
    }
    if interface()? == Interface::Driver {
        return driver::on_device(device, make);
    }
    // SAFETY: the device has a context of this process: a communicator of the program is there.
    if unsafe { cudaSetDevice(device) } != Some(SUCCESS) {
        forget_error();
        return None;
    }
    let made = make();
    // SAFETY: it was current before.
    unsafe { cudaSetDevice(current) };
    made
}

/// Creates an event on the current device. While another thread captures a graph in global mode, CUDA allows
/// this only in relaxed mode, which is set meanwhile. To be called only after [`error_free`].
#[cold]
pub(crate) fn make_event(flags: c_uint) -> Option<cudaEvent_t> {
    let mode = exchange_graph_capture_mode(RELAXED);
    let mut event = std::ptr::null_mut();
    // SAFETY: the place for the handle outlives the call.
    let made = unsafe { create_event(&raw mut event, flags) } == Some(SUCCESS);
    exchange_graph_capture_mode(mode);
    if !made {
        forget_error();
    }
    made.then_some(event)
}

/// Creates a stream on the current device, without implicit synchronisation. To be called only after
/// [`error_free`], by a thread in relaxed mode.
#[cold]
pub(crate) fn make_stream() -> Option<cudaStream_t> {
    let mut stream = ptr::null_mut();
    // SAFETY: the place for the handle outlives the call.
    let made = unsafe { create_stream(&raw mut stream, NON_BLOCKING) } == Some(SUCCESS);
    if !made {
        forget_error();
    }
    made.then_some(stream)
}

/// Sets this thread's mode of graph captures, and returns the previous one. In relaxed mode the thread may
/// query events while another thread captures a graph; in another mode a query would break the graph capture.
pub(crate) fn exchange_graph_capture_mode(mut mode: c_int) -> c_int {
    // SAFETY: `mode` outlives the call.
    unsafe { exchange_mode(&raw mut mode) };
    mode
}
