//! The one observer of a process: made at the first intercepted call, forgotten in a forked child.

use std::{
    ptr,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    thread::{self, Thread},
    time::Duration,
};

use cudarc::runtime::sys::cudaStream_t;
use xpu_shared::{
    endpoint::variable,
    ledger::{Ledger, LedgerPage},
    unit::Moment,
};

use crate::{
    allocations::Allocations,
    budget, capture,
    communicator::Communicators,
    completion::Completions,
    exposure::Exposure,
    functions,
    governor::Overhead,
    graphs::{CaptureId, Graphs},
    identity::Identity,
    kernels,
    lane::Lane,
    lane::monotonic,
    last_words, memory, publisher, rate, runtime, switch,
    work::Working,
};

/// Threads that can launch at once. A lane takes memory where it was ever written: all of it, in time.
const LANES: usize = 64;

/// Of the 32 MiB that a rank's hook may hold.
const _: () = assert!(LANES * Lane::MEMORY <= 21 << 20, "lanes take too much memory");

/// How long a process that exits waits for its last summary to be sent.
const LAST_WORD: Duration = Duration::from_millis(100);

/// The observer of this process; null before the first call, while it is being made, and in a fresh child.
static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(ptr::null_mut());
static STARTING: AtomicBool = AtomicBool::new(false);
/// Counts up in every forked child, so that what a thread remembers of its parent's observer is not taken for the child's.
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// Calls that came from other threads while the observer was being made.
static TOO_EARLY: AtomicU64 = AtomicU64::new(0);
/// Handlers stay registered across fork; registering them again would run them twice.
static HANDLERS: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct Observer {
    lanes: [AtomicPtr<Lane>; LANES],
    pub(crate) communicators: Communicators,
    pub(crate) allocations: Allocations,
    pub(crate) graphs: Graphs,
    pub(crate) completions: Completions,
    pub(crate) exposure: Exposure,
    page: LedgerPage,
    /// Calls that were not observed because no lane was free, or no memory for one.
    no_lane: AtomicU64,
    /// Steps completed, as `step()` counts them.
    pub(crate) steps: AtomicU64,
    /// What the program says it did in them.
    pub(crate) work: Working,
    /// Captures in progress in the process, as far as they were begun through the runtime.
    captures: AtomicU32,
    /// Variables that held something that could not be read.
    pub(crate) complaints: Vec<String>,
    pub(crate) overhead: Overhead,
    stop: AtomicBool,
    stopped: AtomicBool,
    thread: OnceLock<Thread>,
}

pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

impl Observer {
    pub(crate) fn get() -> Option<&'static Self> {
        let at = OBSERVER.load(Acquire);
        // SAFETY: an observer that was published is leaked, and lives as long as the process.
        (!at.is_null()).then(|| unsafe { &*at })
    }

    /// `None` while another thread is making it, or if it cannot be made.
    pub(crate) fn get_or_start() -> Option<&'static Self> {
        if let Some(observer) = Self::get() {
            return Some(observer);
        }
        if STARTING.swap(true, AcqRel) {
            TOO_EARLY.fetch_add(1, Relaxed);
            return None;
        }
        let started = Self::start();
        if started.is_none() {
            switch::fail();
        }
        started
    }

    fn start() -> Option<&'static Self> {
        std::panic::set_hook(Box::new(|_| {}));
        if std::env::var_os(variable::DISABLE).is_some_and(|value| value == "1") {
            switch::set(false);
            return None;
        }
        let read = |name, set: fn(&str) -> Result<(), String>| set(&std::env::var(name).ok()?).err();
        let complaints = [
            read(variable::BUDGET, budget::set_from),
            read(variable::SAMPLE, rate::set_from),
            read(variable::KERNELS, kernels::set_from),
            read(variable::FUNCTIONS, functions::set_from),
        ];
        if std::env::var_os(variable::FUNCTIONS_ALWAYS).is_some_and(|value| value == "1") {
            functions::record_always();
        }
        let observer = memory::boxed(Self {
            lanes: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            communicators: Communicators::new()?,
            allocations: Allocations::new()?,
            graphs: Graphs::new()?,
            completions: Completions::new(),
            exposure: Exposure::new()?,
            page: LedgerPage::create().ok()?,
            no_lane: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            work: Working::default(),
            captures: AtomicU32::new(0),
            complaints: complaints.into_iter().flatten().collect(),
            overhead: Overhead::default(),
            stop: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            thread: OnceLock::new(),
        })?;
        let observer: &'static Self = Box::leak(observer).first()?;
        observer.ledger().beat(Moment::now());
        register_handlers();
        let identity = Identity::read(observer.ledger_descriptor());
        let handle = with_signals_blocked(|| {
            thread::Builder::new()
                .name("xpu-top".to_owned())
                .spawn(move || publisher::run(observer, identity))
                .ok()
        })?;
        let _ = observer.thread.set(handle.thread().clone());
        OBSERVER.store(ptr::from_ref(observer).cast_mut(), std::sync::atomic::Ordering::Release);
        last_words::begin(observer);
        Some(observer)
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        self.page.ledger()
    }

    pub(crate) fn ledger_descriptor(&self) -> Option<u32> {
        self.page.descriptor().and_then(|fd| u32::try_from(fd).ok())
    }

    /// Lends a lane to a thread, the lowest that is free. `None` if all are taken, or there is no memory for one more.
    pub(crate) fn lend(&'static self, thread: u32) -> Option<&'static Lane> {
        let lent = self.lanes.iter().find_map(|place| {
            let mut at = place.load(Acquire);
            if at.is_null() {
                let mut fresh = memory::boxed(Lane::new(self)?)?;
                let first = fresh.as_mut_ptr();
                at = match place.compare_exchange(ptr::null_mut(), first, AcqRel, Acquire) {
                    Ok(_) => Box::leak(fresh).as_mut_ptr(),
                    Err(other) => other,
                };
            }
            // SAFETY: lanes are never freed once published.
            let lane = unsafe { &*at };
            lane.lend(thread).then_some(lane)
        });
        if lent.is_none() {
            self.no_lane.fetch_add(1, Relaxed);
        }
        lent
    }

    /// Calls that passed by: no lane was free, or the observer was still being made.
    pub(crate) fn unobserved(&self) -> u64 {
        self.no_lane.load(Relaxed) + TOO_EARLY.load(Relaxed)
    }

    /// Lanes that were ever made.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &'static Lane> {
        self.lanes.iter().filter_map(|place| {
            let at = place.load(Acquire);
            // SAFETY: lanes are never freed once published.
            (!at.is_null()).then(|| unsafe { &*at })
        })
    }

    /// Marks the end of a step: of number `completed`, or of the next one.
    pub(crate) fn step(&self, lane: &Lane, completed: Option<u64>) {
        let completed = self.count_step(completed);
        self.ledger().step(xpu_shared::id::Step(completed), Moment::now());
        lane.push(crate::record::Record::Step { completed, at: monotonic() });
    }

    /// Gives the number of steps completed.
    pub(crate) fn count_step(&self, completed: Option<u64>) -> u64 {
        match completed {
            Some(completed) => {
                self.steps.store(completed, Relaxed);
                completed
            }
            None => self.steps.fetch_add(1, Relaxed) + 1,
        }
    }

    /// Whether some stream is being captured, as far as that was begun through the runtime. Asking each stream would
    /// cost more than the rest of a launch.
    #[inline]
    pub(crate) fn may_capture(&self) -> bool {
        self.captures.load(Relaxed) != 0
    }

    /// The capture that `stream` takes part in.
    #[inline]
    pub(crate) fn capture_of(&self, stream: cudaStream_t) -> Option<CaptureId> {
        if self.may_capture() { runtime::capture_of(stream) } else { None }
    }

    pub(crate) fn capture_begun(&self) {
        self.captures.fetch_add(1, Relaxed);
    }

    pub(crate) fn capture_ended(&self) {
        // One that was begun before the hook was on ends too: never below zero.
        let _ = self.captures.fetch_update(Relaxed, Relaxed, |captures| captures.checked_sub(1));
    }

    /// Has the hook's own thread look now. Wakes it if it sleeps, and waits for nothing.
    #[cold]
    pub(crate) fn hurry(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Acquire)
    }

    pub(crate) fn set_stopped(&self) {
        self.stopped.store(true, std::sync::atomic::Ordering::Release);
    }

    /// Asks the hook's own thread for a last summary, and waits for it, though not long.
    fn finish(&self) {
        if self.stop.swap(true, AcqRel) {
            return;
        }
        switch::end();
        if self.thread.get().is_none() {
            return;
        }
        self.hurry();
        let until = monotonic() + LAST_WORD.as_nanos() as u64;
        while !self.stopped.load(Acquire) && monotonic() < until {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

unsafe extern "C" {
    /// As `atexit`, for a function that is told the code (`on_exit(3)`, glibc).
    fn on_exit(
        handler: extern "C" fn(libc::c_int, *mut libc::c_void),
        argument: *mut libc::c_void,
    ) -> libc::c_int;
}

/// Runs after the program's `main`, before its libraries are torn down.
extern "C" fn at_exit(code: libc::c_int, _: *mut libc::c_void) {
    let _ = std::panic::catch_unwind(|| {
        last_words::exits(code);
        if let Some(observer) = Observer::get() {
            observer.finish();
        }
    });
}

/// In a forked child: forget the parent's observer, without dropping any of it. Its thread does not exist here, and
/// closing a ZeroMQ socket the parent also has makes the parent abort.
extern "C" fn in_child() {
    OBSERVER.store(ptr::null_mut(), Relaxed);
    STARTING.store(false, Relaxed);
    TOO_EARLY.store(0, Relaxed);
    GENERATION.fetch_add(1, Relaxed);
    capture::forget();
    functions::forget();
    last_words::forget();
}

fn register_handlers() {
    if HANDLERS.swap(true, AcqRel) {
        return;
    }
    // SAFETY: the handler is a function of this library, which is never unmapped (-z nodelete).
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    register_exit();
}

/// Exit handlers run last registered first. The CUDA runtime registers its own when it is first used, which is after the
/// hook's first call; the hook's own thread registers once more when it has seen CUDA work, so that it is asked first.
pub(crate) fn register_exit() {
    // SAFETY: as above.
    unsafe { on_exit(at_exit, ptr::null_mut()) };
}

/// Those that a thread brings upon itself. Where they are blocked the process dies without its crash handlers having been asked.
const OWN_FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// A thread inherits the mask of the one that makes it: with all others blocked it never takes a signal that the program waits for.
fn with_signals_blocked<T>(make: impl FnOnce() -> T) -> T {
    // SAFETY: an all-zero sigset_t is valid storage; these functions write within it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for fault in OWN_FAULTS {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let made = make();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        made
    }
}
