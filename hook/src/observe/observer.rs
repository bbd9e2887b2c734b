//! The only observer of a process. It is created at the first intercepted call, and forgotten in a forked
//! child.

mod birth;
mod end;

use std::{
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    time::Duration,
};

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::{
    frame::StepSource,
    id::Step,
    ledger::{KinetoCount, Ledger, LedgerPage},
    unit::Moment,
};

use crate::{
    gpu::{
        completion::Completions,
        exposure::Exposure,
        gpus::Gpus,
        graphs::{GraphCaptureId, Graphs},
        queued::Queue,
        runtime,
        streams::Streams,
    },
    interpose::nccl::NcclMemory,
    observe::{
        allocations::Allocations, communicator::Communicators, lane::Lane, physical::Physical,
        record::Record, work::Working,
    },
    process::{clock::monotonic, memory, switch},
    publish::{bell::Bell, governor::Overhead},
    python::optimizer::{Optimizer, Optimizers},
};

pub(crate) use birth::read_environment;
pub(crate) use end::{register, register_exit};

/// Maximum number of threads that can launch at once.
const LANES: usize = 256;

/// Number of lanes with rings that buffer at least 20 ms of a busy thread; the other rings are shorter.
const LONG_RINGS: usize = 16;
const SHORT_RING: usize = 256;

/// Within the 32 MiB limit of a rank's hook.
const _: () = assert!(
    LONG_RINGS * Lane::memory(crate::observe::ring::SLOTS) + (LANES - LONG_RINGS) * Lane::memory(SHORT_RING)
        <= 24 << 20,
    "lanes take too much memory"
);

/// Lanes that the hook's thread keeps ready, so that a thread's first call takes one instead of creating it.
const SPARE: usize = 2;

/// How long a thread waits for the hook's thread to create a lane.
const LANE_PATIENCE: Duration = Duration::from_millis(20);

/// The observer of this process; null before the first call, while it is being created, and in a new child.
static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(ptr::null_mut());
/// Increases in every forked child, so that a child does not use a thread's pointer to the parent's observer.
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// Number of calls that came while the observer was being created, and could not wait.
static TOO_EARLY: AtomicU64 = AtomicU64::new(0);

/// Calls without a lane are counted in several words, so that threads without lanes do not contend.
const STRIPES: usize = 16;

/// A counter in a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

#[derive(Debug)]
pub(crate) struct Observer {
    lanes: [AtomicPtr<Lane>; LANES],
    /// Rings when lanes were created.
    more_lanes: Bell,
    /// Number of threads that wait for a lane; and whether a wait has timed out since the last lanes were
    /// created.
    waiting: AtomicU32,
    wait_timed_out: AtomicBool,
    pub(crate) communicators: Communicators,
    pub(crate) allocations: Allocations,
    pub(crate) physical: Physical,
    pub(crate) nccl_memory: NcclMemory,
    pub(crate) graphs: Graphs,
    pub(crate) completions: Completions,
    pub(crate) queue: Queue,
    pub(crate) exposure: Exposure,
    pub(crate) gpus: Gpus,
    pub(crate) streams: Streams,
    page: LedgerPage,
    /// Calls that were not observed because there was no free lane, or no memory for one.
    no_lane: [Stripe; STRIPES],
    /// Number of completed steps, as `step()` counts them.
    pub(crate) steps: AtomicU64,
    /// The work that the program reports.
    pub(crate) work: Working,
    pub(crate) optimizers: Optimizers,
    /// Whether the program marks its steps.
    is_marked: AtomicBool,
    /// Graph captures in progress that were begun through the runtime.
    graph_captures: AtomicU32,
    /// Errors in environment variables.
    pub(crate) complaints: Vec<String>,
    pub(crate) overhead: Overhead,
    stop: AtomicBool,
    stopped: AtomicBool,
    /// Wakes the hook's own thread.
    bell: Bell,
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

    /// Publishes the observer of this process.
    fn publish(&'static self) {
        OBSERVER.store(ptr::from_ref(self).cast_mut(), Release);
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        self.page.ledger()
    }

    pub(crate) fn ledger_descriptor(&self) -> Option<u32> {
        self.page.descriptor().and_then(|fd| u32::try_from(fd).ok())
    }

    /// Lends the lowest free lane to a thread. `None` if all are taken, or there is no memory for another.
    pub(crate) fn lend(&'static self, thread: u32) -> Option<&'static Lane> {
        if let Some(lane) = self.lanes().find(|lane| lane.lend(thread)) {
            return Some(lane);
        }
        // After a wait that timed out, the hook's thread may be blocked.
        if self.wait_timed_out.load(Relaxed) || self.lanes().count() == LANES {
            return None;
        }
        self.waiting.fetch_add(1, AcqRel);
        let until = monotonic() + LANE_PATIENCE.as_nanos() as u64;
        let lent = loop {
            let rings = self.more_lanes.rings();
            self.wake();
            if let Some(lane) = self.lanes().find(|lane| lane.lend(thread)) {
                break Some(lane);
            }
            let now = monotonic();
            if now >= until || self.lanes().count() == LANES {
                self.wait_timed_out.store(now >= until, Relaxed);
                break None;
            }
            self.more_lanes.wait(rings, Duration::from_nanos(until - now));
        };
        self.waiting.fetch_sub(1, AcqRel);
        lent
    }

    /// Creates lanes until enough are spare. Called by the hook's thread.
    pub(crate) fn make_lanes(&'static self) {
        let wanted = SPARE + self.waiting.load(Acquire) as usize;
        let mut free = self.lanes().filter(|lane| lane.is_free()).count();
        for (index, place) in self.lanes.iter().enumerate() {
            if free >= wanted {
                break;
            }
            if place.load(Relaxed).is_null() {
                let slots = if index < LONG_RINGS { crate::observe::ring::SLOTS } else { SHORT_RING };
                let Some(lane) = Lane::new(self, slots).and_then(memory::boxed) else { break };
                place.store(Box::leak(lane).as_mut_ptr(), Release);
                free += 1;
            }
        }
        self.wait_timed_out.store(false, Relaxed);
        if wanted > SPARE {
            self.more_lanes.ring();
        }
    }

    /// Counts a call of a thread without a lane.
    pub(crate) fn passed_by(&self, thread: usize) {
        self.no_lane[thread % STRIPES].0.fetch_add(1, Relaxed);
    }

    /// Number of calls that were not observed because no lane was free, or the observer was still being
    /// created.
    pub(crate) fn unobserved(&self) -> u64 {
        let without = self.no_lane.iter().map(|stripe| stripe.0.load(Relaxed)).sum::<u64>();
        without + TOO_EARLY.load(Relaxed)
    }

    /// All lanes that were created.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &'static Lane> {
        self.lanes.iter().map_while(|place| {
            let at = place.load(Acquire);
            // SAFETY: lanes are never freed once published.
            (!at.is_null()).then(|| unsafe { &*at })
        })
    }

    /// Takes the program's mark at the end of step number `completed`, or of the next step.
    pub(crate) fn step(&self, lane: &Lane, completed: Option<u64>) {
        let completed = self.count_step(completed);
        self.is_marked.store(true, Relaxed);
        self.step_ended(lane, StepSource::Marked, completed);
    }

    /// Counts a call of an optimizer's step; see [`Optimizers`]. A step that is captured into a CUDA graph
    /// counts when the graph is launched.
    ///
    /// `counted` is the number of calls that Kineto, PyTorch's profiler, has counted; 0 if it counts none.
    pub(crate) fn optimizer_called(&self, lane: &Lane, optimizer: &Optimizer, counted: u32) {
        let graph_capture = lane.last_graph_capture().filter(|_| self.may_capture_graph());
        if !graph_capture.is_some_and(|graph_capture| {
            self.graphs.add_if_known(graph_capture, |graph| graph.add_steps(optimizer, 1))
        }) && let Some(completed) = self.optimizer_stepped(lane, optimizer, 1)
            && counted > 0
        {
            // The program's mark of a step comes after the optimizer.
            let ledger = self.ledger();
            let is_marked = self.is_marked.load(Relaxed);
            let step = if is_marked { Step(ledger.completed().0 + 1) } else { Step(completed) };
            ledger.kineto(KinetoCount { step, counted });
        }
    }

    /// Counts `steps` steps of an optimizer. Returns the number of completed steps, if these ended steps of
    /// the program.
    pub(crate) fn optimizer_stepped(&self, lane: &Lane, optimizer: &Optimizer, steps: u32) -> Option<u64> {
        let in_main = lane.is_of_main_thread();
        let completed = (0..steps).filter_map(|_| self.optimizers.stepped(optimizer, in_main)).last();
        // An optimizer's steps are only counted while observing is off, or if the program marks its steps.
        if let Some(completed) = completed.filter(|_| switch::is_on() && !self.is_marked.load(Relaxed)) {
            self.step_ended(lane, StepSource::Optimizer, completed);
        }
        completed
    }

    fn step_ended(&self, lane: &Lane, source: StepSource, completed: u64) {
        self.ledger().step(Step(completed), Moment::now());
        lane.step_ended(completed);
        lane.push(Record::Step { source, completed, at: monotonic() });
    }

    /// Counts a step. Returns the number of completed steps.
    pub(crate) fn count_step(&self, completed: Option<u64>) -> u64 {
        match completed {
            Some(completed) => {
                self.steps.store(completed, Relaxed);
                completed
            }
            None => self.steps.fetch_add(1, Relaxed) + 1,
        }
    }

    /// Whether any stream is in a graph capture that was begun through the runtime. A query of each stream
    /// would cost more than the rest of a launch.
    #[inline]
    pub(crate) fn may_capture_graph(&self) -> bool {
        self.graph_captures.load(Relaxed) != 0
    }

    /// The graph capture that `stream` takes part in.
    #[inline]
    pub(crate) fn graph_capture_of(&self, stream: cudaStream_t) -> Option<GraphCaptureId> {
        if self.may_capture_graph() { runtime::graph_capture_of(stream) } else { None }
    }

    pub(crate) fn graph_capture_begun(&self) {
        self.graph_captures.fetch_add(1, Relaxed);
    }

    pub(crate) fn graph_capture_ended(&self) {
        // A graph capture that began before observing also ends here, so the count stops at zero.
        let _ = self.graph_captures.fetch_update(Relaxed, Relaxed, |captures| captures.checked_sub(1));
    }

    /// Wakes the hook's thread if it sleeps, without waiting for it.
    #[cold]
    pub(crate) fn wake(&self) {
        self.bell.ring();
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Acquire)
    }

    pub(crate) fn set_stopped(&self) {
        self.stopped.store(true, Release);
    }
}
