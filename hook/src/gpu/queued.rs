//! Shows which launched collectives, sends and receives the GPU has reached: the hook records an event
//! without timing before a launch. For a timed operation, the first event of its pair shows the same.
//!
//! If the budget does not suffice for all operations, the first operation after a wait for the GPU has
//! priority, if kernels were launched between the two: these may be what does not end. Sends and receives get
//! the rest of the budget once every collective has an event.
//!
//! The oldest operations that their streams have not reached keep their events, however many operations
//! follow. So in a hang, these events show which GPUs have reached the collective, and which run other work.

use std::{
    cell::UnsafeCell,
    ffi::c_int,
    sync::atomic::{
        AtomicBool, AtomicU8, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::sampling::Rate;

use crate::{
    gpu::{
        event::{Event, Passed},
        runtime,
    },
    observe::{
        lane::{Costs, Lane},
        observer::Observer,
    },
    process::clock::{coarse_now, monotonic},
    publish::rate::Allowance,
};

/// Maximum number of pending launches with an event.
const EVENTS: usize = 64;

/// Part of the budget spent on these events, and the largest part of that for first operations after waits.
const SHARE: f64 = 0.4;
const FIRST_SHARE: f64 = 0.8;

#[derive(Debug)]
pub(crate) struct Queue {
    fronts: [LeadingEvent; EVENTS],
    /// A launch found no free event. Further launches do not search until the hook's thread has checked the
    /// events.
    is_full: AtomicBool,
    /// The rate at which collectives are selected by their numbers, so that all ranks select the same ones.
    rate: AtomicU8,
    /// A thread has waited for the GPU, and no collective has followed kernels since.
    has_waited: AtomicBool,
    /// The same for launches of sends and receives.
    messages: AtomicU8,
    /// First operations that may still get an event, and those that got one.
    firsts: Allowance,
    first: AtomicU64,
    /// The cost of an event for its launching thread.
    costs: Costs,
}

/// A free event.
const FREE: u8 = 0;
/// A launching thread is recording it.
const TAKEN: u8 = 1;
/// Recorded, and perhaps not reached yet: owned by the hook's thread.
const UNDER_WAY: u8 = 2;

/// The event before a launch.
#[derive(Debug)]
struct LeadingEvent {
    /// [`FREE`], or its owner.
    state: AtomicU8,
    place: UnsafeCell<Place>,
}

#[derive(Debug)]
struct Place {
    event: Event,
    /// The call's ticket in the ledger's record; for a group, that of its first call.
    ticket: u64,
}

// SAFETY: `place` is touched by the thread that made the state TAKEN, and by the hook's own thread while it is UNDER_WAY.
unsafe impl Sync for LeadingEvent {}

impl Queue {
    pub(crate) fn new() -> Self {
        let front = |_| LeadingEvent {
            state: AtomicU8::new(FREE),
            place: UnsafeCell::new(Place { event: Event::UNMADE, ticket: 0 }),
        };
        Self {
            fronts: std::array::from_fn(front),
            is_full: AtomicBool::new(false),
            rate: AtomicU8::new(Rate::EVERY.0),
            has_waited: AtomicBool::new(false),
            messages: AtomicU8::new(Rate::EVERY.0),
            firsts: Allowance::new(),
            first: AtomicU64::new(0),
            costs: Costs::new(),
        }
    }

    /// Sets how many launches get an event, given these launches per second and the cost of an event in
    /// nanoseconds. Called once a second.
    pub(crate) fn govern(&self, budget: Option<f64>, launches: PerSecond, price: f64) {
        let governed = rate(budget, launches.collectives, price, self.first.swap(0, Relaxed) as f64);
        self.rate.store(governed.0, Relaxed);
        self.messages.store(rate_of_messages(budget, launches, price, governed).0, Relaxed);
        let most = budget.map_or(0.0, |budget| budget * SHARE * FIRST_SHARE / (price * 1e-9));
        let most = (most + 0.5) as i64;
        self.firsts.add(most, most);
    }

    /// A thread has waited for the GPU: the next collective after kernels gets an event if the budget allows it.
    pub(crate) fn waited(&self) {
        if self.rate.load(Relaxed) != Rate::EVERY.0 {
            self.has_waited.store(true, Relaxed);
        }
    }

    /// The cost of an event for its launching thread, in nanoseconds; 0 while unknown.
    pub(crate) fn typical_cost(&self) -> u64 {
        self.costs.typical()
    }

    /// Records an event if collective `number` is selected. Called before its launch on `stream`, a stream of
    /// `device` if that is known.
    #[inline]
    pub(crate) fn join(
        &self,
        lane: &Lane,
        ticket: u64,
        number: u64,
        stream: cudaStream_t,
        device: Option<c_int>,
    ) {
        lane.counters.fronts.add(1);
        let has_work = lane.counters.has_launched_kernels();
        if !self.is_full.load(Relaxed) && self.selects(number, has_work) {
            self.record(lane, ticket, stream, device);
        }
    }

    /// Whether collective `number` gets an event. `has_work`: its thread has launched kernels since its last one.
    #[inline]
    fn selects(&self, number: u64, has_work: bool) -> bool {
        let by_number = Rate(self.rate.load(Relaxed)).times(number);
        if has_work && self.has_waited.load(Relaxed) { self.is_first(by_number) } else { by_number }
    }

    #[cold]
    fn is_first(&self, by_number: bool) -> bool {
        self.has_waited.store(false, Relaxed);
        let selected = by_number || self.firsts.take();
        self.first.fetch_add(u64::from(selected && !by_number), Relaxed);
        selected
    }

    /// Like [`Self::join`], for send or receive `number` or a group of them.
    #[inline]
    pub(crate) fn join_message(
        &self,
        lane: &Lane,
        ticket: u64,
        number: u64,
        stream: cudaStream_t,
        device: Option<c_int>,
    ) {
        lane.counters.message_fronts.add(1);
        if !self.is_full.load(Relaxed) && Rate(self.messages.load(Relaxed)).times(number) {
            self.record(lane, ticket, stream, device);
        }
    }

    fn record(&self, lane: &Lane, ticket: u64, stream: cudaStream_t, device: Option<c_int>) {
        if !runtime::may_record(stream) {
            return;
        }
        let Some(front) = self.fronts.iter().find(|front| front.take()) else {
            return self.is_full.store(true, Relaxed);
        };
        // SAFETY: it was free, and this thread has taken it.
        let place = unsafe { &mut *front.place.get() };
        place.ticket = ticket;
        let number = lane.counters.marks.get();
        let from = Costs::measures(number).then(monotonic);
        let recorded = place.event.record(stream, device);
        if let Some(from) = from.filter(|_| recorded) {
            self.costs.took(number, monotonic() - from);
        }
        if recorded {
            lane.counters.marks.add(1);
            lane.observer().ledger().record.queued(ticket);
            note_preceding(lane, ticket, stream);
        }
        front.state.store(if recorded { UNDER_WAY } else { FREE }, Release);
    }

    /// Updates the begun collectives in the ledger. `make_current` is called with each event's device before
    /// the query. The hook's thread calls this. Returns whether events are still pending.
    pub(crate) fn gather(&self, observer: &Observer, mut make_current: impl FnMut(Option<c_int>)) -> bool {
        let mut waits = false;
        for front in self.fronts.iter().filter(|front| front.state.load(Acquire) == UNDER_WAY) {
            // SAFETY: the event is under way, so this thread owns it.
            let place = unsafe { &*front.place.get() };
            make_current(place.event.device());
            let record = &observer.ledger().record;
            match place.event.passed() {
                Passed::NotYet => {
                    waits = true;
                    continue;
                }
                Passed::Yes => record.begun(place.ticket),
                Passed::Failed => record.not_queued(place.ticket),
            }
            front.state.store(FREE, Release);
        }
        self.is_full.store(false, Relaxed);
        observer.ledger().record.asked(coarse_now());
        waits
    }
}

/// Writes the work that precedes the launch with this ticket to the ledger, after the ledger has noted the
/// launch's event.
pub(crate) fn note_preceding(lane: &Lane, ticket: u64, stream: cudaStream_t) {
    let observer = lane.observer();
    if let Some(preceding) = observer.streams.before(lane, stream) {
        observer.ledger().record.preceded_by(ticket, &preceding);
    }
}

impl LeadingEvent {
    /// Takes the event for this thread, if no other thread has it.
    fn take(&self) -> bool {
        self.state.load(Relaxed) == FREE && self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
    }
}

/// Launches a second that may get an event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerSecond {
    pub(crate) collectives: f64,
    /// Sends and receives, or groups of them.
    pub(crate) messages: f64,
}

/// The rate for operations that are not the first after a wait.
fn rate(budget: Option<f64>, per_second: f64, price: f64, firsts: f64) -> Rate {
    let Some(budget) = budget else { return Rate::EVERY };
    let all = budget * SHARE;
    let times = (per_second - firsts).max(0.0) * price * 1e-9
        / (all - firsts * price * 1e-9).max(all * (1.0 - FIRST_SHARE));
    one_in(times)
}

/// The rate for sends and receives: they get the rest once every collective has an event.
fn rate_of_messages(budget: Option<f64>, launches: PerSecond, price: f64, collectives: Rate) -> Rate {
    let Some(budget) = budget else { return Rate::EVERY };
    let left = budget * SHARE - launches.collectives * price * 1e-9;
    if collectives != Rate::EVERY || left <= 0.0 {
        return Rate::NEVER;
    }
    one_in(launches.messages * price * 1e-9 / left)
}

/// The finest rate that selects at most one in `times`.
fn one_in(times: f64) -> Rate {
    // A budget of zero selects nothing, even if nothing is launched (0 / 0).
    if times.is_nan() || times > Rate::COARSEST.denominator() as f64 {
        return Rate::NEVER;
    }
    // The logarithm rounded up, without libm as in `governor::plan::halved`.
    let whole = times.max(1.0) as u64;
    let least = whole + u64::from((whole as f64) < times);
    Rate(least.next_power_of_two().ilog2() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_take_four_tenths_of_the_budget_at_most() {
        let of = |budget, per_second, price| rate(budget, per_second, price, 0.0);
        assert_eq!(of(Some(1e-3), 399.0, 1_000.0), Rate::EVERY);
        assert_eq!(of(Some(1e-3), 401.0, 1_000.0), Rate(1));
        assert_eq!(of(Some(1e-3), 3_190.0, 1_000.0), Rate(3));
        assert_eq!(of(Some(1e-3), 0.0, 3_000.0), Rate::EVERY);
        assert_eq!(of(Some(0.0), 0.0, 3_000.0), Rate::NEVER);
        assert_eq!(of(Some(0.0), 10.0, 3_000.0), Rate::NEVER);
        assert_eq!(of(None, 1e6, 3_000.0), Rate::EVERY);
        // 200 first operations a second leave 200 for the others.
        assert_eq!(rate(Some(1e-3), 999.0, 1_000.0, 200.0), Rate(2));
        assert_eq!(rate(Some(1e-3), 399.0, 1_000.0, 200.0), Rate::EVERY);
    }

    #[test]
    fn sends_and_receives_have_what_collectives_leave() {
        let of = |budget, collectives, messages| {
            let governed = rate(budget, collectives, 1_000.0, 0.0);
            rate_of_messages(budget, PerSecond { collectives, messages }, 1_000.0, governed)
        };
        assert_eq!(of(Some(1e-3), 0.0, 399.0), Rate::EVERY);
        assert_eq!(of(Some(1e-3), 0.0, 1_590.0), Rate(2));
        assert_eq!(of(Some(1e-3), 300.0, 99.0), Rate::EVERY);
        assert_eq!(of(Some(1e-3), 300.0, 150.0), Rate(1));
        assert_eq!(of(Some(1e-3), 400.0, 1.0), Rate::NEVER);
        assert_eq!(of(Some(0.0), 0.0, 1.0), Rate::NEVER);
        assert_eq!(of(None, 1e6, 1e6), Rate::EVERY);
    }

    #[test]
    fn the_first_after_a_wait_has_an_event_as_far_as_most_of_the_share_goes() {
        let queue = Queue::new();
        let rate = || Rate(queue.rate.load(Relaxed));
        let launches = PerSecond { collectives: 8_000.0, messages: 0.0 };
        queue.waited();
        assert!(queue.selects(1, true) && queue.selects(2, false), "all have one");
        queue.govern(Some(1e-3), launches, 1_000.0);
        assert_eq!(rate(), Rate(5));
        let unselected = (0..64).find(|&number| !rate().times(number)).unwrap();
        let mut firsts = 0;
        for _ in 0..500 {
            assert!(!queue.selects(unselected, true), "it follows no wait");
            queue.waited();
            assert!(!queue.selects(unselected, false), "nothing before it can hang");
            firsts += u32::from(queue.selects(unselected, true));
        }
        assert_eq!(firsts, 320, "0.32 thousandths of a second");
        queue.govern(Some(1e-3), launches, 1_000.0);
        assert_eq!(rate(), Rate(7), "the others have the rest");
        queue.waited();
        assert!(queue.selects(unselected, true));
        queue.govern(Some(0.0), launches, 1_000.0);
        queue.waited();
        assert!(!queue.selects(unselected, true), "without a budget there is none");
    }
}
