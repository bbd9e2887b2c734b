//! Steps that occasionally take much longer: the time lost in them, and the ranks whose threads do other work
//! during them.

use xpu_wire::{id::Rank, unit::Nanoseconds};

use super::{
    super::{
        Class, Confidence, Cost, Evidence, Finding, Kind, Severity,
        cohort::{FEW, MANY, usual_of_others},
        device::EXPLAINS,
        evidence::pace::Pauses,
    },
    ASKED,
    late::{self, Late},
};
use crate::job::{Job, PaceSample, RankView, median};

/// Number of digests that are searched for pauses: the half minute within which they must be named. Then the
/// number of digests that must include a pause, and the share of time that must be lost in total, a quarter
/// more than for a `slow` finding. Tuned.
const WINDOW: usize = 28;
const PAUSES: usize = 4;
const LOST: f64 = 0.06;

/// Number of pauses that suffice if their rank is known and they have cost this share of the time since they
/// began, a quarter more than for a `critical` finding: half a minute has few pauses of several seconds.
const FEW_PAUSES: usize = 3;
const MUCH_LOST: f64 = 0.19;

/// A step that takes this multiple of the usual step is a pause, even if a digest has many. With fewer than
/// this many steps in a digest, the median itself may be a pause. Tuned.
const MUCH_LONGER: f64 = 1.5;
const MANY_STEPS: f32 = 8.0;

/// Share of the loss of digests with pauses below which a digest has no pause. A pause that is cut in two
/// loses half in each digest on average.
const NEGLIGIBLE: f64 = 0.25;

/// Share of their present cost above which pauses are not new, if they cost it before.
const MUCH_AS_BEFORE: f64 = 0.5;

/// The share of the loss by which threads of the causing rank wait less: this much in total, and this much in
/// each half, because one half may have one pause fewer.
const MOST: f64 = 0.6;
const HALF: f64 = EXPLAINS;

/// Number of digests over which the cost is averaged, if pauses began that long ago: two minutes, which
/// contain about a dozen pauses of several seconds.
const AVERAGED: usize = 120;

/// A rank's loss through single long steps.
struct Lost {
    /// Share of the time, and number of separate pauses, in the digests that are searched.
    share: f64,
    pauses: usize,
    /// Number of these digests since the first pause.
    since: usize,
    /// The usual step. Seconds.
    pace: f64,
    /// The share of the time lost, without the first pause, and the mean step; both since pauses began, or in
    /// the latest [`AVERAGED`] digests.
    average: f64,
    step: f64,
    /// Number of digests before pauses began.
    before: usize,
    /// Seconds since pauses began; and the seconds that are averaged, with their number of pauses.
    began_s: f64,
    averaged_s: f64,
    averaged_pauses: usize,
}

/// The loss in the digests without the last `skip`.
fn lost(view: &RankView, skip: usize) -> Option<Lost> {
    // Newest first.
    let samples: Vec<PaceSample> = view.pace_samples().rev().skip(skip).copied().collect();
    lost_in(&samples)
}

/// The loss in these digests, newest first.
fn lost_in(all: &[PaceSample]) -> Option<Lost> {
    let samples = &all[..all.len().min(WINDOW)];
    if samples.len() < WINDOW / 2 {
        return None;
    }
    let pace = quarter(samples)?;
    // If all steps are slightly longer, they are no pauses. A median over many steps is no pause.
    let usual = |sample: &PaceSample| {
        let own = if sample.steps < MANY_STEPS { pace } else { f64::from(sample.pace) };
        own.clamp(pace, MUCH_LONGER * pace)
    };
    let over = |sample: &PaceSample| f64::from(sample.span) - f64::from(sample.steps) * usual(sample);
    let span = |samples: &[PaceSample]| samples.iter().map(|sample| f64::from(sample.span)).sum::<f64>();
    let long = |sample: &PaceSample| over(sample) > (0.5 * pace).max(0.05);
    // By chance, the mean of a hundred short steps may exceed their median by this much.
    let usual_loss = upper_quarter(samples.iter().filter(|sample| long(sample)).map(over).collect());
    let least = NEGLIGIBLE * usual_loss.unwrap_or(0.0);
    let hits_in = |samples: &[PaceSample]| -> Vec<usize> {
        (0..samples.len()).filter(|&at| long(&samples[at]) && over(&samples[at]) > least).collect()
    };
    let hits = hits_in(samples);
    // If consecutive digests all include a long step, these are longer steps, not pauses, unless most steps
    // of a digest are not longer.
    let mostly_usual =
        |sample: &PaceSample| sample.steps >= MANY_STEPS && f64::from(sample.pace) < MUCH_LONGER * pace;
    let is_apart = |at: usize| at == 0 || !hits.contains(&(at - 1)) || mostly_usual(&samples[at]);
    let apart = hits.iter().filter(|&&at| is_apart(at)).count();
    let sum = |hits: &[usize]| hits.iter().map(|&at| over(&all[at])).sum::<f64>();
    let share = sum(&hits) / span(samples);
    let began = began(all.iter().map(|sample| (over(sample), f64::from(sample.span))), share);
    let averaged = hits_in(&all[..began.min(AVERAGED)]);
    // From the first pause, which is not counted, to the last. If the next pause is overdue, pauses have
    // become rarer.
    let (first, later) = averaged.split_last().map_or((0, &[][..]), |(&first, later)| (first, later));
    let latest = later.first().copied().unwrap_or(0);
    let between = span(&all[latest..first]);
    let late = span(&all[..latest]) - between / later.len().max(1) as f64;
    let from = if late > 0.0 { 0 } else { latest };
    // The position of a pause in its digest is unknown. On average half of the other steps follow it: those
    // of the first pause belong to the average, those of the last do not.
    let half = |at: usize| {
        let sample = &all[at];
        (0.5 * (f64::from(sample.span) - over(sample)), 0.5 * f64::from(sample.steps))
    };
    let begin = if averaged.is_empty() { (0.0, 0.0) } else { half(first) };
    let end = if later.is_empty() || late > 0.0 { (0.0, 0.0) } else { half(latest) };
    let passed = between + late.max(0.0) + begin.0 - end.0;
    let steps = all[from..first].iter().map(|sample| f64::from(sample.steps)).sum::<f64>() + begin.1 - end.1;
    Some(Lost {
        share,
        pauses: apart,
        since: hits.last().map_or(0, |first| first + 1),
        pace,
        average: if passed > 0.0 { sum(later) / passed } else { 0.0 },
        step: if steps > 0.0 { (span(&all[from..first]) + begin.0 - end.0) / steps } else { pace },
        before: all.len() - began,
        began_s: span(&all[..began]),
        averaged_s: passed,
        averaged_pauses: later.len(),
    })
}

/// The number of latest digests in which this share of the time has been lost: most of them lost more than
/// half of it.
fn began(lost_and_passed: impl Iterator<Item = (f64, f64)>, share: f64) -> usize {
    let (mut excess, mut most, mut began) = (0.0, 0.0, 0);
    for (at, (lost, passed)) in lost_and_passed.enumerate() {
        excess += lost - share * passed / 2.0;
        if excess > most {
            (most, began) = (excess, at + 1);
        }
    }
    began
}

/// The value that a quarter of the values exceeds.
fn upper_quarter(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 3 / 4).copied()
}

/// The usual step, from digests without a pause.
fn quarter(samples: &[PaceSample]) -> Option<f64> {
    let mut paces: Vec<f64> =
        samples.iter().map(|sample| f64::from(sample.pace.min(sample.span / sample.steps))).collect();
    paces.sort_by(f64::total_cmp);
    paces.get(paces.len() / 3).copied()
}

/// The loss in single long steps since they began, over at most two minutes: the share of the time and the
/// mean step, for most of these ranks. `None` if there are few.
pub(in crate::finding) fn lost_in_pauses<'a>(
    views: impl ExactSizeIterator<Item = &'a RankView>,
) -> Option<(f64, Nanoseconds)> {
    let every = views.len().div_ceil(ASKED).max(1);
    let known: Vec<Lost> = views.step_by(every).filter_map(|view| lost(view, 0)).collect();
    let of = |pick: fn(&Lost) -> f64| median(known.iter().map(pick).collect());
    let many = of(|lost| lost.averaged_pauses as f64)? + 1.0 >= PAUSES as f64;
    let step = Nanoseconds((of(|lost| lost.step)? * 1e9) as u64);
    of(|lost| lost.average).filter(|_| many).map(|share| (share, step))
}

/// Whether pauses began a while after the first known digest, and so not in a job's first steps, which
/// compile.
pub(super) fn are_new(asked: &[(Rank, &RankView)]) -> bool {
    let before = asked.iter().filter_map(|(_, view)| lost(view, 0)).map(|lost| lost.before as f64);
    median(before.collect()).is_some_and(|before| before >= (WINDOW / 3) as f64)
}

pub(super) fn found(job: &Job, asked: &[(Rank, &RankView)]) -> Option<Finding> {
    let losses =
        |skip: usize| -> Vec<Lost> { asked.iter().filter_map(|(_, view)| lost(view, skip)).collect() };
    let lost = losses(0);
    let of = |pick: fn(&Lost) -> f64| median(lost.iter().map(pick).collect());
    let (share, hits, since_s) = (of(|l| l.share)?, of(|l| l.pauses as f64)?, of(|l| l.began_s)?);
    let (average, step) = (of(|l| l.average)?, of(|l| l.step)?);
    if share < LOST || hits < FEW_PAUSES as f64 || lost.len() * 2 <= asked.len() {
        return None;
    }
    let mut ranks = ranks_that_wait_less(job, share, of(|l| l.since as f64)? as usize);
    let late = if ranks.is_empty() { late::ranks(job, of(|l| l.pace)?) } else { None };
    if let Some(late) = &late {
        ranks.clone_from(&late.ranks);
    }
    // A regular common pause belongs to the program (evaluation, checkpoints, rollouts), unless it is new.
    let earlier = median(losses(WINDOW).iter().map(|lost| lost.share).collect());
    let is_old = of(|l| l.before as f64)? < (WINDOW / 2) as f64;
    if ranks.is_empty() && (is_old || earlier.is_none_or(|earlier| earlier > MUCH_AS_BEFORE * share)) {
        return None;
    }
    let known = !ranks.is_empty();
    let least = if known && average >= MUCH_LOST { FEW_PAUSES } else { PAUSES };
    if hits < least as f64 {
        return None;
    }
    Some(Finding {
        kind: if known { Kind::SlowRank } else { Kind::Regression },
        class: Class::Pauses,
        ranks: ranks.clone(),
        confidence: if known { Confidence::Likely } else { Confidence::Guess },
        since_s,
        evidence: Evidence::Pauses(Pauses {
            ranks,
            lost_pct: 100.0 * average,
            window_s: of(|l| l.averaged_s)?,
            pauses: of(|l| l.averaged_pauses as f64)?,
            late: late.map(Late::late_launches),
        }),
        advice: "look for what runs occasionally: garbage collection (gc.freeze, gc.disable), checkpoints, evaluation, logging, a data loader that has no sample ready".to_owned(),
        collective: None,
        severity: Severity::Slow,
        cost: Some(Cost::of(average, 0.0, Some(Nanoseconds((step * 1e9) as u64)), job.ranks().len(), since_s)),
    })
}

/// The few ranks whose threads waited less for the GPU than the others' threads, by most of that share of the
/// time, in both halves of the digests since the first pause: they had other work, repeatedly.
fn ranks_that_wait_less(job: &Job, share: f64, since: usize) -> Vec<Rank> {
    let less = |skip: usize, digests: usize, than: f64| -> Vec<Rank> {
        let waits = job.ranks().filter_map(|(rank, view)| Some((rank, view.blocked_before(skip, digests)?)));
        let waits: Vec<_> = waits.collect();
        let usual = |of: Rank| {
            // If ranks are few, each is compared only with the others.
            let others = waits.iter().filter(|(rank, _)| waits.len() >= MANY || *rank != of);
            usual_of_others(others.map(|&(_, wait)| wait).collect())
        };
        let all = usual(Rank(0)).filter(|_| waits.len() >= MANY);
        let less = |&&(rank, wait): &&(Rank, f64)| {
            all.or_else(|| usual(rank)).is_some_and(|usual| usual - wait > than * share)
        };
        waits.iter().filter(less).map(|&(rank, _)| rank).collect()
    };
    let half = since / 2;
    let (later, earlier) = (less(0, half, HALF), less(half, half, HALF));
    let mut ranks = less(0, WINDOW, MOST);
    ranks.retain(|rank| later.contains(rank) && earlier.contains(rank));
    if ranks.len() > (job.ranks().len() / FEW).max(1) { Vec::new() } else { ranks }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The samples of the last seconds, newest first, for steps that end at these times by the GPU's clock.
    fn samples(ends: &[f64]) -> Vec<PaceSample> {
        let mut found = Vec::new();
        let (mut last, mut at) = (ends[0], 1);
        for second in 1..=ends[ends.len() - 1] as u64 {
            let within = ends[at..].iter().take_while(|end| **end < second as f64).count();
            let Some(&newest) = ends[at..at + within].last() else { continue };
            let took = (at..at + within).map(|at| ends[at] - ends[at - 1]).collect();
            found.push(PaceSample {
                pace: median(took).unwrap() as f32,
                steps: within as f32,
                span: (newest - last) as f32,
                work: 1.0,
                rate: 300.0,
            });
            (last, at) = (newest, at + within);
        }
        found.reverse();
        found
    }

    /// The ends of steps of 9 ms. From 25 s on, one step in `every` takes this long.
    fn ends(begin: f64, long: f64, every: u64) -> Vec<f64> {
        let (mut ends, mut step) = (vec![begin], 0);
        while ends[ends.len() - 1] < 50.0 {
            let at = ends[ends.len() - 1];
            step += 1;
            ends.push(at + if at > 25.0 && step % every == 0 { long } else { 0.009 });
        }
        ends
    }

    /// A checkpoint of 1.45 s after every 0.45 s: hardly any second is without one.
    #[test]
    fn pauses_in_almost_every_digest_are_pauses() {
        for phase in 0..20 {
            let lost = lost_in(&samples(&ends(f64::from(phase) * 0.1, 1.45, 50))).unwrap();
            assert!(lost.pauses >= 2 * PAUSES && lost.share > 0.5, "{phase}: {} {}", lost.pauses, lost.share);
        }
    }

    /// Measured on two H200s: 150 steps a second, with a median of 6.6 ms and a mean of 7 ms.
    #[test]
    fn pauses_did_not_begin_when_short_steps_varied() {
        let mut samples = samples(&ends(0.0, 1.45, 50));
        for sample in samples.iter_mut().filter(|sample| sample.steps > 100.0) {
            sample.span += 0.08;
        }
        let lost = lost_in(&samples).unwrap();
        assert!((22.0..27.0).contains(&lost.began_s), "{}", lost.began_s);
    }

    #[test]
    fn steps_that_are_all_longer_are_not() {
        let lost = lost_in(&samples(&ends(0.0, 0.036, 1))).unwrap();
        assert!(lost.pauses <= 1, "{}", lost.pauses);
    }
}
