//! From the operations since the last look to each subject's sampling rate. It has no clock and no process.
//!
//! The budget is shared like water: a subject that needs less than its share when all of it is timed gets
//! that, and leaves the rest to the others. So rare operations are always timed, and frequent ones are
//! sampled.

use std::collections::BTreeMap;

use xpu_wire::sampling::Rate;

use crate::publish::rate::{Class, FIRST};

/// Nanoseconds between two looks.
const LOOK: u64 = 500_000_000;

/// A look comes early when a window has spent this multiple of its allowance.
const ALARM: f64 = 2.0;

/// Half-life of a busy period, nanoseconds: bursts are timed at the rate of a burst.
const HALF_LIFE: f64 = 4e9;

/// A subject is timed more finely only if that takes at most this part of its share: fluctuating figures must
/// not make its rate fluctuate.
const HEADROOM: f64 = 0.7;

/// Part of the budget for GEMMs timed for their shape.
const SHAPES: f64 = 0.2;

/// Part of the budget for waits for communication, which are timed in rounds of this many: a step has dozens
/// of them, and one may be as long as all others.
const WAITS: f64 = 0.15;
pub(super) const ROUND: i64 = 32;

/// Part of the budget that timing gets even if counting takes all of it: without a sample nothing is known.
const LEAST: f64 = 0.1;

/// Allowance for shapes that is saved, in nanoseconds of wall time.
const KEPT: f64 = 2e9;

/// A subject with its own sampling rate.
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

/// Totals since the process began.
#[derive(Debug)]
pub(super) struct Done {
    /// Pairs of events recorded.
    pub(super) pairs: u64,
    /// Nanoseconds spent on anything else.
    pub(super) counting: u64,
    /// Waits for communication that could have been timed.
    pub(super) waits: u64,
    pub(super) chances: Vec<Chances>,
}

#[derive(Debug)]
pub(super) struct Plan {
    /// Begin and origin of the present window.
    since: u64,
    pairs: u64,
    counting: u64,
    claims: BTreeMap<Subject, Claim>,
    /// Share of wall time that counting takes.
    counting_share: f64,
    /// GEMMs that may still be timed for their shape, and the most that may be saved.
    allowance: f64,
    most: f64,
    /// Waits by the last look, savings for a round of them in nanoseconds, and the rest of a begun round.
    waits: u64,
    saved: f64,
    round: i64,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    seen: u64,
    /// Share of wall time for timing all of them.
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
            waits: 0,
            // The first is due at once.
            saved: f64::INFINITY,
            round: 0,
        }
    }

    /// `budget` is a share of wall time, `price` the nanoseconds one timed operation takes. `false` if
    /// nothing changes.
    pub(super) fn look(&mut self, now: u64, budget: f64, price: f64, done: &Done) -> bool {
        let elapsed = now.saturating_sub(self.since);
        let whole = elapsed >= LOOK;
        let counting = (done.counting - self.counting) as f64;
        let spent = (done.pairs - self.pairs) as f64 * price + counting;
        if !whole && spent <= ALARM * budget * LOOK as f64 {
            return false;
        }
        let window = elapsed.max(LOOK) as f64;
        let fade = if whole { halved(window / HALF_LIFE) } else { 1.0 };
        self.counting_share = (self.counting_share * fade).max(counting / window);
        self.claims.retain(|subject, _| done.chances.iter().any(|chances| chances.subject == *subject));
        for chances in &done.chances {
            let fresh = Claim { seen: 0, demand: 0.0, rate: FIRST };
            let claim = self.claims.entry(chances.subject).or_insert(fresh);
            // A slot may now hold another communicator.
            let since = if chances.count < claim.seen { 0 } else { claim.seen };
            claim.demand = (claim.demand * fade).max((chances.count - since) as f64 * price / window);
            claim.seen = if whole { chances.count } else { since };
        }
        self.share_out(budget, done);
        if whole {
            self.most = (KEPT * budget * SHAPES / price).max(1.0);
            self.allowance = (self.allowance.fract() + window * budget * SHAPES / price).min(self.most);
            self.save_for_waits(window * budget * WAITS, ROUND as f64 * price, done.waits);
            (self.since, self.pairs, self.counting) = (now, done.pairs, done.counting);
        }
        true
    }

    /// Begins a round whenever the savings suffice, if there are waits at all.
    fn save_for_waits(&mut self, more: f64, price: f64, waits: u64) {
        if waits == self.waits {
            return;
        }
        self.waits = waits;
        self.saved += more;
        if self.saved >= price {
            (self.saved, self.round) = (0.0, ROUND);
        }
    }

    fn share_out(&mut self, budget: f64, done: &Done) {
        let waits = if done.waits > 0 { WAITS } else { 0.0 };
        let mut left = budget * (1.0 - SHAPES - waits) - self.counting_share;
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
                claim.rate =
                    claim.rate.clamp(finest, finest.max(self::finest(claim.demand, level * HEADROOM)));
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

    /// How many consecutive waits may be timed; each round is returned once.
    pub(super) fn round(&mut self) -> i64 {
        std::mem::take(&mut self.round)
    }

    /// How many more GEMMs may be timed for their shape, and the maximum; each is returned once.
    pub(super) fn allowance(&mut self) -> (i64, i64) {
        let more = self.allowance.floor();
        self.allowance -= more;
        (more as i64, self.most as i64)
    }
}

/// Cost of timing at this rate.
fn at(rate: Rate, demand: f64) -> f64 {
    demand / rate.denominator() as f64
}

/// The largest share for each, so that all together take no more than `left`.
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

/// The finest rate that costs at most `share`.
fn finest(demand: f64, share: f64) -> Rate {
    (0..Rate::COARSEST.0).map(Rate).find(|&rate| at(rate, demand) <= share).unwrap_or(Rate::COARSEST)
}

/// 0.5 to the power of `times`, 0 or more. `powf` would call `exp2` of libm, which the hook would bring into
/// the process.
fn halved(times: f64) -> f64 {
    let whole = (times as u64).min(1000) as i32;
    let exponent = -(times - f64::from(whole)).min(1.0) * std::f64::consts::LN_2;
    // The series of the exponential function; its error is below 1e-9.
    let part = (1..=10).rev().fold(1.0, |sum, n| 1.0 + sum * exponent / f64::from(n));
    part * 0.5_f64.powi(whole)
}

#[cfg(test)]
mod tests;
