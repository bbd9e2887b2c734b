//! The private interface from the other stand-ins to the timeline in `libcudart`, or in the library that
//! `SIMGPU_TIMELINE` names.
//!
//! The real cuBLAS and NCCL launch through the driver, where an observer of the runtime does not see them.
//! Therefore these functions are looked up in that library itself, and make no public runtime call.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::op::CollectiveCalls;
use crate::trace::Sink;

/// The library with the timeline.
const CUDART: &CStr = c"libcudart.so.13";

/// The setting of another one.
const SETTING: &str = "SIMGPU_TIMELINE";

/// The functions that the library exports for its siblings. Each returns a CUDA error code unless stated
/// otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// `simgpu_enqueue_gemm`: `rate` is the share of full speed at which this data type runs.
    pub enqueue_gemm: unsafe extern "C" fn(stream: usize, flop: f64, rate: f64) -> c_int,
    pub enqueue_copy: unsafe extern "C" fn(stream: usize, bytes: u64) -> c_int,
    /// `simgpu_enqueue_collective`: takes ownership of the calls, also when it fails.
    pub enqueue_collective: unsafe extern "C" fn(stream: usize, calls: CollectiveCalls) -> c_int,
    /// `simgpu_enqueue_kernel`: launches this `cudaKernel_t`.
    pub enqueue_kernel: unsafe extern "C" fn(stream: usize, kernel: usize) -> c_int,
    pub launch_graph: unsafe extern "C" fn(executable: usize, stream: usize) -> c_int,
    /// `simgpu_kernel_name`: the name of a `cudaKernel_t`; NULL if there is none.
    pub kernel_name: unsafe extern "C" fn(kernel: usize) -> *const c_char,
    /// `simgpu_trace`: reports launches to the sink from now on; without a sink, stops reporting.
    pub trace: unsafe extern "C" fn(sink: Option<Sink>),
    /// `simgpu_current_device`: the calling thread's device.
    pub current_device: unsafe extern "C" fn() -> c_int,
    /// `simgpu_call`: calls a function of the runtime with seven words; a function ignores the words beyond
    /// its parameters. The name is NUL-terminated, and the words are what the function requires.
    pub call: unsafe extern "C" fn(name: *const c_char, words: *const [usize; 7]) -> c_int,
    /// `simgpu_current_context`: the device whose context is current on this thread; -1 if there is none.
    pub current_context: unsafe extern "C" fn() -> c_int,
    /// `simgpu_make_current`: makes the context of this device current, or none if it is negative.
    pub make_current: unsafe extern "C" fn(device: c_int) -> c_int,
    /// `simgpu_create_context`: creates a context on this device.
    pub create_context: unsafe extern "C" fn(device: c_int),
    /// `simgpu_free_memory`: the free memory of the calling thread's device. Returns the largest number if
    /// the process has no context on it.
    pub free_memory: unsafe extern "C" fn() -> u64,
    /// `simgpu_hold`: a library allocates this much of a device's memory, or frees it.
    pub hold: unsafe extern "C" fn(device: c_int, bytes: i64),
}

/// The timeline of this process. Loads its library if needed; `None` if that is not the stand-in.
pub fn driver() -> Option<Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    *DRIVER.get_or_init(Driver::find)
}

impl Driver {
    fn find() -> Option<Self> {
        let set = std::env::var(SETTING).ok().and_then(|name| CString::new(name).ok());
        let name = set.as_deref().unwrap_or(CUDART);
        // SAFETY: the name is NUL-terminated; the stand-in has no constructor that could misbehave.
        let library =
            NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })?;
        // SAFETY: the names are ours, so whatever exports them has the signatures of the fields above.
        unsafe {
            Some(Self {
                enqueue_gemm: mem::transmute::<*mut c_void, unsafe extern "C" fn(usize, f64, f64) -> c_int>(
                    symbol(library, c"simgpu_enqueue_gemm")?,
                ),
                enqueue_copy: mem::transmute::<*mut c_void, unsafe extern "C" fn(usize, u64) -> c_int>(
                    symbol(library, c"simgpu_enqueue_copy")?,
                ),
                enqueue_collective: mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(usize, CollectiveCalls) -> c_int,
                >(symbol(library, c"simgpu_enqueue_collective")?),
                enqueue_kernel: mem::transmute::<*mut c_void, unsafe extern "C" fn(usize, usize) -> c_int>(
                    symbol(library, c"simgpu_enqueue_kernel")?,
                ),
                trace: mem::transmute::<*mut c_void, unsafe extern "C" fn(Option<Sink>)>(symbol(
                    library,
                    c"simgpu_trace",
                )?),
                launch_graph: mem::transmute::<*mut c_void, unsafe extern "C" fn(usize, usize) -> c_int>(
                    symbol(library, c"simgpu_launch_graph")?,
                ),
                kernel_name: mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *const c_char>(
                    symbol(library, c"simgpu_kernel_name")?,
                ),
                call: mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char, *const [usize; 7]) -> c_int,
                >(symbol(library, c"simgpu_call")?),
                current_context: mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(symbol(
                    library,
                    c"simgpu_current_context",
                )?),
                make_current: mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_int>(symbol(
                    library,
                    c"simgpu_make_current",
                )?),
                create_context: mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(symbol(
                    library,
                    c"simgpu_create_context",
                )?),
                free_memory: mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(symbol(
                    library,
                    c"simgpu_free_memory",
                )?),
                hold: mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, i64)>(symbol(
                    library,
                    c"simgpu_hold",
                )?),
                current_device: mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(symbol(
                    library,
                    c"simgpu_current_device",
                )?),
            })
        }
    }
}

fn symbol(library: NonNull<c_void>, name: &CStr) -> Option<*mut c_void> {
    let name: *const c_char = name.as_ptr();
    // SAFETY: `library` came from dlopen and is never closed; the name is NUL-terminated.
    let found = unsafe { libc::dlsym(library.as_ptr(), name) };
    (!found.is_null()).then_some(found)
}
