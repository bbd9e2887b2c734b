//! Reusable pairs of CUDA events around an operation.

mod free;

use std::{cell::UnsafeCell, ffi::c_int, num::NonZero, ptr, sync::OnceLock};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};
use free::Free;
use xpu_wire::unit::Nanoseconds;

use crate::{
    gpu::runtime::{self, NOT_READY, SUCCESS},
    observe::sync,
    process::memory,
};

/// Maximum number of pending pairs of one thread. A thread that launches 1,500 GEMMs ahead of its GPU has
/// about a hundred.
pub(crate) const PAIRS: usize = 256;

/// Additional pairs of a thread whose operations are captured: each of them is timed, and a thread may launch
/// dozens of steps ahead of its GPU.
const MORE: usize = 8192;

/// The index of a pair in its lane: of the usual ones, then of the additional ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId(u16);

/// The pairs of one thread. The thread takes and records them; the hook's thread reads and returns them.
pub(crate) struct Timers {
    free: Free<{ PAIRS / 64 }>,
    pairs: Box<[UnsafeCell<Pair>]>,
    /// `None` if there was no memory for them.
    more: OnceLock<Option<More>>,
}

struct More {
    free: Free<{ MORE / 64 }>,
    pairs: &'static [UnsafeCell<Pair>],
}

/// All zeros are an unused pair.
struct Pair {
    start: cudaEvent_t,
    stop: cudaEvent_t,
    /// One more than the device of the events' context; `None` until they are created.
    ordinal: Option<NonZero<c_int>>,
    /// The stream on which the operation runs.
    stream: cudaStream_t,
}

// SAFETY: the launching thread touches a pair while its bit is clear and no record of it was pushed; from the
// push until it sets the bit, the hook's thread does. The ring and the bit pass the pair on.
unsafe impl Sync for Timers {}
// SAFETY: event handles may be used from any thread (CUDA runtime API documentation).
unsafe impl Send for Timers {}

/// A pair's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elapsed {
    NotYet,
    Took(Nanoseconds),
    /// CUDA failed: its context is gone or broken.
    Failed,
}

impl Timers {
    /// Bytes of the pairs, without CUDA's events.
    pub(crate) const MEMORY: usize = PAIRS * size_of::<Pair>();

    /// `None` if there is no memory for them.
    pub(crate) fn new() -> Option<Self> {
        let unmade = || {
            UnsafeCell::new(Pair {
                start: ptr::null_mut(),
                stop: ptr::null_mut(),
                ordinal: None,
                stream: ptr::null_mut(),
            })
        };
        let pairs = memory::slice(PAIRS, || Some(unmade()))?;
        Some(Self { free: Free::new(), pairs, more: OnceLock::new() })
    }

    /// Marks the start of an operation on `stream`, which belongs to this device, or else to the current one.
    /// With `many`, also of the additional pairs. `None` if no pair is free or CUDA refuses. Called by the
    /// thread that owns these timers.
    pub(crate) fn start(&self, stream: cudaStream_t, device: Option<c_int>, many: bool) -> Option<TimerId> {
        let device = device.or_else(runtime::current_device)?;
        let id = self.take(device).or_else(|| if many { self.take_more(device) } else { None })?;
        let pair = self.pair(id);
        // SAFETY: the pair is this thread's until it is recorded and pushed.
        let start = unsafe {
            (*pair.get()).stream = stream;
            (*pair.get()).start
        };
        // SAFETY: a live event of the stream's device; the stream is the one the program launches on.
        if unsafe { runtime::record_event(start, stream) } == Some(SUCCESS) {
            return Some(id);
        }
        runtime::forget_error();
        self.give_back(id);
        None
    }

    /// Marks the end. If CUDA refuses, the pair becomes free again and the result is `false`.
    pub(crate) fn stop(&self, id: TimerId, stream: cudaStream_t) -> bool {
        // SAFETY: as in `start`.
        let stop = unsafe { (*self.pair(id).get()).stop };
        // SAFETY: as in `start`.
        let done = unsafe { runtime::record_event(stop, stream) } == Some(SUCCESS);
        if !done {
            runtime::forget_error();
            self.give_back(id);
        }
        done
    }

    /// Takes the lowest free pair of this device, creating its events if it has none.
    fn take(&self, device: c_int) -> Option<TimerId> {
        let taken = self.free.take(|number| self.fits(TimerId(number), device));
        taken.map(TimerId)
    }

    /// The same, of the additional pairs.
    #[cold]
    fn take_more(&self, device: c_int) -> Option<TimerId> {
        let more = self.more.get_or_init(|| {
            // SAFETY: all zeros are an unused pair.
            let pairs = unsafe { memory::zeros(MORE) }?;
            Some(More { free: Free::new(), pairs })
        });
        let id = |number| TimerId(PAIRS as u16 + number);
        more.as_ref()?.free.take(|number| self.fits(id(number), device)).map(id)
    }

    /// Whether a free pair is one of this device; creates its events if it has none.
    fn fits(&self, id: TimerId, device: c_int) -> Option<bool> {
        // SAFETY: the pair is free, so this thread may take it.
        let pair = unsafe { &mut *self.pair(id).get() };
        if pair.ordinal.is_none() {
            runtime::on_device(device, || make(pair, device))?;
        }
        Some(pair.device() == Some(device))
    }

    /// A pair's result. Called by the hook's thread, with the pair's device current.
    pub(crate) fn read(&self, id: TimerId) -> Elapsed {
        // SAFETY: the record of this pair was popped, so the pair belongs to the reader until it is returned.
        let pair = unsafe { &*self.pair(id).get() };
        // SAFETY: a live event.
        match unsafe { runtime::query_event(pair.stop) } {
            Some(SUCCESS) => {}
            Some(NOT_READY) => return Elapsed::NotYet,
            _ => return Elapsed::Failed,
        }
        let mut milliseconds = 0.0_f32;
        // SAFETY: both events are live and recorded; `milliseconds` outlives the call.
        match unsafe { runtime::elapsed_time(&raw mut milliseconds, pair.start, pair.stop) } {
            Some(SUCCESS) => Elapsed::Took(Nanoseconds((f64::from(milliseconds) * 1e6).max(0.0) as u64)),
            _ => Elapsed::Failed,
        }
    }

    /// Whether the stream has reached the operation. Called like `read`.
    pub(crate) fn has_started(&self, id: TimerId) -> bool {
        // SAFETY: as in `read`.
        let pair = unsafe { &*self.pair(id).get() };
        // SAFETY: a live event.
        unsafe { runtime::query_event(pair.start) == Some(SUCCESS) }
    }

    /// How long after `event` the operation began, in nanoseconds; negative if it began before. Called like
    /// `read`, after `read` returned a time; `event` is done and belongs to the pair's device.
    pub(crate) fn start_after(&self, id: TimerId, event: cudaEvent_t) -> Option<i64> {
        // SAFETY: as in `read`.
        let pair = unsafe { &*self.pair(id).get() };
        let mut milliseconds = 0.0_f32;
        // SAFETY: both events are live and recorded; `milliseconds` outlives the call.
        let result = unsafe { runtime::elapsed_time(&raw mut milliseconds, event, pair.start) };
        if result != Some(SUCCESS) {
            runtime::forget_error();
            return None;
        }
        Some((f64::from(milliseconds) * 1e6) as i64)
    }

    /// The device that a pair belongs to.
    pub(crate) fn device(&self, id: TimerId) -> Option<c_int> {
        // SAFETY: as in `read`; a pair's device never changes once it is made.
        unsafe { (*self.pair(id).get()).device() }
    }

    /// The stream of the pair's operation; only to be compared with other streams.
    pub(crate) fn stream(&self, id: TimerId) -> usize {
        // SAFETY: as in `read`.
        unsafe { (*self.pair(id).get()).stream }.addr()
    }

    pub(crate) fn give_back(&self, id: TimerId) {
        match self.additional(id) {
            Some((more, number)) => more.free.give_back(number as u16),
            None => self.free.give_back(id.0),
        }
    }

    pub(crate) fn all_free(&self) -> bool {
        self.free.is_all() && self.more().is_none_or(|more| more.free.is_all())
    }

    fn more(&self) -> Option<&More> {
        self.more.get()?.as_ref()
    }

    /// The number of a pair among the additional ones, if it is one.
    fn additional(&self, id: TimerId) -> Option<(&More, usize)> {
        let number = usize::from(id.0).checked_sub(PAIRS)?;
        Some((self.more()?, number))
    }

    fn pair(&self, id: TimerId) -> &UnsafeCell<Pair> {
        match self.additional(id) {
            Some((more, number)) => &more.pairs[number],
            None => &self.pairs[usize::from(id.0)],
        }
    }
}

impl Pair {
    fn device(&self) -> Option<c_int> {
        self.ordinal.map(|ordinal| ordinal.get() - 1)
    }
}

/// Makes the two events on the current device.
#[cold]
fn make(pair: &mut Pair, device: c_int) -> Option<()> {
    let start = runtime::make_event(0)?;
    let Some(stop) = runtime::make_event(0) else {
        // SAFETY: the event was just made, and nobody else has it.
        if unsafe { runtime::destroy_event(start) } != Some(SUCCESS) {
            runtime::forget_error();
        }
        return None;
    };
    (pair.start, pair.stop) = (start, stop);
    pair.ordinal = NonZero::new(device + 1);
    Some(())
}

impl std::fmt::Debug for Timers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timers").field("free", &self.free).finish_non_exhaustive()
    }
}
