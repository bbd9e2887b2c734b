//! The objects that calls work on: this process's devices with their streams, events and graphs.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use simgpu_engine::capture::{Captures, Mode};
use simgpu_engine::event::Event;
use simgpu_engine::gauge::HIGHEST_MHZ;
use simgpu_engine::handles::Handles;
use simgpu_engine::lock;
use simgpu_engine::machine;
use simgpu_engine::op::Node;
use simgpu_engine::process::Thread;
use simgpu_engine::settings;
use simgpu_engine::stream::{Kind, Stream};

use crate::driver;
use crate::error::Error;
use crate::graph::Graph;
use crate::kernel::Kernels;
use crate::memory::Memory;

/// Handles that mean the legacy stream: NULL, `cudaStreamLegacy` and `cudaStreamPerThread`, which is not
/// simulated.
const LEGACY_STREAMS: std::ops::RangeInclusive<usize> = 0..=2;

pub(crate) struct Gpu {
    pub devices: c_int,
    pub streams: Handles<Stream>,
    pub events: Handles<Event>,
    pub graphs: Handles<Graph>,
    pub executables: Handles<Graph>,
    pub captures: Captures,
    pub kernels: Kernels,
    /// Addresses given to the program, of device memory and of host memory.
    pub memory: Memory,
    pub host_memory: Memory,
    legacy: Mutex<Vec<Option<Arc<Stream>>>>,
    /// One bit for each device on which this process has a context. A real context takes half a gigabyte of
    /// the device's memory.
    contexts: AtomicU64,
    next_stream_id: AtomicU64,
    flop_per_s: f64,
    copy_bytes_per_s: f64,
    memory_bytes_per_s: f64,
    peer_bytes_per_s: f64,
    /// How many times longer work takes on each device.
    slowness: Vec<f64>,
    slowdown: f64,
    kernel: Duration,
}

/// The path of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Host,
    Device,
    Peer,
}

impl Path {
    /// The path of a `cudaMemcpyKind`. An unspecified kind counts as a copy with the host.
    pub(crate) fn of(kind: c_int) -> Self {
        if kind == 3 { Self::Device } else { Self::Host }
    }
}

thread_local! {
    /// The device whose context is current; `None` before the thread's first call, and then device 0.
    static DEVICE: Cell<Option<c_int>> = const { Cell::new(None) };
    static CAPTURE_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

impl Gpu {
    pub(crate) fn get() -> &'static Self {
        static GPU: OnceLock<Gpu> = OnceLock::new();
        GPU.get_or_init(Self::from_settings)
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "the setting's range ends at 1024"
    )]
    fn from_settings() -> Self {
        driver::load();
        let slowdown = settings::SLOWDOWN.read() * HIGHEST_MHZ / settings::CLOCK_MHZ.read();
        Self {
            devices: machine::visible().len() as c_int,
            streams: Handles::new(0x5100_0000),
            events: Handles::new(0xe100_0000),
            graphs: Handles::new(0x6100_0000),
            executables: Handles::new(0x6e00_0000),
            captures: Captures::default(),
            kernels: Kernels::default(),
            memory: Memory::default(),
            host_memory: Memory::default(),
            legacy: Mutex::default(),
            contexts: AtomicU64::new(0),
            // The legacy stream of real CUDA also has the number 1.
            next_stream_id: AtomicU64::new(1),
            flop_per_s: settings::TFLOPS.read() * 1e12,
            copy_bytes_per_s: settings::MEMCPY_GB_S.read() * 1e9,
            memory_bytes_per_s: settings::MEMORY_GB_S.read() * 1e9,
            peer_bytes_per_s: settings::NVLINK_GB_S.read() * 1e9,
            slowness: machine::slowness(),
            slowdown,
            kernel: Duration::from_secs_f64(settings::KERNEL_US.read() * 1e-6 * slowdown),
        }
    }

    pub(crate) fn device(&self) -> Result<c_int, Error> {
        if self.devices == 0 {
            return Err(Error::NO_DEVICE);
        }
        Ok(DEVICE.try_with(Cell::get).ok().flatten().unwrap_or(0))
    }

    pub(crate) fn set_device(&self, device: c_int) -> Result<(), Error> {
        if !(0..self.devices).contains(&device) {
            return Err(Error::INVALID_DEVICE);
        }
        let _ = DEVICE.try_with(|current| current.set(Some(device)));
        Ok(())
    }

    /// Creates a context on the calling thread's device, if there is none, and makes it current.
    pub(crate) fn make_context(&self) {
        if let Ok(device) = self.device() {
            let _ = self.set_device(device);
            self.create_context(device);
        }
    }

    pub(crate) fn create_context(&self, device: c_int) {
        if let Some(bit) = u32::try_from(device).ok().and_then(|device| 1_u64.checked_shl(device)) {
            self.contexts.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The device whose context is current on this thread.
    pub(crate) fn current_context(&self) -> Option<c_int> {
        let device = DEVICE.try_with(Cell::get).ok().flatten()?;
        (self.contexts() >> device & 1 == 1).then_some(device)
    }

    pub(crate) fn without_context() {
        let _ = DEVICE.try_with(|current| current.set(None));
    }

    pub(crate) fn contexts(&self) -> u64 {
        self.contexts.load(Ordering::Relaxed)
    }

    pub(crate) fn new_stream(&self, kind: Kind, device: c_int) -> Arc<Stream> {
        Stream::new(self.next_stream_id.fetch_add(1, Ordering::Relaxed), device, kind)
    }

    pub(crate) fn stream(&self, handle: usize) -> Result<Arc<Stream>, Error> {
        if !LEGACY_STREAMS.contains(&handle) {
            return self.streams.get(handle).ok_or(Error::INVALID_HANDLE);
        }
        let device = self.device()?;
        let index = usize::try_from(device).map_err(|_ignored| Error::INVALID_DEVICE)?;
        let mut legacy = lock(&self.legacy);
        if legacy.len() <= index {
            legacy.resize(index + 1, None);
        }
        Ok(Arc::clone(legacy[index].get_or_insert_with(|| self.new_stream(Kind::Legacy, device))))
    }

    /// All streams of the calling thread's device.
    pub(crate) fn device_streams(&self) -> Result<Vec<Arc<Stream>>, Error> {
        let device = self.device()?;
        let legacy = lock(&self.legacy).clone();
        let all = legacy.into_iter().flatten().chain(self.streams.all());
        Ok(all.filter(|stream| stream.device == device).collect())
    }

    pub(crate) fn event(&self, handle: usize) -> Result<Arc<Event>, Error> {
        self.events.get(handle).ok_or(Error::INVALID_HANDLE)
    }

    /// Puts the work on a stream, or fails as in CUDA where the work would invalidate a capture.
    pub(crate) fn submit(&self, stream: usize, node: Node) -> Result<(), Error> {
        let stream = self.stream(stream)?;
        self.admit(&stream)?;
        stream.submit(node)?;
        Ok(())
    }

    /// Whether this stream accepts work now.
    pub(crate) fn admit(&self, stream: &Stream) -> Result<(), Error> {
        if stream.kind == Kind::Legacy && self.captures.forbid_legacy(true) {
            return Err(Error::CAPTURE_IMPLICIT);
        }
        match stream.capture() {
            Some(capture) if capture.is_invalidated() => Err(Error::CAPTURE_INVALIDATED),
            _ => Ok(()),
        }
    }

    /// Called first by every call that might synchronise. During a capture it fails, and invalidates the
    /// capture.
    pub(crate) fn allow_unsafe(&self) -> Result<(), Error> {
        let mode = CAPTURE_MODE.try_with(Cell::get).unwrap_or(Mode::Global);
        if self.captures.allow_unsafe(Thread::current(), mode) {
            Ok(())
        } else {
            Err(Error::CAPTURE_UNSUPPORTED)
        }
    }

    pub(crate) fn exchange_capture_mode(mode: Mode) -> Mode {
        CAPTURE_MODE.try_with(|current| current.replace(mode)).unwrap_or(Mode::Global)
    }

    pub(crate) fn kernel(&self) -> Duration {
        self.kernel
    }

    pub(crate) fn copy(&self, path: Path, bytes: u64, stream: usize) -> Duration {
        let per_s = match path {
            Path::Host => self.copy_bytes_per_s,
            // Each byte is read and written.
            Path::Device => self.memory_bytes_per_s / 2.0,
            Path::Peer => self.peer_bytes_per_s,
        };
        seconds(to_f64(bytes) / per_s * self.slowness(stream))
    }

    pub(crate) fn gemm(&self, flop: f64, rate: f64, stream: usize) -> Duration {
        seconds(flop / (self.flop_per_s * rate) * self.slowdown * self.slowness(stream))
    }

    /// How many times longer work takes on this stream's device.
    fn slowness(&self, stream: usize) -> f64 {
        let device = self.stream(stream).ok().and_then(|stream| usize::try_from(stream.device).ok());
        device.and_then(|device| self.slowness.get(device).copied()).unwrap_or(1.0)
    }
}

/// A duration; zero if this number of seconds is no valid duration.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[allow(clippy::cast_precision_loss, reason = "losing a byte in 2^52 does not matter")]
fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}
