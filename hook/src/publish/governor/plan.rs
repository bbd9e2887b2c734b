//! Computes each subject's sampling rate from the operations since the last check. It uses no clock and no
//! process.
//!
//! The budget is shared equally, except that a subject gets no more than it needs to time all of its
//! operations; the rest goes to the others. So rare operations are always timed, and frequent ones are
//! sampled.

use std::collections::BTreeMap;

use xpu_wire::sampling::Rate;

use crate::publish::rate::{Class, FIRST};

/// Nanoseconds between two checks.
const LOOK: u64 = 500_000_000;

/// A check comes early if a window has spent this multiple of its allowance.
const ALARM: f64 = 2.0;

/// Half-life of a busy period in nanoseconds. It is long, so that a burst is timed at the rate that suits a
/// burst.
const HALF_LIFE: f64 = 4e9;

/// A subject gets a finer rate only if that takes at most this fraction of its share, so that its rate does
/// not fluctuate with the load.
const HEADROOM: f64 = 0.7;

/// Part of the budget for GEMMs that are timed because of their shape.
const SHAPES: f64 = 0.2;

/// Part of the budget for waits for communication, and the number of waits in a round. Waits are timed in
/// rounds, because a step has dozens of them, and one may be as long as all others together.
const WAITS: f64 = 0.15;
pub(super) const ROUND: i64 = 32;

/// Part of the budget that timing gets even if counting takes the whole budget: without samples nothing is
/// known.
const LEAST: f64 = 0.1;

/// Maximum allowance for shapes that is saved, in nanoseconds of wall time.
const KEPT: f64 = 2e9;

/// A subject with its own sampling rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Class(Class),
    /// A communicator, by its slot.
    Communicator(u16),
}

/// Number of operations that could have been timed so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chances {
    pub(super) subject: Subject,
    pub(super) count: u64,
    pub(super) fixed: Option<Rate>,
}

/// Totals since the process began.
#[derive(Debug)]
pub(super) struct Done {
    /// Number of recorded pairs of events.
    pub(super) pairs: u64,
    /// Nanoseconds spent on anything else.
    pub(super) counting: u64,
    /// Number of waits for communication that could have been timed.
    pub(super) waits: u64,
    pub(super) chances: Vec<Chances>,
}

#[derive(Debug)]
pub(super) struct Plan {
    /// Begin of the current window, and the totals then.
    since: u64,
    pairs: u64,
    counting: u64,
    claims: BTreeMap<Subject, Claim>,
    /// Share of wall time that counting takes.
    counting_share: f64,
    /// Number of GEMMs that may still be timed because of their shape, and the most that may be saved.
    allowance: f64,
    most: f64,
    /// Number of waits at the last check, nanoseconds saved for a round of them, and the rest of a begun
    /// round.
    waits: u64,
    saved: f64,
    round: i64,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    seen: u64,
    /// Share of wall time that it would take to time all of its operations.
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
            // The first round is due at once.
            saved: f64::INFINITY,
            round: 0,
        }
    }

    /// Checks the totals at `now`. `budget` is a share of wall time; `price` is the cost of timing one
    /// operation in nanoseconds. `false` if nothing changes.
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
            self.budget_waits(window * budget * WAITS, ROUND as f64 * price, done.waits);
            (self.since, self.pairs, self.counting) = (now, done.pairs, done.counting);
        }
        true
    }

    /// Begins a round whenever the savings suffice, if there are waits.
    fn budget_waits(&mut self, more: f64, price: f64, waits: u64) {
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
            match chances.fixed {
                Some(rate) => left -= at(rate, demand),
                None => demands.push(demand),
            }
        }
        let level = level(&mut demands, left.max(budget * LEAST));
        for chances in done.chances.iter().filter(|chances| chances.fixed.is_none()) {
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

    /// The rate of the communicator with the highest demand.
    pub(super) fn busiest(&self) -> Option<Rate> {
        let communicators =
            self.claims.iter().filter(|(subject, _)| matches!(subject, Subject::Communicator(_)));
        communicators
            .map(|(_, claim)| claim)
            .max_by(|a, b| a.demand.total_cmp(&b.demand))
            .map(|claim| claim.rate)
    }

    /// How many consecutive waits may be timed now; each round is returned once.
    pub(super) fn round(&mut self) -> i64 {
        std::mem::take(&mut self.round)
    }

    /// How many more GEMMs may be timed because of their shape, and the maximum. Each addition is returned
    /// once.
    pub(super) fn allowance(&mut self) -> (i64, i64) {
        let more = self.allowance.floor();
        self.allowance -= more;
        (more as i64, self.most as i64)
    }
}

/// The share of wall time that timing at this rate takes.
fn at(rate: Rate, demand: f64) -> f64 {
    demand / rate.denominator() as f64
}

/// The largest equal share with which all demands together take no more than `left`.
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

/// The finest rate that takes at most `share`.
fn finest(demand: f64, share: f64) -> Rate {
    (0..Rate::COARSEST.0).map(Rate).find(|&rate| at(rate, demand) <= share).unwrap_or(Rate::COARSEST)
}

/// 0.5 to the power of `times`, which is not negative. `powf` would call `exp2` of libm, so the hook would
/// bring libm into the process.
fn halved(times: f64) -> f64 {
    let whole = (times as u64).min(1000) as i32;
    let exponent = -(times - f64::from(whole)).min(1.0) * std::f64::consts::LN_2;
    // The series of the exponential function; its error is below 1e-9.
    let part = (1..=10).rev().fold(1.0, |sum, n| 1.0 + sum * exponent / f64::from(n));
    part * 0.5_f64.powi(whole)
}

#[cfg(test)]
mod tests;
