//! Keeps the hook within its budget: measures the cost of timing an operation, adds up the spent time, and
//! sets the sampling rate of each class. It runs on the hook's thread.

mod plan;

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use plan::{Done, Plan, ROUND, Subject};
use xpu_wire::unit::Nanoseconds;

use crate::{
    gpu::{completion, queued::PerSecond},
    observe::{
        lane::{Count, Counters, Lane},
        observer::Observer,
    },
    publish::{
        budget,
        rate::{self, Class},
    },
};

/// Initial estimates in nanoseconds, until costs are measured: of a pair of events for its launching thread,
/// and of one event for the GPU. The first is about twice what an H200's host takes, the second about what an
/// H200 takes.
const COST: u64 = 3_000;
const GAP: u64 = 1_500;

/// The cost of one event without timing: for its launching thread, until that is measured, and for the GPU.
/// On an H100, these are 500 to 600 ns and 30 ns (`tests/gpu/event_cost.c`), because no timestamp is written.
const MARK_COST: u64 = 600;
const MARK_GAP: u64 = 50;

/// Number of measured gaps kept; their median is used.
const GAPS: usize = 31;

/// What a launch costs its thread if it is recorded but not timed (25 ns for a GEMM, 35 ns for a collective,
/// 55 ns for one in a group), and if it is only counted (9 ns for a kernel, 12 ns with requested names). The
/// values are a little higher than those that `make bench` measures.
const RECORDED: u64 = 40;
const COUNTED: u64 = 13;

/// Measured costs and spent time, for readers.
#[derive(Debug, Default)]
pub(crate) struct Overhead {
    /// Nanoseconds spent since the process began.
    pub(crate) spent: AtomicU64,
    /// Cost of a pair of events to its launching thread, and of one event to the GPU, in nanoseconds; 0 while
    /// unknown.
    pub(crate) event_cost: AtomicU64,
    pub(crate) event_gap: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Governor {
    plan: Plan,
    gaps: VecDeque<u64>,
    last_cost: CostSample,
    /// When the next completion events must be requested.
    marks_due: u64,
    /// When launches were last counted, and how many collectives, and sends and receives, could have had an
    /// event in front by then.
    launched: (u64, [u64; 2]),
}

/// Numbers of operations at the last check, and their cost.
#[derive(Debug, Default)]
struct CostSample {
    pairs: u64,
    recorded: u64,
    counted: u64,
    marks: u64,
    /// Nanoseconds spent on pairs of events, and on everything else.
    timing: u64,
    counting: u64,
}

impl Governor {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            plan: Plan::new(now),
            gaps: VecDeque::new(),
            last_cost: CostSample::default(),
            marks_due: now,
            launched: (now, [0; 2]),
        }
    }

    /// Takes the results of empty pairs of events.
    pub(crate) fn learn(&mut self, gaps: impl IntoIterator<Item = Nanoseconds>) {
        for gap in gaps {
            self.gaps.truncate(GAPS - 1);
            self.gaps.push_front(gap.0);
        }
    }

    /// Checks the spent time, and sets the rates when due. `now` is in monotonic nanoseconds.
    pub(crate) fn visit(&mut self, observer: &Observer, now: u64) {
        let cost = observer.lanes().map(Lane::typical_cost).max().filter(|&cost| cost > 0);
        let gap = median(&self.gaps);
        // The launching thread and the GPU may wait for each other, so both costs count as delay of the
        // program.
        let price = cost.unwrap_or(COST) + 2 * gap.unwrap_or(GAP);
        let mark =
            Some(observer.queue.typical_cost()).filter(|&cost| cost > 0).unwrap_or(MARK_COST) + MARK_GAP;
        self.last_cost.charge(observer, price, mark);
        let overhead = &observer.overhead;
        overhead.spent.store(self.last_cost.timing + self.last_cost.counting, Relaxed);
        overhead.event_cost.store(cost.unwrap_or(0), Relaxed);
        overhead.event_gap.store(gap.unwrap_or(0), Relaxed);
        let budget = budget::ppm().map(|ppm| f64::from(ppm) * 1e-6);
        if now >= self.marks_due {
            let communicators = observer.communicators.open().count();
            self.marks_due = now + completion::spacing(budget, mark as f64, communicators);
            observer.completions.want(observer);
        }
        self.count_launches(observer, now, |launches| {
            observer.queue.govern(budget, launches, mark as f64);
        });
        let Some(budget) = budget else { return };
        let waits = observer.lanes().map(|lane| lane.counters.waits.get()).sum();
        let done = Done {
            pairs: self.last_cost.pairs,
            counting: self.last_cost.counting,
            waits,
            chances: chances(observer),
        };
        if self.plan.look(now, budget, price as f64, &done) {
            self.apply(observer);
        }
    }

    /// Once a second, passes on the rate of launches that may have an event in front.
    fn count_launches(&mut self, observer: &Observer, now: u64, to: impl FnOnce(PerSecond)) {
        let (since, before) = self.launched;
        let passed = now.saturating_sub(since) as f64 * 1e-9;
        if passed >= 1.0 {
            let all = observer.lanes().fold([0, 0], |[collectives, messages], lane| {
                let Counters { fronts, message_fronts, .. } = &lane.counters;
                [collectives + fronts.get(), messages + message_fronts.get()]
            });
            self.launched = (now, all);
            let [collectives, messages] = [0, 1].map(|of| all[of].saturating_sub(before[of]) as f64 / passed);
            to(PerSecond { collectives, messages });
        }
    }

    fn apply(&mut self, observer: &Observer) {
        for (subject, rate) in self.plan.rates() {
            match subject {
                Subject::Class(class) => rate::govern(class, rate),
                Subject::Communicator(index) => {
                    observer.communicators.slot(index).rate.store(rate.0, Relaxed);
                }
            }
        }
        if let Some(rate) = self.plan.busiest() {
            rate::govern(Class::Collective, rate);
        }
        let (more, most) = self.plan.allowance();
        let governed = rate::fixed(Class::Gemm).is_none();
        rate::SHAPES.add(more, if governed { most } else { 0 });
        rate::ROUND.add(self.plan.round(), ROUND);
    }
}

impl CostSample {
    /// Adds up the spent time, given the cost of a pair of events and of an event without timing.
    fn charge(&mut self, observer: &Observer, price: u64, mark: u64) {
        let sum =
            |counter: fn(&Lane) -> &Count| -> u64 { observer.lanes().map(|lane| counter(lane).get()).sum() };
        let timed = sum(|lane| &lane.counters.timed);
        let pairs = timed + sum(|lane| &lane.counters.gaps);
        let launched = sum(|lane| &lane.counters.gemms)
            + sum(|lane| &lane.counters.collectives)
            + sum(|lane| &lane.counters.point_to_point);
        let recorded = launched.saturating_sub(timed).max(self.recorded);
        let counted = sum(|lane| &lane.counters.kernels)
            + sum(|lane| &lane.counters.graphs)
            + sum(|lane| &lane.counters.ordered);
        let marks = sum(|lane| &lane.counters.marks);
        self.timing += (pairs - self.pairs) * price;
        self.counting += (marks - self.marks) * mark;
        self.counting += (recorded - self.recorded) * RECORDED + (counted - self.counted) * COUNTED;
        (self.pairs, self.recorded, self.counted, self.marks) = (pairs, recorded, counted, marks);
    }
}

/// Number of operations of each subject that could have been timed so far.
fn chances(observer: &Observer) -> Vec<plan::Chances> {
    let slots = || observer.communicators.open_slots();
    let sum = |counter: fn(&Lane) -> &Count| observer.lanes().map(|lane| counter(lane).get()).sum();
    let class =
        |class, count| plan::Chances { subject: Subject::Class(class), count, fixed: rate::fixed(class) };
    let mut chances = vec![
        class(Class::Gemm, sum(|lane| &lane.counters.gemms)),
        class(Class::PointToPoint, slots().map(|(_, slot)| slot.chances(false)).sum()),
        class(Class::Graph, sum(|lane| &lane.counters.graphs)),
        class(Class::Kernel, sum(|lane| &lane.counters.named_kernels)),
    ];
    chances.extend(slots().map(|(index, slot)| plan::Chances {
        subject: Subject::Communicator(index),
        count: slot.chances(true),
        fixed: rate::fixed(Class::Collective),
    }));
    chances
}

fn median(values: &VecDeque<u64>) -> Option<u64> {
    let mut sorted: Vec<_> = values.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}
