//! One recording, from begin to end. It runs on the hook's thread, except [`yield_to`] and
//! [`wait_for_begin`].

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use xpu_wire::endpoint::variable;

use super::{
    NOT_INITIALIZED, SUCCESS, TAKEN,
    buffers::{self, Records},
    cuptiActivityDisable, cuptiActivityEnable, cuptiActivityFlushAll, cuptiActivityGetNumDroppedRecords,
    cuptiActivityRegisterCallbacks, cuptiSubscribe, cuptiUnsubscribe, library, others,
    record::KERNEL,
    timestamps::{self, Reading, Scale},
    why,
};
use crate::process::clock::monotonic;

/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: includes incomplete records.
const FORCED: u32 = 1;

const FORBIDDEN: &str = "the job was started with XPU_TOP_CUPTI=0, which forbids CUPTI: start it without";
const OTHERS: &str = "torch.profiler, or another user of CUPTI, records in this process: capture again when that recording has ended";
const OVERTAKEN: &str = "torch.profiler, or another user of CUPTI, began to record during this capture: capture again when that recording has ended";

/// How long another recorder waits while the hook starts CUPTI, in nanoseconds: the first start takes 30 ms.
const PATIENCE: u64 = 200_000_000;

/// Whether the hook records, and whether another recorder has ended its recording.
#[derive(Debug)]
struct Switched {
    on: bool,
    overtaken: bool,
}

static SWITCHED: Mutex<Switched> = Mutex::new(Switched { on: false, overtaken: false });
/// A copy of [`Switched::on`], read without the lock.
static ON: AtomicBool = AtomicBool::new(false);

/// When the last recording ended; 0 if its memory was released.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// How long CUPTI may still write to that memory.
const QUIET: u64 = 5_000_000_000;

/// Releases memory that is no longer used.
pub(crate) fn release_memory() {
    let ended = ENDED.load(Relaxed);
    if ended != 0 && !ON.load(Relaxed) && monotonic().saturating_sub(ended) > QUIET {
        ENDED.store(0, Relaxed);
        buffers::release_memory();
    }
}

/// Drops the recording in a forked child, where CUPTI does not work.
pub(crate) fn forget() {
    ON.store(false, Relaxed);
}

#[derive(Debug)]
pub(crate) struct Session {
    first: Reading,
    last: Option<Reading>,
}

impl Session {
    /// Begins a recording. The error says what the user can do.
    pub(crate) fn begin() -> Result<Self, String> {
        if std::env::var_os(variable::CUPTI).is_some_and(|value| value == "0") {
            return Err(FORBIDDEN.to_owned());
        }
        others::ours(|| {
            let version = library::open()?;
            let Ok(mut switched) = SWITCHED.try_lock() else { return Err(OTHERS.to_owned()) };
            if others::are_recording() {
                return Err(OTHERS.to_owned());
            }
            is_free()?;
            buffers::begin(version).ok_or_else(|| why(NOT_INITIALIZED))?;
            // The callbacks are registered every time, because another recorder may have replaced them.
            // SAFETY: both callbacks live as long as the process, and do what CUPTI documents.
            let rc = unsafe { cuptiActivityRegisterCallbacks(buffers::requested, buffers::completed) };
            if rc != Some(SUCCESS) {
                return Err(why(rc.unwrap_or(NOT_INITIALIZED)));
            }
            *switched = Switched { on: true, overtaken: false };
            ON.store(true, Relaxed);
            if let Err(code) = enable() {
                disable(&mut switched);
                return Err(why(code));
            }
            let Some(first) = timestamps::read() else {
                disable(&mut switched);
                return Err(why(NOT_INITIALIZED));
            };
            Ok(Self { first, last: None })
        })
    }

    /// Ends the recording of new launches; records of earlier launches still arrive.
    pub(crate) fn switch_off(&mut self) {
        others::ours(|| {
            let mut switched = SWITCHED.lock().unwrap_or_else(PoisonError::into_inner);
            if switched.on {
                disable(&mut switched);
            }
            self.last = self.last.or_else(timestamps::read);
        });
    }

    /// Makes CUPTI return complete buffers.
    pub(crate) fn flush() {
        flush(0);
    }

    /// The number of records so far.
    pub(crate) fn record_count() -> usize {
        buffers::records().ran.len()
    }

    /// Ends the session, and returns all received records. `orderly` is false while the process ends: CUPTI
    /// may already be gone, so it is not called.
    pub(crate) fn end(mut self, orderly: bool) -> Result<(Records, Scale), String> {
        let mut dropped = 0;
        if orderly {
            self.switch_off();
            flush(FORCED);
            // SAFETY: `dropped` outlives the call.
            unsafe { cuptiActivityGetNumDroppedRecords(ptr::null_mut(), 0, &raw mut dropped) };
        }
        ON.store(false, Relaxed);
        ENDED.store(monotonic(), Relaxed);
        let mut records = buffers::end();
        records.dropped += dropped as u64;
        if SWITCHED.lock().is_ok_and(|switched| switched.overtaken) {
            return Err(OVERTAKEN.to_owned());
        }
        let scale = Scale::new(self.first, self.last).ok_or("CUPTI's clock went back: capture again")?;
        Ok((records, scale))
    }
}

/// Ends the hook's recording and takes its records, because another recorder begins on the calling thread. So
/// neither recorder gets the other's records.
pub(super) fn yield_to() {
    if !ON.load(Relaxed) {
        return;
    }
    others::ours(|| {
        let mut switched = SWITCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if switched.on {
            disable(&mut switched);
            flush(0);
            flush(FORCED);
            switched.overtaken = true;
        }
    });
}

/// Makes another recorder wait while the hook begins a recording. The wait is bounded, because in a forked
/// child the lock might never be released.
pub(super) fn wait_for_begin() {
    let until = monotonic() + PATIENCE;
    while SWITCHED.try_lock().is_err() && monotonic() < until {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Checks that no tool excludes the hook. CUPTI has one subscription, which such a tool holds. PyTorch also
/// holds it after its first recording, but excludes nobody.
fn is_free() -> Result<(), String> {
    if others::are_subscribed() {
        return Ok(());
    }
    let mut subscriber = ptr::null_mut();
    // SAFETY: `nothing` does nothing; the place for the handle outlives the call.
    match unsafe { cuptiSubscribe(&raw mut subscriber, nothing as *const c_void, ptr::null_mut()) } {
        Some(SUCCESS) => {
            // SAFETY: the subscription just made.
            unsafe { cuptiUnsubscribe(subscriber) };
            Ok(())
        }
        Some(code) => Err(why(code)),
        None => Err(why(TAKEN)),
    }
}

extern "C" fn nothing(_: *mut c_void, _: c_int, _: u32, _: *const c_void) {}

/// Enables records of kernels only. If copies are also enabled and disabled while a thread launches, CUPTI's
/// thread ends the process. This happens without the hook too: `tests/gpu/cupti.sh` reproduces it within a
/// hundred attempts. Calls of CUDA are not recorded either, because threads are in them during the switch.
fn enable() -> Result<(), c_int> {
    switch_kernels(true)
}

/// Disables what the hook enabled, except what others have enabled meanwhile.
fn disable(switched: &mut Switched) {
    if !others::have(KERNEL) {
        let _ = switch_kernels(false);
    }
    switched.on = false;
    ON.store(false, Relaxed);
}

fn switch_kernels(on: bool) -> Result<(), c_int> {
    let kernels = KERNEL as c_int;
    let rc = if on {
        // SAFETY: no precondition.
        unsafe { cuptiActivityEnable(kernels) }
    } else {
        // SAFETY: as above.
        unsafe { cuptiActivityDisable(kernels) }
    };
    match rc.unwrap_or(NOT_INITIALIZED) {
        SUCCESS => Ok(()),
        code => Err(code),
    }
}

fn flush(flag: u32) {
    // SAFETY: callbacks are registered.
    others::ours(|| unsafe { cuptiActivityFlushAll(flag) });
}
