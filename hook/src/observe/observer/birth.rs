//! The first intercepted call starts the hook's thread. That thread creates the observer while the caller
//! waits.
//!
//! The caller does not create the observer, because it may have a stack of only a few kilobytes.

use std::{
    ffi::{CStr, c_void},
    panic::catch_unwind,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    time::Duration,
};

use xpu_wire::{endpoint::variable, ledger::LedgerPage, unit::Moment};

use super::{Observer, STRIPES, Stripe, TOO_EARLY, end};
use crate::{
    exit_note,
    gpu::{
        completion::Completions, exposure::Exposure, gpus::Gpus, graphs::Graphs, queued::Queue,
        streams::Streams,
    },
    interpose::nccl::NcclMemory,
    observe::{
        allocations::Allocations, call_site, communicator::Communicators, kernels, physical::Physical, steps,
        work::Working,
    },
    process::{
        clock::{self, monotonic},
        memory, switch, thread,
    },
    publish::{bell::Bell, budget, governor::Overhead, identity::Identity, publisher, rate},
    python::{
        functions,
        optimizer::{self, Optimizers},
    },
};

/// The progress of the creation.
static STATE: AtomicU8 = AtomicU8::new(NOT_ASKED);
const NOT_ASKED: u8 = 0;
const ASKED: u8 = 1;
/// The environment is being read. The caller waits until that is done, so that the program does not change
/// the environment meanwhile.
const READING: u8 = 2;
const DONE: u8 = 3;
/// The caller no longer waits.
const GIVEN_UP: u8 = 4;

static OVER: Bell = Bell::new();

/// Whether the environment was checked for [`DISABLE`].
static ENVIRONMENT_READ: AtomicBool = AtomicBool::new(false);

/// How long the first call waits for the hook's thread. That thread needs a millisecond.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long first calls wait, all together, while that thread is ready to run and has no core, or reads from
/// a disk. On such a machine the program is slow, too, and without its first calls its communicators would be
/// unknown for good.
const LONGEST: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// When the creation began, in monotonic nanoseconds.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// The hook's thread, once it runs.
static THREAD: AtomicU32 = AtomicU32::new(0);

impl Observer {
    /// The observer, which is created if needed. `None` if it cannot be created, or not in time.
    pub(crate) fn get_or_start() -> Option<&'static Self> {
        if let Some(observer) = Self::get() {
            return Some(observer);
        }
        if !ENVIRONMENT_READ.load(Acquire) {
            // The call may come from a constructor of one of the program's libraries, which runs before the
            // hook's constructor.
            read_environment();
        }
        if switch::is_broken() {
            return None;
        }
        let rings = OVER.rings();
        if STATE.compare_exchange(NOT_ASKED, ASKED, AcqRel, Acquire).is_ok() {
            BEGUN.store(monotonic(), Relaxed);
            end::register();
            if !thread::start(body) {
                switch::fail();
            }
        }
        // The hook's thread would wait for itself.
        if switch::is_broken() || thread::is_last_started() {
            return None;
        }
        wait(rings);
        let made = Self::get();
        if made.is_none() {
            TOO_EARLY.fetch_add(1, Relaxed);
        }
        made
    }

    fn make() -> Option<(&'static Self, Identity)> {
        let read = |name, set: fn(&str) -> Result<(), String>| set(&std::env::var(name).ok()?).err();
        let functions = functions::set_from(|name| std::env::var(name).ok());
        let complaints = [
            read(variable::BUDGET, budget::set_from),
            read(variable::SAMPLE, rate::set_from),
            read(variable::KERNELS, kernels::set_from),
            read(variable::STEPS, steps::set_from),
        ];
        if std::env::var_os(variable::FUNCTIONS_ALWAYS).is_some_and(|value| value == "1") {
            functions::record_always();
        }
        let observer = memory::boxed(Self {
            lanes: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            more_lanes: Bell::new(),
            waiting: AtomicU32::new(0),
            wait_timed_out: AtomicBool::new(false),
            communicators: Communicators::new()?,
            allocations: Allocations::new()?,
            physical: Physical::default(),
            nccl_memory: NcclMemory::default(),
            graphs: Graphs::new()?,
            completions: Completions::new(),
            queue: Queue::new(),
            exposure: Exposure::new()?,
            gpus: Gpus::new(),
            streams: Streams::new()?,
            page: LedgerPage::create().ok()?,
            no_lane: [const { Stripe(AtomicU64::new(0)) }; STRIPES],
            steps: AtomicU64::new(0),
            work: Working::default(),
            optimizers: Optimizers::default(),
            is_marked: AtomicBool::new(false),
            graph_captures: AtomicU32::new(0),
            complaints: complaints.into_iter().flatten().chain(functions).collect(),
            overhead: Overhead::default(),
            stop: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            bell: Bell::new(),
        })?;
        let observer: &'static Self = Box::leak(observer).first()?;
        observer.ledger().heartbeat(Moment::now());
        clock::compare();
        let identity = Identity::read(observer.ledger_descriptor());
        observer.make_lanes();
        exit_note::begin(observer);
        // The optimizers are attached before the program's next instruction, so that no step is missed.
        optimizer::attach_if_late();
        call_site::prepare();
        Some((observer, identity))
    }
}

/// Prepares a forked child to create its own observer.
pub(super) fn forget() {
    STATE.store(NOT_ASKED, Relaxed);
    THREAD.store(0, Relaxed);
}

/// [`variable::DISABLE`] as a C string.
const DISABLE: &CStr = c"XPU_TOP_DISABLE";

/// Checks whether the hook is disabled: at load time, or at the first call if that is earlier, because the
/// program may clear its environment later.
pub(crate) fn read_environment() {
    // SAFETY: the name ends with NUL; before the program runs nobody changes the environment.
    let value = unsafe { libc::getenv(DISABLE.as_ptr()) };
    // SAFETY: an entry of the environment is a string.
    if !value.is_null() && unsafe { CStr::from_ptr(value) } == c"1" {
        switch::disable();
    }
    ENVIRONMENT_READ.store(true, Release);
}

fn wait(mut rings: u32) {
    let mut until = monotonic() + PATIENCE.as_nanos() as u64;
    while STATE.load(Acquire) < DONE {
        let now = monotonic();
        let may_wait = now.saturating_sub(BEGUN.load(Relaxed)) < LONGEST.as_nanos() as u64;
        if now >= until && may_wait && is_held_up() {
            until = now + LOOK_EVERY.as_nanos() as u64;
        }
        if now >= until && STATE.compare_exchange(ASKED, GIVEN_UP, AcqRel, Acquire).is_ok() {
            return switch::fail();
        }
        if now >= until + PATIENCE.as_nanos() as u64 {
            // The creation may need a lock that the caller holds.
            return;
        }
        // While the environment is being read, the caller waits even beyond the limit, because reading takes
        // only microseconds.
        OVER.wait(rings, Duration::from_nanos(until.saturating_sub(now)).max(Duration::from_millis(1)));
        rings = OVER.rings();
    }
}

/// Whether the hook's thread waits for a core or for a disk. A thread that sleeps may wait for a lock that
/// the caller holds.
fn is_held_up() -> bool {
    match THREAD.load(Relaxed) {
        // It has not run yet.
        0 => true,
        thread => matches!(thread::state(thread), Some(b'R' | b'D')),
    }
}

/// The hook's thread. A panic in it turns observing off, and does not end the program.
extern "C" fn body(_: *mut c_void) -> *mut c_void {
    THREAD.store(thread::id(), Relaxed);
    thread::begin();
    if let Err(payload) = catch_unwind(live) {
        std::mem::forget(payload);
        switch::panicked();
    }
    ptr::null_mut()
}

fn live() {
    std::panic::set_hook(Box::new(|_| {}));
    if STATE.compare_exchange(ASKED, READING, AcqRel, Acquire).is_err() {
        return;
    }
    let made = catch_unwind(Observer::make).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        switch::panicked();
        None
    });
    if let Some((observer, _)) = &made {
        observer.publish();
    } else {
        switch::fail();
    }
    STATE.store(DONE, Release);
    OVER.ring();
    if let Some((observer, identity)) = made {
        publisher::run(observer, identity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_the_same_name_here() {
        assert_eq!(DISABLE.to_str(), Ok(variable::DISABLE));
    }
}
