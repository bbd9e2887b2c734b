//! Steps that take longer than before, regardless of the causing rank.

mod late;
mod neighbour;
mod pauses;
mod regression;

pub(super) use neighbour::on_gpu;
pub(super) use pauses::lost_in_pauses;
use regression::regression;
use xpu_wire::{id::Rank, unit::Nanoseconds};

use super::{
    Class, Cost, Finding, Kind,
    cohort::{SPREADS, WIDTH, spread},
};
use crate::job::{Job, PaceSample, RankView, median};

/// Number of ranks that are examined, to limit the time for ten thousand: in a job that trains together, all
/// ranks have the same pace.
const ASKED: usize = 32;

/// Number of digests after a change that prove it: by chance, as many independent digests change in one
/// direction once in 2^8 times. And the number of digests before it for comparison, half as many more,
/// because some may belong to the first steps.
const AFTER: usize = 8;
const BEFORE: usize = 12;

/// Number of digests that suffice after a change by which steps take at least twice as long: most of the
/// current ones, and one more.
const FEW_AFTER: usize = 4;
const FAR_LONGER: f64 = 1.0;

/// Number of digests that prove a change after which steps take ten times as long, because such steps end in
/// few digests. One suffices if the median is of at least [`AFTER`] steps: the GPU of a rank that launched
/// these steps ahead ends them all in one digest. In any case the change must have lasted for this many
/// seconds, the least that four digests cover.
const FEWEST_AFTER: usize = 2;
const TIMES_LONGER: f64 = 9.0;
const LEAST_S: f32 = 3.5;

/// The share by which steps must take longer, in addition to [`SPREADS`], and the smallest spread that is
/// assumed: the same as for GEMM rates.
const LONGER: f64 = 0.1;
const LEAST_SPREAD: f64 = 0.01;

/// A step is long if it exceeds the usual step by this share of [`LONGER`], and by this share of the change.
/// Tuned.
const LONG_FROM: f64 = 0.7;
const LONG_OF: f64 = 0.25;

/// A rank is not examined if it has completed no step for this many seconds and this many usual steps:
/// programs wait for their GPU every ten steps, and may launch ten more ahead.
const QUIET_S: f64 = 4.0;
const QUIET_STEPS: f64 = 20.0;

/// Pauses explain a late rank if its arrival skew outside of the pauses costs less than this share of their
/// cost: most of the loss is then in the pauses.
const MOST: f64 = 0.5;

/// A finding may be the cause of an increase in step time if their durations differ by at most this factor,
/// plus some seconds. The start of a step time's increase is known to half of its age, and that of a cost to
/// [`super::cohort::LONG`] digests. Tuned.
const EARLIER: f64 = 1.5;
const EARLIER_S: f64 = 10.0;
const LATER: f64 = 2.0;
const LATER_S: f64 = 15.0;

pub(super) fn changes(job: &Job) -> Option<Finding> {
    let asked = asked(job);
    // After a permanent change, earlier steps are no reference for later ones.
    if let Some(growth) = Growth::find(&asked, Measure::Median) {
        return growth.matters().then(|| regression(job, &asked, &growth));
    }
    // If every digest has pauses, the median step does not change, but the mean does.
    let mean = || Growth::find(&asked, Measure::Mean).filter(Growth::matters);
    pauses::found(job, &asked).or_else(|| Some(regression(job, &asked, &mean()?)))
}

/// Pauses of other ranks in a job in which these ranks are slow, with the time that steps lose beyond their
/// usual length.
pub(super) fn pauses_beside(job: &Job, slow: &[Finding]) -> Option<Finding> {
    let found = pauses::found(job, &asked(job)).filter(|found| found.kind == Kind::SlowRank)?;
    let is_named = |rank: &Rank| slow.iter().any(|finding| finding.ranks.contains(rank));
    // A slow rank may wait for its own GPU, so a rank that waits less than the slow rank alone is not late.
    let others = job.ranks().filter(|(rank, _)| !is_named(rank) && !found.ranks.contains(rank)).count();
    (others > 0 && !found.ranks.iter().any(is_named)).then_some(found)
}

/// Pauses of the only late rank, if they began after the job's first steps and cost more than the rank's
/// arrival skew outside of them. Then the pauses are the finding, and their cost includes that skew.
pub(super) fn pauses_in_place(job: &Job, slow: &[Finding]) -> Option<Finding> {
    let [late] = slow else { return None };
    let is_host = matches!(late.class, Class::Host | Class::Step);
    let asked = asked(job);
    let found = pauses::found(job, &asked).filter(|found| is_host && found.ranks == late.ranks)?;
    if !pauses::are_new(&asked) {
        return None;
    }
    let pct = |finding: &Finding| finding.cost.map_or(0.0, |cost| cost.pct);
    (pct(&found) * MOST > pct(late)).then_some(found)
}

/// The permanent increase of step times, if there is one, regardless of the causing rank.
pub(super) fn growth(job: &Job) -> Option<Growth> {
    let asked = asked(job);
    let growth = [Measure::Median, Measure::Mean].into_iter().find_map(|of| Growth::find(&asked, of));
    growth.filter(Growth::matters)
}

/// The increase of step times on most ranks: seconds before and after, since when, and the other figures that
/// changed then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    measure: Measure,
    before: f64,
    after: f64,
    pub(super) since_s: f64,
    /// Shares, as in [`Change`].
    work: Option<f64>,
    rate: Option<f64>,
    /// Of [`Self::share`].
    pub(super) error: f64,
}

impl Growth {
    fn find(asked: &[(Rank, &RankView)], measure: Measure) -> Option<Self> {
        // A rank that has completed no step for long does not contradict the change: it may be blocked until
        // many steps are done.
        let known = asked.iter().map(|(_, view)| (change(view, measure), view));
        let heard: Vec<_> = known.filter(|(change, view)| change.is_some() || !ends_no_step(view)).collect();
        let changes: Vec<Change> = heard.iter().filter_map(|(change, _)| *change).collect();
        if changes.len() * 2 <= heard.len() {
            return None;
        }
        Some(Self::typical(measure, &changes))
    }

    /// The change of these ranks' steps since a fault that began this many seconds ago, however small. `None`
    /// if the steps before it are unknown.
    pub(super) fn since(views: &[&RankView], since_s: f64) -> Option<Self> {
        let changes: Vec<_> = views.iter().filter_map(|view| change_since(view, since_s)).collect();
        (!changes.is_empty()).then(|| Self::typical(Measure::Median, &changes))
    }

    fn typical(measure: Measure, changes: &[Change]) -> Self {
        let of = |pick: fn(&Change) -> f64| median(changes.iter().map(pick).collect()).unwrap_or(0.0);
        Self {
            measure,
            before: of(|c| c.before),
            after: of(|c| c.after),
            since_s: of(|c| c.since_s),
            work: median(changes.iter().filter_map(|change| change.work).collect()),
            rate: median(changes.iter().filter_map(|change| change.rate).collect()),
            error: of(|c| c.error),
        }
    }

    fn longer(&self) -> f64 {
        self.after / self.before - 1.0
    }

    /// Whether the increase is not explained by more work: longer sequences or a larger batch take longer.
    fn matters(&self) -> bool {
        self.work.is_none_or(|more| more <= 0.5 * self.longer())
    }

    /// Whether a finding of this duration may be the cause: as far as known, both began together. The start
    /// of a rank's slowness is known only to half of its age, and to some seconds.
    pub(super) fn began_with(&self, since_s: f64) -> bool {
        since_s < EARLIER * self.since_s + EARLIER_S && self.since_s < LATER * since_s + LATER_S
    }

    /// Whether a rank that costs this share of the time now cannot have cost as much before: the loss per step
    /// is longer than a whole step was.
    pub(super) fn exceeds_former_step(&self, cost: f64) -> bool {
        cost * self.after > self.before
    }

    /// Whether most steps are longer, rather than a few much longer.
    pub(super) fn is_of_most_steps(&self) -> bool {
        self.measure == Measure::Median
    }

    /// The additional time as a share of a step.
    pub(super) fn share(&self) -> f64 {
        1.0 - self.before / self.after
    }

    /// Its cost to a job of this many ranks.
    pub(super) fn cost(&self, ranks: usize) -> Cost {
        let step = Some(Nanoseconds((self.after * 1e9) as u64));
        Cost::of(self.share(), self.error, step, ranks, self.since_s)
    }
}

/// Which step time of a digest is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Median,
    Mean,
}

/// Living ranks, evenly spread: one of each odd number of ranks, so that they are at different places on hosts with
/// eight ranks.
pub(super) fn asked(job: &Job) -> Vec<(Rank, &RankView)> {
    let living: Vec<_> = job.ranks().filter(|(_, view)| view.is_alive()).collect();
    let every = living.len().div_ceil(ASKED) | 1;
    living.into_iter().step_by(every).collect()
}

/// The GEMM rate, over digests with a timed GEMM: a few long steps may have none.
fn rate(samples: &[PaceSample]) -> Option<f64> {
    let known: Vec<f64> =
        samples.iter().map(|sample| f64::from(sample.rate)).filter(|rate| *rate > 0.0).collect();
    if known.len() < FEW_AFTER { None } else { median(known) }
}

/// Mean step in seconds, over all steps of these digests.
fn mean_step(samples: &[PaceSample]) -> f64 {
    let sum = |of: fn(&PaceSample) -> f32| samples.iter().map(|sample| f64::from(of(sample))).sum::<f64>();
    sum(|sample| sample.span) / sum(|sample| sample.steps).max(1.0)
}

/// FLOPs per step. Independent of whether a few steps take much longer than the median.
fn work(samples: &[PaceSample]) -> Option<f64> {
    let sum = |of: fn(&PaceSample) -> f32| samples.iter().map(|sample| f64::from(of(sample))).sum::<f64>();
    Some(sum(|sample| sample.work) / sum(|sample| sample.steps).max(1.0)).filter(|work| *work > 0.0)
}

/// The change of a rank's steps since a moment that is known: this many seconds ago, give or take some. `None`
/// if too few digests are known before or after it.
fn change_since(view: &RankView, since_s: f64) -> Option<Change> {
    let samples: Vec<PaceSample> = view.pace_samples().copied().collect();
    let mut passed = 0.0;
    let after = samples.iter().rev().take_while(|sample| {
        passed += f64::from(sample.span);
        passed <= since_s
    });
    let (before, after) = samples.split_at(samples.len() - after.count());
    // Those just before it may have slow steps.
    let before = &before[..before.len().saturating_sub(FEW_AFTER)];
    if before.len() < BEFORE || after.len() < FEW_AFTER {
        return None;
    }
    let (usual, usual_error) = typical(before)?;
    let (now, error) = typical(after)?;
    let ratio = |figure: fn(&[PaceSample]) -> Option<f64>| {
        figure(before).zip(figure(after)).map(|(usual, now)| now / usual - 1.0)
    };
    Some(Change {
        before: usual,
        after: now,
        work: ratio(work),
        rate: ratio(rate),
        since_s: after.iter().map(|sample| f64::from(sample.span)).sum(),
        error: usual_error.hypot(error) / now,
    })
}

/// Half of the width of a bucket of step histograms, as a share: HDR with three digits.
const RESOLUTION: f64 = 0.0005;

/// The median step time, and its error, which is 1.25 times that of a mean.
fn typical(samples: &[PaceSample]) -> Option<(f64, f64)> {
    let paces: Vec<_> = samples.iter().map(|sample| f64::from(sample.pace)).collect();
    let spread_of = |median: f64| spread(paces.iter().map(|pace| pace - median));
    let median = median(paces.clone())?;
    let error = 1.25 * WIDTH * spread_of(median) / (paces.len() as f64).sqrt();
    Some((median, error.hypot(RESOLUTION * median)))
}

/// Whether the rank has completed no step for a time that only longer steps explain.
fn ends_no_step(view: &RankView) -> bool {
    let quiet: f64 = view.ahead().take_while(|one| one.steps < 1.0).map(|one| f64::from(one.passed)).sum();
    quiet > QUIET_S.max(QUIET_STEPS * view.pace().map_or(0.0, Nanoseconds::seconds))
}

/// A permanent change of a rank's step time: the times before and after, and the time since it changed.
#[derive(Clone, Copy, Debug)]
struct Change {
    before: f64,
    after: f64,
    /// Relative change of FLOPs per step, and of the GEMM rate, if they are known.
    work: Option<f64>,
    rate: Option<f64>,
    since_s: f64,
    /// Error of the mean after the change, as a share.
    error: f64,
}

fn change(view: &RankView, measure: Measure) -> Option<Change> {
    let of: fn(&PaceSample) -> f32 = match measure {
        Measure::Median => |sample| sample.pace,
        Measure::Mean => |sample| sample.span / sample.steps,
    };
    let samples: Vec<PaceSample> = view.pace_samples().copied().collect();
    let most = samples.len().checked_sub(BEFORE)?;
    let paces: Vec<f64> = samples.iter().map(|sample| f64::from(of(sample))).collect();
    let (befores, afters) = (medians(paces.iter()), medians(paces.iter().rev()));
    let at = |after: usize| {
        let cut = samples.len() - after;
        let (usual, now) = (befores[cut - 1], afters[after - 1]);
        let longer = now / usual - 1.0;
        let least = match after {
            AFTER.. => LONGER,
            FEW_AFTER.. => FAR_LONGER,
            _ => TIMES_LONGER,
        };
        if longer <= least {
            return None;
        }
        let (before, after) = samples.split_at(cut);
        let is_enough = after.len() >= FEWEST_AFTER
            || measure == Measure::Median && after.iter().all(|sample| sample.steps >= AFTER as f32);
        if !is_enough || after.iter().map(|sample| sample.span).sum::<f32>() < LEAST_S {
            return None;
        }
        let spread = spread(paces[..cut].iter().map(|pace| pace - usual));
        let clear = now - usual > SPREADS * spread.max(LEAST_SPREAD * usual);
        // Separates steps that became much longer from steps that always varied.
        let long = usual + f64::max(LONG_FROM * LONGER * usual, LONG_OF * (now - usual));
        let count = |paces: &[f64]| paces.iter().filter(|pace| **pace > long).count();
        let lasts = count(&paces[cut..]) * 10 >= after.len() * 9 && count(&paces[..cut]) * 5 <= before.len();
        // The digest in which the change began has steps of both kinds, mostly short ones.
        let is_long = |sample: &&PaceSample| f64::from(of(sample)) > long;
        let after_it: Vec<PaceSample> = after.iter().filter(is_long).copied().collect();
        let ratio = |figure: fn(&[PaceSample]) -> Option<f64>| {
            figure(before).zip(figure(&after_it)).map(|(usual, now)| now / usual - 1.0)
        };
        (clear && lasts).then(|| Change {
            before: usual,
            // With means, a few long steps affect every second or third digest.
            after: if measure == Measure::Mean { mean_step(&after_it).max(usual) } else { now },
            // All digests count, because the launches of a step and its end may be in different ones.
            work: work(before).zip(work(after)).map(|(usual, now)| now / usual - 1.0),
            rate: ratio(rate),
            since_s: after.iter().map(|sample| f64::from(sample.span)).sum(),
            error: WIDTH * spread / (after.len() as f64).sqrt() / now,
        })
    };
    // The best cut has the most digests after it, and all of them are slow.
    (1..=most).rev().find_map(at)
}

/// The median of the first value, of the first two, and so on.
fn medians<'a>(values: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = Vec::new();
    let grown = values.map(|&value| {
        sorted.insert(sorted.partition_point(|other| *other <= value), value);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
    });
    grown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An increase of step times ten minutes ago is not the cost of a fault that began just now, and a
    /// present increase is not the cost of an old fault.
    #[test]
    fn only_what_began_together_costs_what_steps_are_longer_by() {
        let growth = |since_s| Growth {
            measure: Measure::Median,
            before: 0.1,
            after: 0.15,
            since_s,
            work: None,
            rate: None,
            error: 0.0,
        };
        assert!(
            growth(20.0).began_with(20.0) && growth(66.0).began_with(31.0) && growth(20.0).began_with(3.0)
        );
        assert!(!growth(600.0).began_with(20.0) && !growth(20.0).began_with(300.0));
    }
}
