//! The cost of a rank that enters collectives last, estimated from the timed collectives.
//!
//! Only a hash of its number decides whether a collective is timed, so the probability is known: one timed
//! collective in N represents N of them, or the actual number if ranks changed their rates meanwhile. The sum
//! is unbiased, and its variance is that of a sample of independent draws (Horvitz and Thompson): `sum(gap /
//! p)`, `sum(gap^2 * (1 - p) / p^2)`.

mod average;
mod losses;
mod tally;

use std::{collections::VecDeque, time::Duration};

use average::{Part, average};
use losses::{Losses, Segment};
pub(super) use tally::Entry;
use tally::{Counts, Tally};
use xpu_wire::{
    id::{CommunicatorId, Step},
    unit::{Moment, Nanoseconds},
};

use super::rank::push_bounded;

/// Number of digests of an estimate: half of the time within which a slow rank must be named.
const DIGESTS: usize = 15;

/// Number of digests with matched collectives that an estimate needs, so that a single one is at most a
/// fifth. With steps of many seconds, the estimate looks back further, over at most this many digests: five
/// steps of 24 s.
const LEAST: usize = 5;
const MOST: usize = 120;

/// Number of digests that the cost of a new loss needs: the first of them may have begun before the loss.
const ONSET: usize = 3;

/// Number of first steps, which compile and warm up: their loss does not recur.
pub(super) const FIRST: u64 = 10;

/// Number of collectives in a digest that reveal their sampling rate: the chance that all of them lie in the
/// lower half of the hash is one in 2^8.
const REVEALING: u32 = 8;

/// The same of a thinned digest, which has at most that many, by a rate of its own.
const REVEALING_THINNED: u32 = 3;

/// A digest this many times as long as the one before may contain a time without matched collectives.
const LONGER: f64 = 1.5;

/// Smallest number of matched collectives, and share of the launched ones: the digest contains such a time if
/// the numbers of its matched collectives span less than this share. By chance, this happens once in 80
/// times.
const SPANNING: u32 = 16;
const SPANNED: f64 = 0.75;

/// Shares of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StragglerDelay {
    /// Time that the others wait for this rank alone, and the standard error.
    pub cost: f64,
    pub error: f64,
    /// `None` while the loss began too recently.
    pub onset: Option<Onset>,
    /// If few digests have a loss, the cost over the time since the loss began, at most two minutes: with a
    /// pause every five seconds, only three or four are in the last 15 digests.
    pub average: Option<f64>,
    /// The cost without the digest of the largest loss, which is zero for a single event.
    pub steady: f64,
    /// When it began, at most a day ago.
    pub since: Moment,
    /// Its own wait for others.
    pub waited: f64,
    /// Step time in the same period; `None` if unknown.
    pub step: Option<Nanoseconds>,
    /// Number of timed and matched collectives, and of those it entered last.
    pub joined: u32,
    pub last: u32,
    /// Relative standard error of the sum of its arrival skew.
    pub late_error: f64,
}

/// A part of the estimate: the share of the time for which the others waited for this rank alone, and the number of
/// timed and matched collectives, and of those it entered last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    pub lost: f64,
    pub joined: u32,
    pub last: u32,
}

/// The digests since a loss began, if it began within those of the estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Onset {
    /// Mean loss of these digests, as a multiple of that of all digests.
    pub times: f64,
    pub digests: usize,
}

impl Onset {
    /// The loss is in all digests.
    pub const BEFORE: Self = Self { times: 1.0, digests: DIGESTS };
}

#[derive(Debug, Default)]
pub(super) struct Window {
    /// Digests with matched collectives; only the last may have none.
    digests: VecDeque<Tally>,
    /// The moment before the first digest, and the rank's step then.
    from: Moment,
    from_step: Option<Step>,
    former: Losses,
    /// The losses of the last digests before them, oldest first.
    retired: VecDeque<Segment>,
}

impl Window {
    /// Starts a digest, with `step` steps done.
    pub(super) fn begin(&mut self, at: Moment, step: Option<Step>) {
        if step.is_some_and(|step| step.0 < FIRST) {
            *self = Self { from: at, from_step: step, ..Self::default() };
        }
        if self.digests.is_empty() && self.from == Moment::default() {
            // The first digest covers an unknown time.
            (self.from, self.from_step) = (at, step);
        }
        if let Some(last) = self.digests.back_mut().filter(|last| last.communicators.is_empty()) {
            // The first digest only sets the start.
            let before = if last.at == self.from { 0 } else { last.digests };
            (last.digests, last.at, last.step) = (before + 1, at, step);
        } else {
            let represents = self.represents();
            let mut from = self.from;
            if let Some(last) = self.digests.back_mut() {
                last.represents = represents;
                from = last.at;
            }
            self.digests.push_back(Tally::new(from, at, step));
        }
        while self.exceeds_window() {
            self.retire();
        }
    }

    fn exceeds_window(&self) -> bool {
        let digests: usize = self.digests.iter().map(|tally| tally.digests).sum();
        let without_oldest = self.matched().saturating_sub(1);
        digests > MOST || (digests > DIGESTS && without_oldest >= LEAST)
    }

    /// Digests with matched collectives.
    fn matched(&self) -> usize {
        self.digests.iter().filter(|tally| !tally.communicators.is_empty()).count()
    }

    /// Moves the oldest digest into a segment.
    fn retire(&mut self) {
        let Some(gone) = self.digests.front() else { return };
        let (lost, at, step) = (self.lost(gone), gone.at, gone.step);
        let segment = Segment::new(self.from, lost / 1e9);
        self.former.take(segment);
        push_bounded(&mut self.retired, segment, average::MOST);
        (self.from, self.from_step) = (at, step);
        self.digests.pop_front();
    }

    /// The factor by which the collectives of the last digest count.
    fn represents(&self) -> f64 {
        let mut newest = self.digests.iter().rev();
        let Some((last, before)) = newest.next().zip(newest.next()) else { return 1.0 };
        let usual = before.at.since(newest.next().map_or(self.from, |tally| tally.at));
        if last.at.since(before.at) <= usual.mul_f64(LONGER) {
            return 1.0;
        }
        let Some(most) = last.communicators.iter().max_by_key(|counts| counts.joined) else { return 1.0 };
        let known = before.communicators.iter().find(|counts| counts.id == most.id);
        known.filter(|_| most.joined >= SPANNING).map_or(1.0, |known| {
            let joined = f64::from(most.joined);
            // The mean span of this many numbers drawn from a range is shorter than the range.
            let spanned = most.latest.0.saturating_sub(most.first.0) as f64 * (joined + 1.0) / (joined - 1.0);
            let launched = most.latest.0.saturating_sub(known.latest.0) as f64;
            if spanned < SPANNED * launched { launched / spanned.max(1.0) } else { 1.0 }
        })
    }

    /// The estimated loss in a digest.
    fn lost(&self, tally: &Tally) -> f64 {
        tally.represents
            * tally.communicators.iter().map(|counts| counts.gaps * self.weight(tally, counts)).sum::<f64>()
    }

    /// Number of collectives that each timed one represents.
    fn weight(&self, tally: &Tally, counts: &Counts) -> f64 {
        let is_coarser = || tally.is_thinned() && counts.rate > counts.coarsest;
        let revealing = if is_coarser() { REVEALING_THINNED } else { REVEALING };
        if counts.joined >= revealing { one_in(counts.rate) } else { self.weight_of_few(counts.id) }
    }

    pub(super) fn take(&mut self, entry: Entry) {
        if let Some(tally) = self.digests.back_mut().filter(|tally| tally.at > self.from) {
            tally.take(entry);
        }
    }

    /// `None` while too few collectives matched.
    pub(super) fn straggler_delay(&self) -> Option<StragglerDelay> {
        let passed = self.digests.back()?.at.since(self.from).as_nanos() as f64;
        if self.matched() < LEAST || passed <= 0.0 {
            return None;
        }
        let mut delay = StragglerDelay { since: self.from, ..StragglerDelay::default() };
        let mut lost = vec![0.0; self.digests.len()];
        let (mut late, mut late_error) = (0.0, 0.0);
        let newest = self.digests.len() - 1;
        for (at, (tally, lost)) in self.digests.iter().zip(&mut lost).enumerate() {
            let represents = if at == newest { self.represents() } else { tally.represents };
            for counts in &tally.communicators {
                let weight = represents * self.weight(tally, counts);
                *lost += counts.gaps * weight;
                delay.error += counts.squares * weight * (weight - 1.0);
                delay.waited += counts.waited * weight;
                late += counts.late * weight;
                late_error += counts.late_squares * weight * (weight - 1.0);
                delay.joined += counts.joined;
                delay.last += counts.last;
            }
        }
        let (sum, most) = (lost.iter().sum::<f64>(), lost.iter().copied().fold(0.0, f64::max));
        let began;
        (began, delay.since) = self.since(&lost, sum / passed);
        delay.onset = self.onset(&lost, began);
        delay.average = self.average(&lost, sum / passed);
        let steps =
            self.digests.back()?.step.zip(self.from_step).and_then(|(to, from)| to.0.checked_sub(from.0));
        delay.step =
            steps.filter(|steps| *steps > 0).map(|steps| Nanoseconds((passed / steps as f64) as u64));
        let share = |time: f64| time / passed;
        let (cost, steady) = (share(sum), share(sum - most));
        let late_error = if late > 0.0 { late_error.sqrt() / late } else { 0.0 };
        let (error, waited) = (share(delay.error.sqrt()), share(delay.waited));
        Some(StragglerDelay { cost, error, steady, waited, late_error, ..delay })
    }

    /// The matched collectives of the digests that began in the last `period`; `None` if there are none.
    pub(super) fn recent(&self, period: Duration) -> Option<Recent> {
        let end = self.digests.back()?.at;
        let first = (0..self.digests.len()).find(|&at| end.since(self.before(at)) <= period)?;
        let mut recent = Recent::default();
        for tally in self.digests.range(first..) {
            recent.lost += self.lost(tally);
            recent.joined += tally.communicators.iter().map(|counts| counts.joined).sum::<u32>();
            recent.last += tally.communicators.iter().map(|counts| counts.last).sum::<u32>();
        }
        recent.lost /= end.since(self.before(first)).as_nanos() as f64;
        (recent.joined > 0).then_some(recent)
    }

    /// The shares of the time that were lost in the last `period`, and in the `before` preceding it. `None` if
    /// that is before the first digest.
    pub(super) fn around(&self, period: Duration, before: Duration) -> Option<(f64, f64)> {
        let lost: Vec<_> = self.digests.iter().map(|tally| self.lost(tally)).collect();
        let mut parts = self.parts(&lost);
        let now = parts.first()?.end;
        // Earlier digests are known in segments only.
        let mut end = parts.last()?.begin;
        for (began, lost) in self.former.newest_first() {
            let begin = -self.from.since(began).as_secs_f64();
            if begin < end {
                parts.push(Part { begin, end, lost });
                end = begin;
            }
        }
        let share = |from: f64, to: f64| {
            let within = parts.iter().map(|part| (part, part.end.min(to) - part.begin.max(from)));
            let within = within.filter(|(_, seconds)| *seconds > 0.0);
            // Collectives that overlap wait for the same rank several times.
            let lost = |part: &Part| (part.lost / part.seconds()).min(1.0);
            let sums = within.map(|(part, seconds)| (lost(part) * seconds, seconds));
            let (lost, passed) = sums.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
            (passed > 0.0).then(|| lost / passed)
        };
        let (change, start) = (now - period.as_secs_f64(), now - (period + before).as_secs_f64());
        share(change, now).zip(share(start, change)).filter(|_| end <= start)
    }

    /// The time from which this share was lost, and the first digest since then. Most digests and segments
    /// from then on exceed half of it: with few timed collectives, one may show less by chance.
    fn since(&self, lost: &[f64], share: f64) -> (usize, Moment) {
        let digests = (0..lost.len()).rev().map(|at| (self.before(at), lost[at] / 1e9));
        let end = self.digests.back().map_or(self.from, |last| last.at);
        let (mut until, mut since) = (end, end);
        let (mut excess, mut most, mut taken) = (0.0, 0.0, 0);
        for (before, (began, lost)) in digests.chain(self.former.newest_first()).enumerate() {
            excess += lost - share * until.since(began).as_secs_f64() / 2.0;
            until = began;
            if excess > most {
                (most, since, taken) = (excess, began, before + 1);
            }
        }
        (lost.len().saturating_sub(taken), since)
    }

    /// When a digest began.
    fn before(&self, at: usize) -> Moment {
        at.checked_sub(1).and_then(|before| self.digests.get(before)).map_or(self.from, |before| before.at)
    }

    /// The loss in the digests from `began` on; `BEFORE` if most of them have no such loss.
    fn onset(&self, lost: &[f64], began: usize) -> Option<Onset> {
        let recent = &lost[began..];
        let mean = recent.iter().sum::<f64>() / recent.len() as f64;
        let has_lost = recent.iter().filter(|lost| 2.0 * **lost > mean).count();
        if began == 0 || 2 * has_lost <= recent.len() {
            return Some(Onset::BEFORE);
        }
        let end = self.digests.back()?.at;
        let share = |lost: &[f64], from: Moment| lost.iter().sum::<f64>() / end.since(from).as_secs_f64();
        let times = share(recent, self.before(began)) / share(lost, self.from);
        let digests = self.digests.range(began..).map(|tally| tally.digests).sum();
        (recent.len() >= ONSET).then_some(Onset { times, digests })
    }

    /// The average loss since it began, if few digests have a loss.
    fn average(&self, lost: &[f64], share: f64) -> Option<f64> {
        let parts = self.parts(lost);
        let now = parts.first()?.end;
        average(&parts, self.digests.len(), share, now)
    }

    /// The losses of the last digests, newest first; `lost` are those of the estimate.
    fn parts(&self, lost: &[f64]) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut begin = 0.0;
        for (tally, lost) in self.digests.iter().zip(lost) {
            let end = tally.at.since(self.from).as_secs_f64();
            parts.push(Part { begin, end, lost: lost / 1e9 });
            begin = end;
        }
        parts.reverse();
        let mut end = 0.0;
        for segment in self.retired.iter().rev() {
            let begin = -self.from.since(segment.began()).as_secs_f64();
            parts.push(Part { begin, end, lost: segment.lost() });
            end = begin;
        }
        parts.truncate(average::MOST);
        parts
    }

    /// Collectives per timed one, over all digests of a communicator with few timed ones.
    fn weight_of_few(&self, id: CommunicatorId) -> f64 {
        let (mut joined, mut launched, mut before) = (0, 0, None);
        let (mut finest, mut coarsest) = (u32::MAX, 0);
        for counts in self.digests.iter().flat_map(|tally| &tally.communicators).filter(|one| one.id == id) {
            if counts.joined < REVEALING {
                joined += u64::from(counts.joined);
                // Collectives of one digest may be reported in the next.
                launched += counts
                    .latest
                    .0
                    .saturating_sub(before.unwrap_or_else(|| counts.first.0.saturating_sub(1)));
                finest = finest.min(counts.rate);
                coarsest = coarsest.max(counts.coarsest);
            }
            before = before.max(Some(counts.latest.0));
        }
        if finest >= coarsest {
            return one_in(finest);
        }
        // Some were timed at a finer rate. A group has several numbers but is timed once, so the rate is the
        // limit.
        (launched as f64 / joined.max(1) as f64).clamp(1.0, one_in(coarsest))
    }
}

fn one_in(rate: u32) -> f64 {
    2_f64.powi(rate.min(30) as i32)
}

#[cfg(test)]
mod tests;
