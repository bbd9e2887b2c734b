//! From what was done since the last look to how often each subject is timed. Knows no clock and no process.
//!
//! The budget is shared out like water: a subject that needs less than its share when all of it is timed gets that, and
//! leaves the rest to the others. So what is rare is always timed, and what is hot is sampled.

use std::collections::BTreeMap;

use xpu_shared::sampling::Rate;

use crate::rate::{Class, FIRST};

/// Nanoseconds between two looks.
const LOOK: u64 = 500_000_000;

/// A look comes sooner when so many times what one window allows has been spent in it.
const ALARM: f64 = 2.0;

/// A busy moment is forgotten by half in so many nanoseconds: what comes in bursts is timed as in the burst.
const HALF_LIFE: f64 = 4e9;

/// A subject is timed more finely only if that takes at most this part of its share: figures that waver must not make its
/// rate waver.
const ROOM: f64 = 0.7;

/// Part of the budget for products whose shape asks to be timed.
const SHAPES: f64 = 0.2;

/// Part of the budget that timing gets even where counting takes all of it: without a sample nothing is known.
const LEAST: f64 = 0.1;

/// Of what shapes may spend, so much is kept, in nanoseconds of wall time.
const KEPT: f64 = 2e9;

/// What has a rate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Class(Class),
    /// By its slot.
    Communicator(u16),
}

/// Operations that could have been timed so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chances {
    pub(super) subject: Subject,
    pub(super) count: u64,
    pub(super) by_hand: Option<Rate>,
}

/// All since the process began.
#[derive(Debug)]
pub(super) struct Done {
    /// Pairs of events recorded.
    pub(super) pairs: u64,
    /// Nanoseconds spent on anything else.
    pub(super) counting: u64,
    pub(super) chances: Vec<Chances>,
}

#[derive(Debug)]
pub(super) struct Plan {
    /// Since when, and from where, the window counts.
    since: u64,
    pairs: u64,
    counting: u64,
    claims: BTreeMap<Subject, Claim>,
    /// Share of wall time that counting takes.
    counting_share: f64,
    /// Products that may yet be timed for their shape, and the most that may be saved up.
    allowance: f64,
    most: f64,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    seen: u64,
    /// Share of wall time it would take to time all of them.
    demand: f64,
    rate: Rate,
}

impl Plan {
    pub(super) fn new(now: u64) -> Self {
        Self {
            since: now,
            pairs: 0,
            counting: 0,
            claims: BTreeMap::new(),
            counting_share: 0.0,
            allowance: 0.0,
            most: 0.0,
        }
    }

    /// `budget` is a share of wall time, `price` the nanoseconds one timed operation takes. `false` if all stays as it is.
    pub(super) fn look(&mut self, now: u64, budget: f64, price: f64, done: &Done) -> bool {
        let elapsed = now.saturating_sub(self.since);
        let whole = elapsed >= LOOK;
        let counting = (done.counting - self.counting) as f64;
        let spent = (done.pairs - self.pairs) as f64 * price + counting;
        if !whole && spent <= ALARM * budget * LOOK as f64 {
            return false;
        }
        let window = elapsed.max(LOOK) as f64;
        let fade = if whole { 0.5_f64.powf(window / HALF_LIFE) } else { 1.0 };
        self.counting_share = (self.counting_share * fade).max(counting / window);
        self.claims.retain(|subject, _| done.chances.iter().any(|chances| chances.subject == *subject));
        for chances in &done.chances {
            let fresh = Claim { seen: 0, demand: 0.0, rate: FIRST };
            let claim = self.claims.entry(chances.subject).or_insert(fresh);
            // A slot may have become another communicator's.
            let since = if chances.count < claim.seen { 0 } else { claim.seen };
            claim.demand = (claim.demand * fade).max((chances.count - since) as f64 * price / window);
            claim.seen = if whole { chances.count } else { since };
        }
        self.share_out(budget, done);
        if whole {
            self.most = (KEPT * budget * SHAPES / price).max(1.0);
            self.allowance = (self.allowance.fract() + window * budget * SHAPES / price).min(self.most);
            (self.since, self.pairs, self.counting) = (now, done.pairs, done.counting);
        }
        true
    }

    fn share_out(&mut self, budget: f64, done: &Done) {
        let mut left = budget * (1.0 - SHAPES) - self.counting_share;
        let mut demands = Vec::new();
        for chances in &done.chances {
            let demand = self.claims.get(&chances.subject).map_or(0.0, |claim| claim.demand);
            match chances.by_hand {
                Some(rate) => left -= at(rate, demand),
                None => demands.push(demand),
            }
        }
        let level = level(&mut demands, left.max(budget * LEAST));
        for chances in done.chances.iter().filter(|chances| chances.by_hand.is_none()) {
            if let Some(claim) = self.claims.get_mut(&chances.subject) {
                let finest = finest(claim.demand, level);
                claim.rate = claim.rate.clamp(finest, finest.max(self::finest(claim.demand, level * ROOM)));
            }
        }
    }

    pub(super) fn rates(&self) -> impl Iterator<Item = (Subject, Rate)> {
        self.claims.iter().map(|(&subject, claim)| (subject, claim.rate))
    }

    /// Of the communicator with most to time.
    pub(super) fn busiest(&self) -> Option<Rate> {
        let communicators =
            self.claims.iter().filter(|(subject, _)| matches!(subject, Subject::Communicator(_)));
        communicators
            .map(|(_, claim)| claim)
            .max_by(|a, b| a.demand.total_cmp(&b.demand))
            .map(|claim| claim.rate)
    }

    /// How many more products may be timed for their shape, and how many at most in all; each is said once.
    pub(super) fn allowance(&mut self) -> (i64, i64) {
        let more = self.allowance.floor();
        self.allowance -= more;
        (more as i64, self.most as i64)
    }
}

/// What it takes to time at this rate.
fn at(rate: Rate, demand: f64) -> f64 {
    demand / rate.stands_for() as f64
}

/// The share that each gets at most, so that all together take no more than `left`.
fn level(demands: &mut [f64], left: f64) -> f64 {
    demands.sort_by(f64::total_cmp);
    let (mut left, mut others) = (left, demands.len());
    for demand in demands {
        let share = left / others as f64;
        if *demand > share {
            return share;
        }
        left -= *demand;
        others -= 1;
    }
    f64::INFINITY
}

/// The finest rate that takes no more than `share`.
fn finest(demand: f64, share: f64) -> Rate {
    (0..Rate::COARSEST.0).map(Rate).find(|&rate| at(rate, demand) <= share).unwrap_or(Rate::COARSEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: f64 = 1e-3;
    const PRICE: f64 = 5_000.0;
    const SECOND: u64 = 1_000_000_000;
    const VISIT: u64 = 10_000_000;

    const GEMM: Subject = Subject::Class(Class::Gemm);
    const GRAPH: Subject = Subject::Class(Class::Graph);
    const ALL_RANKS: Subject = Subject::Communicator(0);

    /// A process that launches so many operations a second of each subject, each timed if its number says so.
    struct Load {
        plan: Plan,
        now: u64,
        done: Done,
        due: BTreeMap<Subject, f64>,
    }

    impl Load {
        fn new() -> Self {
            let done = Done { pairs: 0, counting: 0, chances: Vec::new() };
            Self { plan: Plan::new(0), now: 0, done, due: BTreeMap::new() }
        }

        fn rate(&self, subject: Subject) -> Rate {
            self.plan.claims.get(&subject).map_or(FIRST, |claim| claim.rate)
        }

        /// Gives the share of wall time that was spent. `wavering` is how much each visit's number differs from the mean.
        fn run(&mut self, seconds: f64, loads: &[(Subject, f64)], counting: f64, wavering: f64) -> f64 {
            let (begun, until) = (self.now, self.now + (seconds * SECOND as f64) as u64);
            let before = self.spent();
            while self.now < until {
                self.now += VISIT;
                self.done.counting += (counting * VISIT as f64) as u64;
                for &(subject, per_second) in loads {
                    self.launch(subject, per_second, wavering);
                }
                self.plan.look(self.now, BUDGET, PRICE, &self.done);
            }
            (self.spent() - before) / (self.now - begun) as f64
        }

        fn launch(&mut self, subject: Subject, per_second: f64, wavering: f64) {
            let rate = self.rate(subject);
            let noise = xpu_shared::sampling::priority(self.now) as f64 / u64::MAX as f64 * 2.0 - 1.0;
            let due = self.due.entry(subject).or_default();
            *due += per_second * VISIT as f64 / SECOND as f64 * (1.0 + wavering * noise);
            let chances = &mut self.done.chances;
            if !chances.iter().any(|chances| chances.subject == subject) {
                chances.push(Chances { subject, count: 0, by_hand: None });
            }
            let chances = chances.iter_mut().find(|chances| chances.subject == subject).unwrap();
            while *due >= 1.0 {
                *due -= 1.0;
                self.done.pairs += u64::from(rate.times(chances.count));
                chances.count += 1;
            }
        }

        fn spent(&self) -> f64 {
            self.done.pairs as f64 * PRICE + self.done.counting as f64
        }
    }

    /// 96 products and 24 collectives in a step of 26 ms.
    const JOB: [(Subject, f64); 2] = [(GEMM, 96.0 / 0.026), (ALL_RANKS, 24.0 / 0.026)];

    #[test]
    fn a_training_job_is_sampled_within_the_budget() {
        let mut load = Load::new();
        load.run(3.0, &JOB, 0.0, 0.0);
        let share = load.run(60.0, &JOB, 0.0, 0.0);
        assert!(share <= BUDGET && share > BUDGET * 0.4, "{share}");
        assert!((4..=6).contains(&load.rate(GEMM).0) && (3..=5).contains(&load.rate(ALL_RANKS).0));
    }

    #[test]
    fn counting_leaves_less_for_timing_but_never_nothing() {
        let mut load = Load::new();
        let share = load.run(60.0, &JOB, BUDGET * 0.5, 0.0);
        assert!(share <= BUDGET, "{share}");
        let before = load.rate(GEMM);
        load.run(60.0, &JOB, BUDGET * 2.0, 0.0);
        assert!(load.rate(GEMM) > before && load.rate(GEMM) < Rate(10));
    }

    #[test]
    fn a_tenfold_jump_is_answered_within_two_seconds() {
        let mut load = Load::new();
        load.run(30.0, &JOB, 0.0, 0.0);
        let more = JOB.map(|(subject, per_second)| (subject, per_second * 10.0));
        load.run(2.0, &more, 0.0, 0.0);
        let share = load.run(20.0, &more, 0.0, 0.0);
        assert!(share <= BUDGET, "{share}");
    }

    /// A process that was idle, and timed all there was, is not overrun by what comes then.
    #[test]
    fn a_burst_after_silence_is_noticed_at_once() {
        let mut load = Load::new();
        load.run(30.0, &[(GEMM, 1.0)], 0.0, 0.0);
        assert_eq!(load.rate(GEMM), Rate::EVERY);
        let share = load.run(1.0, &[(GEMM, 20_000.0)], 0.0, 0.0);
        assert!(share < 4.0 * BUDGET, "{share}");
    }

    #[test]
    fn what_is_rare_is_always_timed_and_the_hot_share_the_rest() {
        let mut load = Load::new();
        let loads = [(GRAPH, 4.0), (GEMM, 5_000.0), (ALL_RANKS, 5_000.0)];
        load.run(5.0, &loads, 0.0, 0.0);
        assert_eq!(load.rate(GRAPH), Rate::EVERY);
        assert_eq!(load.rate(GEMM), load.rate(ALL_RANKS));
        let share = load.run(60.0, &loads, 0.0, 0.0);
        assert!(share <= BUDGET && share > BUDGET * 0.4, "{share}");
    }

    #[test]
    fn what_wavers_does_not_make_rates_waver() {
        for per_second in (0..40).map(|n| 1_000.0 * 1.05_f64.powi(n)) {
            let mut load = Load::new();
            load.run(10.0, &[(GEMM, per_second)], 0.0, 1.0);
            let mut changes = 0;
            for _ in 0..120 {
                let before = load.rate(GEMM);
                load.run(0.5, &[(GEMM, per_second)], 0.0, 1.0);
                changes += u32::from(load.rate(GEMM) != before);
            }
            assert!(changes <= 2, "{per_second}: {changes} changes in a minute");
        }
    }

    #[test]
    fn rates_set_by_hand_stay_and_are_paid_for() {
        let mut load = Load::new();
        load.run(5.0, &JOB, 0.0, 0.0);
        let before = load.rate(ALL_RANKS);
        for chances in load.done.chances.iter_mut().filter(|chances| chances.subject == GEMM) {
            chances.by_hand = Some(Rate(0));
        }
        load.run(5.0, &JOB, 0.0, 0.0);
        assert!(load.rate(ALL_RANKS) > before);
    }

    #[test]
    fn shapes_get_a_fifth() {
        let mut load = Load::new();
        let mut allowed = 0;
        for _ in 0..600 {
            load.run(0.1, &JOB, 0.0, 0.0);
            allowed += load.plan.allowance().0;
        }
        assert!((allowed as f64 * PRICE / 60e9 / BUDGET - SHAPES).abs() < 0.01, "{allowed}");
    }

    #[test]
    fn water_finds_its_level() {
        assert_eq!(level(&mut [5.0, 1.0, 20.0], 11.0), 5.0);
        assert_eq!(level(&mut [1.0, 2.0], 4.0), f64::INFINITY);
        assert_eq!(level(&mut [], 4.0), f64::INFINITY);
    }
}
