//! A launching thread's ring, timers, counters and line in the ledger.
//!
//! Lanes belong to the observer and are lent to threads. A thread keeps a plain pointer to its lane, without
//! a destructor. The hook's thread takes back the lanes of threads that are gone.

mod costs;
mod counters;
mod launch_clock;
mod owner;
mod queries;
mod step_clock;

use std::{
    cell::Cell,
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

pub(crate) use costs::Costs;
pub(crate) use counters::{Count, Counters};
use cudarc::runtime::sys::cudaStream_t;
use launch_clock::LaunchClock;
use owner::LaneOwner;
use queries::Queries;
use step_clock::StepClock;
use xpu_wire::{
    ledger::{Call, NO_TICKET, ThreadLine},
    unit::Moment,
};

use crate::{
    capture,
    gpu::{
        runtime,
        timer::{TimerId, Timers},
    },
    interpose::cublaslt::Layouts,
    observe::{
        group::Group,
        observer::{self, Observer},
        record::Record,
        ring::{Pushed, Ring},
        shapes::Shapes,
        sync,
    },
    process::{clock::monotonic, single::Single, thread, thread_words::ThreadWords},
};

/// After one in this many timed operations, an empty pair of events measures the GPU's cost of events. These
/// are not the operations whose cost to the thread is measured ([`Costs::measures`]).
const GAP_ONE_IN: u64 = 31;

pub(crate) struct Lane {
    owner: LaneOwner,
    pub(crate) ring: Ring<Record>,
    pub(crate) timers: Timers,
    pub(crate) counters: Counters,
    pub(crate) shapes: Shapes,
    group: Single<Group>,
    /// Whether the group is open; readable without access to the group.
    is_grouping: AtomicBool,
    /// Only the thread that the lane is lent to touches this.
    layouts: Layouts,
    step_clock: StepClock,
    launch_clock: LaunchClock,
    queries: Queries,
    ledger_line: AtomicU32,
    /// The cost of timing one operation.
    costs: Costs,
    observer: &'static Observer,
}

// SAFETY: all fields except `layouts` and `step_clock` are atomics or Sync; only the thread that the lane is
// lent to touches these two.
unsafe impl Sync for Lane {}
// SAFETY: as above.
unsafe impl Send for Lane {}

/// The timing of an operation between its start and its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timing {
    /// The operation is only counted.
    Not,
    Started {
        timer: TimerId,
        /// Cost of the start in nanoseconds, if measured.
        cost: Option<u64>,
    },
}

/// No line of the ledger was free.
const NO_LINE: u32 = u32::MAX;

/// A thread without a lane asks for one again at one call in this many.
const ASKS_ONE_IN: u32 = 1024;

thread_local! {
    /// The observer generation, and the number of calls that this thread made in it without a lane.
    static REFUSED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

#[cfg(test)]
thread_local! {
    pub(crate) static BORROW_PANICS: Cell<bool> = const { Cell::new(false) };
}

impl Lane {
    /// Maximum memory that a lane with a ring of this size takes.
    pub(crate) const fn memory(slots: usize) -> usize {
        size_of::<Self>()
            + slots * size_of::<Record>()
            + Timers::MEMORY
            + Group::memory(slots)
            + Layouts::MEMORY
    }

    pub(crate) fn holds(&self) -> usize {
        Self::memory(self.ring.slots())
    }

    /// `None` if there is no memory for it.
    pub(crate) fn new(observer: &'static Observer, slots: usize) -> Option<Self> {
        Some(Self {
            owner: LaneOwner::nobody(),
            ring: Ring::new(slots)?,
            timers: Timers::new()?,
            counters: Counters::default(),
            shapes: Shapes::new(),
            group: Single::new(Group::default()),
            is_grouping: AtomicBool::new(false),
            layouts: Layouts::new()?,
            step_clock: StepClock::new(),
            launch_clock: LaunchClock::new(),
            queries: Queries::default(),
            ledger_line: AtomicU32::new(NO_LINE),
            costs: Costs::new(),
            observer,
        })
    }

    /// The lane of this thread, if it has one.
    #[inline]
    pub(crate) fn mine() -> Option<&'static Self> {
        let (generation, lane) = ThreadWords::mine().lane.get();
        if !lane.is_null() && generation == observer::generation() {
            // SAFETY: lanes are leaked by their observer, and live as long as the process.
            return Some(unsafe { &*lane });
        }
        None
    }

    /// A lane for this thread. The first call of a process, or of a forked child, starts the observer.
    #[cold]
    pub(crate) fn borrow() -> Option<&'static Self> {
        #[cfg(test)]
        if BORROW_PANICS.get() {
            // SAFETY: __errno_location gives a valid pointer for the life of the thread.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            panic!("on purpose");
        }
        let observer = Observer::get_or_start()?;
        let (generation, calls) = REFUSED.get();
        let is_refused = generation == observer::generation() && calls % ASKS_ONE_IN != 0;
        let lane = if is_refused { None } else { observer.lend(thread::id()) };
        if let Some(lane) = lane {
            ThreadWords::mine().lane.set((observer::generation(), lane));
        } else {
            REFUSED.set((observer::generation(), calls.wrapping_add(1)));
            observer.passed_by((&raw const calls).addr() >> 12);
        }
        lane
    }

    pub(crate) fn is_free(&self) -> bool {
        self.owner.thread() == 0
    }

    /// Distinguishes lanes.
    pub(crate) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    pub(crate) fn is_of_main_thread(&self) -> bool {
        // SAFETY: getpid has no precondition.
        self.owner.thread() == unsafe { libc::getpid() } as u32
    }

    /// Lends the lane, if it is free, to the calling thread, which has this id.
    pub(crate) fn lend(&self, thread: u32) -> bool {
        let taken = self.owner.lend(thread);
        if taken {
            // The previous thread may have ended within a group, or while it changed one.
            // SAFETY: only the thread that a lane is lent to uses its group, and the previous thread is gone.
            unsafe { self.group.renew(Group::default()) };
            self.is_grouping.store(false, Relaxed);
            self.queries.begin(self.counters.launched());
            let lines = &self.observer.ledger().threads;
            let line = lines.iter().position(|line| line.claim(thread)).map_or(NO_LINE, |line| line as u32);
            self.ledger_line.store(line, Relaxed);
        }
        taken
    }

    /// Takes the lane back if its thread is gone and has left nothing pending.
    pub(crate) fn reclaim(&self) {
        let thread = self.owner.thread();
        if thread == 0 || is_running(thread) {
            return;
        }
        self.forget_step();
        if !self.ring.is_empty() || !self.timers.all_free() {
            return;
        }
        if let Some(line) = self.line() {
            line.release();
        }
        self.owner.leave();
    }

    /// Whether this thread is in an NCCL group.
    #[inline]
    pub(crate) fn is_grouping(&self) -> bool {
        self.is_grouping.load(Relaxed)
    }

    /// Passes the thread's NCCL group to `with`. `None` for a signal handler that interrupts another use of
    /// the group.
    pub(crate) fn group<T>(&self, with: impl FnOnce(&mut Group) -> T) -> Option<T> {
        self.group.with(Group::default, |group| {
            let result = with(group);
            self.is_grouping.store(group.is_open(), Relaxed);
            result
        })
    }

    /// The matrix layouts that this thread knows. Called by the thread that the lane is lent to.
    #[inline]
    pub(crate) fn layouts(&self) -> &Layouts {
        &self.layouts
    }

    pub(crate) fn observer(&self) -> &'static Observer {
        self.observer
    }

    /// Notes in the ledger that this thread is inside `call`, until [`Self::left`].
    pub(crate) fn entered(&self, call: Call, now: Moment) {
        if let Some(line) = self.line() {
            line.enter(call, now);
        }
    }

    pub(crate) fn left(&self) {
        if let Some(line) = self.line() {
            line.leave();
        }
    }

    fn line(&self) -> Option<&ThreadLine> {
        self.observer.ledger().threads.get(self.ledger_line.load(Relaxed) as usize)
    }

    /// Starts timing an operation on `stream`. To be called only for a sampled operation.
    pub(crate) fn start_timing(&self, stream: cudaStream_t) -> Timing {
        self.start_timing_on(stream, None)
    }

    /// The same on a stream of this device, if it is known; it need not be the current device.
    pub(crate) fn start_timing_on(&self, stream: cudaStream_t, device: Option<c_int>) -> Timing {
        let from = Costs::measures(self.counters.timed.get()).then(monotonic);
        let timer = runtime::may_record(stream)
            .then(|| self.timers.start(stream, device, capture::is_on()))
            .flatten();
        timer
            .map_or(Timing::Not, |timer| Timing::Started { timer, cost: from.map(|from| monotonic() - from) })
    }

    /// Ends the timing. Returns the timer for the record.
    #[inline]
    pub(crate) fn stop_timing(&self, timing: Timing, stream: cudaStream_t) -> Option<TimerId> {
        let Timing::Started { timer, cost } = timing else { return None };
        self.stop(timer, cost, stream)
    }

    #[inline(never)]
    fn stop(&self, timer: TimerId, cost: Option<u64>, stream: cudaStream_t) -> Option<TimerId> {
        let from = cost.map(|_| monotonic());
        let stopped = self.timers.stop(timer, stream);
        let number = self.counters.timed.add(1);
        if let (Some(start), Some(from)) = (cost, from) {
            self.costs.took(number, start + monotonic() - from);
        }
        if stopped && number % GAP_ONE_IN == 3 {
            self.measure_gap(stream, self.timers.device(timer));
        }
        stopped.then_some(timer)
    }

    /// Records an empty pair, while the GPU is as busy as it was for the previous operation.
    fn measure_gap(&self, stream: cudaStream_t, device: Option<c_int>) {
        let Some(timer) = self.timers.start(stream, device, false) else { return };
        if self.timers.stop(timer, stream) {
            self.counters.gaps.add(1);
            self.push(Record::Gap { timer });
        }
    }

    /// Cost to this thread of timing an operation, in nanoseconds; 0 while unknown.
    pub(crate) fn typical_cost(&self) -> u64 {
        self.costs.typical()
    }

    /// Forgets a timing whose operation failed or was not launched here.
    pub(crate) fn drop_timing(&self, timing: Timing) {
        if let Timing::Started { timer, .. } = timing {
            self.timers.give_back(timer);
        }
    }

    /// Pushes a record. If it does not fit, its timer is returned. Inlined, and without a reference to the
    /// record, so that it is written only once.
    #[allow(clippy::inline_always, reason = "a copy of a record that was just written takes many cycles")]
    #[inline(always)]
    pub(crate) fn push(&self, record: Record) {
        let timer = record.timer();
        let ticket = if let Record::Collective { ticket, .. } = record { ticket } else { NO_TICKET };
        match self.ring.push(record) {
            Pushed::In => {}
            Pushed::HalfFull => self.observer.wake(),
            Pushed::Dropped => self.dropped(timer, ticket),
        }
    }

    #[cold]
    fn dropped(&self, timer: Option<TimerId>, ticket: u64) {
        if let Some(timer) = timer {
            self.timers.give_back(timer);
            self.observer.ledger().record.not_queued(ticket);
        }
    }
}

impl Lane {
    /// Counts a launched kernel.
    #[inline]
    pub(crate) fn count_kernel(&self) {
        self.counters.kernels.add(1);
        let device = self.observer.gpus.of_launch();
        if device.is_some() {
            self.count_kernels_beside(device, 1);
        }
    }

    /// Counts kernels separately if they were launched on another device than the process's first.
    pub(crate) fn count_kernels_beside(&self, device: Option<c_int>, kernels: u64) {
        let beside = self.observer.gpus.beside_home(device);
        if let Some(count) = beside.and_then(|device| self.counters.kernels_beside.of(device)) {
            count.add(kernels);
        }
    }

    /// Pushes one of possibly many records, as long as half of the ring stays free. `false` if not.
    pub(crate) fn push_if_roomy(&self, record: Record) -> bool {
        let roomy = self.ring.held() <= self.ring.slots() / 2;
        if roomy {
            self.push(record);
        }
        roomy
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("owner", &self.owner).finish_non_exhaustive()
    }
}

fn is_running(thread: u32) -> bool {
    // SAFETY: signal 0 sends nothing, and only checks whether the thread exists.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
}
