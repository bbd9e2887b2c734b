//! Memory and copies. Device memory is an address range that nothing reads; copies take time and move
//! nothing.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Mutex;

use simgpu_engine::gauge::{self, UserSlot};
use simgpu_engine::lock;
use simgpu_engine::op::Node;
use simgpu_engine::trace::{self, Library, Task};

use crate::call::{call, put};
use crate::error::Error;
use crate::gpu::{Gpu, Path};

/// Rows of `cudaMallocPitch` begin at multiples of this.
const PITCH: usize = 512;

/// Addresses that were allocated and not freed, with their bytes and their device.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Allocations>);

#[derive(Debug, Default)]
struct Allocations {
    allocation: HashMap<usize, Allocation>,
    /// The bytes allocated on each device.
    held: HashMap<c_int, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: u64,
    /// `None` for host memory.
    device: Option<c_int>,
}

impl Allocation {
    fn place(self) -> Option<UserSlot> {
        gauge::mine(self.device?)
    }
}

impl Allocations {
    fn take(&mut self, address: usize, allocation: Allocation) {
        self.allocation.insert(address, allocation);
        if let Some(device) = allocation.device {
            *self.held.entry(device).or_default() += allocation.bytes;
        }
    }

    fn give_back(&mut self, address: usize) -> Option<Allocation> {
        let allocation = self.allocation.remove(&address)?;
        if let Some(held) = allocation.device.and_then(|device| self.held.get_mut(&device)) {
            *held -= allocation.bytes;
        }
        Some(allocation)
    }
}

impl Memory {
    /// # Safety
    /// `address` must be NULL or writable.
    unsafe fn give(
        &self,
        address: *mut *mut c_void,
        bytes: usize,
        device: Option<c_int>,
    ) -> Result<(), Error> {
        if device.is_some_and(|device| self.held(device).saturating_add(bytes as u64) > gauge::MEMORY) {
            return Err(Error::OUT_OF_MEMORY);
        }
        // SAFETY: malloc has no precondition. Its pages cost nothing until touched, and nothing touches them.
        let memory = unsafe { libc::malloc(bytes.max(1)) };
        let memory = NonNull::new(memory).ok_or(Error::OUT_OF_MEMORY)?;
        // SAFETY: this function's own condition.
        let reported = unsafe { put(address, memory.as_ptr()) };
        if reported.is_err() {
            // SAFETY: just allocated, and not yet returned to the program.
            unsafe { libc::free(memory.as_ptr()) };
            return reported;
        }
        let allocation = Allocation { bytes: bytes as u64, device };
        lock(&self.0).take(memory.as_ptr().addr(), allocation);
        if let Some(place) = allocation.place() {
            place.allocated(allocation.bytes);
        }
        Ok(())
    }

    /// Counts memory that a library allocates on a device, or frees if `bytes` is negative.
    pub(crate) fn hold(&self, device: c_int, bytes: i64) {
        let mut book = lock(&self.0);
        let held = book.held.entry(device).or_default();
        *held = held.saturating_add_signed(bytes);
        match gauge::mine(device) {
            Some(place) if bytes > 0 => place.allocated(bytes.unsigned_abs()),
            Some(place) => place.freed(bytes.unsigned_abs()),
            None => {}
        }
    }

    /// The bytes allocated on a device.
    pub(crate) fn held(&self, device: c_int) -> u64 {
        lock(&self.0).held.get(&device).copied().unwrap_or(0)
    }

    fn take_back(&self, address: *mut c_void) -> Result<(), Error> {
        if address.is_null() {
            return Ok(());
        }
        let allocation = lock(&self.0).give_back(address.addr()).ok_or(Error::INVALID_VALUE)?;
        if let Some(place) = allocation.place() {
            place.freed(allocation.bytes);
        }
        // SAFETY: malloc returned it in `give`, and the program had not freed it until now.
        unsafe { libc::free(address) };
        Ok(())
    }
}

/// A call that may wait for the GPU, which is forbidden during a capture.
fn waiting(body: impl FnOnce(&'static Gpu) -> Result<(), Error>) -> c_int {
    call(|gpu| {
        gpu.device()?;
        gpu.allow_unsafe()?;
        body(gpu)
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaMalloc(address: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: CUDA requires a writable pointer.
    waiting(|gpu| unsafe { gpu.memory.give(address, bytes, Some(gpu.device()?)) })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaMallocManaged(
    address: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    if !(1..=2).contains(&flags) {
        return call(|_| Err(Error::INVALID_VALUE));
    }
    // SAFETY: CUDA requires a writable pointer.
    waiting(|gpu| unsafe { gpu.memory.give(address, bytes, Some(gpu.device()?)) })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaMallocPitch(
    address: *mut *mut c_void,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> c_int {
    waiting(|gpu| {
        let row = width.next_multiple_of(PITCH);
        let bytes = row.checked_mul(height).ok_or(Error::OUT_OF_MEMORY)?;
        // SAFETY: CUDA requires two writable pointers.
        unsafe {
            put(pitch, row)?;
            gpu.memory.give(address, bytes, Some(gpu.device()?))
        }
    })
}

/// Allocates at once. A program cannot distinguish this from an allocation in stream order.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaMallocAsync(
    address: *mut *mut c_void,
    bytes: usize,
    stream: usize,
) -> c_int {
    call(|gpu| {
        gpu.admit(&*gpu.stream(stream)?)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { gpu.memory.give(address, bytes, Some(gpu.device()?)) }
    })
}

/// There are no pools; any pool is accepted.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaMallocFromPoolAsync(
    address: *mut *mut c_void,
    bytes: usize,
    _pool: *mut c_void,
    stream: usize,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { cudaMallocAsync(address, bytes, stream) }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaFree(address: *mut c_void) -> c_int {
    waiting(|gpu| gpu.memory.take_back(address))
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaFreeAsync(address: *mut c_void, stream: usize) -> c_int {
    call(|gpu| {
        gpu.admit(&*gpu.stream(stream)?)?;
        gpu.memory.take_back(address)
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaHostAlloc(
    address: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    if flags > 7 {
        return call(|_| Err(Error::INVALID_VALUE));
    }
    // SAFETY: CUDA requires a writable pointer.
    waiting(|gpu| unsafe { gpu.host_memory.give(address, bytes, None) })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaMallocHost(address: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { cudaHostAlloc(address, bytes, 0) }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaFreeHost(address: *mut c_void) -> c_int {
    waiting(|gpu| gpu.host_memory.take_back(address))
}

/// Returns when the copy is complete.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemcpy(
    _to: *mut c_void,
    _from: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    copy_and_wait(bytes, kind)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemcpy2D(
    _to: *mut c_void,
    to_pitch: usize,
    _from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    match area(to_pitch.min(from_pitch), width, height) {
        Ok(bytes) => copy_and_wait(bytes, kind),
        Err(error) => call(|_| Err(error)),
    }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemcpyPeer(
    _to: *mut c_void,
    to_device: c_int,
    _from: *const c_void,
    from_device: c_int,
    bytes: usize,
) -> c_int {
    match peers(to_device, from_device) {
        Ok(()) => copy_and_wait(bytes, ANY_KIND),
        Err(error) => call(|_| Err(error)),
    }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemcpyAsync(
    _to: *mut c_void,
    _from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    copy(bytes, kind, stream)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemcpy2DAsync(
    _to: *mut c_void,
    to_pitch: usize,
    _from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    match area(to_pitch.min(from_pitch), width, height) {
        Ok(bytes) => copy(bytes, kind, stream),
        Err(error) => call(|_| Err(error)),
    }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemcpyPeerAsync(
    _to: *mut c_void,
    to_device: c_int,
    _from: *const c_void,
    from_device: c_int,
    bytes: usize,
    stream: usize,
) -> c_int {
    match peers(to_device, from_device) {
        Ok(()) => copy_by(Path::Peer, bytes, ANY_KIND, stream),
        Err(error) => call(|_| Err(error)),
    }
}

/// Returns at once, as CUDA does for device memory.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemset(_to: *mut c_void, _value: c_int, bytes: usize) -> c_int {
    set(bytes, 0)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemset2D(
    _to: *mut c_void,
    pitch: usize,
    _value: c_int,
    width: usize,
    height: usize,
) -> c_int {
    match area(pitch, width, height) {
        Ok(bytes) => set(bytes, 0),
        Err(error) => call(|_| Err(error)),
    }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaMemsetAsync(
    _to: *mut c_void,
    _value: c_int,
    bytes: usize,
    stream: usize,
) -> c_int {
    set(bytes, stream)
}

/// CUPTI's numbers of `cudaMemcpy`, `cudaMemcpyAsync` and `cudaMemsetAsync`.
const COPY: u32 = 31;
const COPY_ASYNC: u32 = 41;
const SET_ASYNC: u32 = 51;

/// `cudaMemcpyDefault`
const ANY_KIND: c_int = 4;

fn copy(bytes: usize, kind: c_int, stream: usize) -> c_int {
    copy_by(Path::of(kind), bytes, kind, stream)
}

fn copy_by(path: Path, bytes: usize, kind: c_int, stream: usize) -> c_int {
    call(|gpu| {
        check_kind(kind)?;
        let bytes = bytes as u64;
        let node = Node::Work(gpu.copy(path, bytes, stream), Task::Copy { kind, bytes });
        trace::calling(Library::Runtime, COPY_ASYNC, || gpu.submit(stream, node))
    })
}

/// Fills device memory. Returns at once, as CUDA does.
fn set(bytes: usize, stream: usize) -> c_int {
    call(|gpu| {
        let bytes = bytes as u64;
        let node = Node::Work(gpu.copy(Path::Host, bytes, stream), Task::Set { bytes });
        trace::calling(Library::Runtime, SET_ASYNC, || gpu.submit(stream, node))
    })
}

fn copy_and_wait(bytes: usize, kind: c_int) -> c_int {
    call(|gpu| {
        check_kind(kind)?;
        gpu.allow_unsafe()?;
        let bytes = bytes as u64;
        let node = Node::Work(gpu.copy(Path::of(kind), bytes, 0), Task::Copy { kind, bytes });
        trace::calling(Library::Runtime, COPY, || gpu.submit(0, node))?;
        Ok(gpu.stream(0)?.synchronize()?)
    })
}

/// The bytes of rows, each of which must fit into the pitch.
fn area(pitch: usize, width: usize, height: usize) -> Result<usize, Error> {
    if width > pitch {
        Err(Error::INVALID_VALUE)
    } else {
        width.checked_mul(height).ok_or(Error::INVALID_VALUE)
    }
}

fn peers(to: c_int, from: c_int) -> Result<(), Error> {
    let known = 0..Gpu::get().devices;
    if known.contains(&to) && known.contains(&from) { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// Accepts copies between host and device in any direction, and the kind that leaves the direction to CUDA.
fn check_kind(kind: c_int) -> Result<(), Error> {
    if (0..=4).contains(&kind) { Ok(()) } else { Err(Error::INVALID_DIRECTION) }
}
