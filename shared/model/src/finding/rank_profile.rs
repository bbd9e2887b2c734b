//! The inputs of findings that come from a rank's own digests. They change only when the rank reports, so
//! they need not be computed again when all ranks are examined.

use xpu_wire::{collective::Operation, id::CommunicatorId, unit::Nanoseconds};

use super::{
    cohort::{ALIKE, LONG, PERSISTENT, RECENT, spread},
    slow::work,
};
use crate::job::{Arrivals, RankView, StragglerDelay, mean, median};

/// Number of digests over which the current FLOPs are summed.
const LATELY: usize = RECENT;

/// Number of digests from which its cost is computed: [`LONG`] matched ones, and those whose collectives the
/// other ranks have not reported yet.
const COST: usize = LONG + 3;

/// A rank counts as always last if it enters this share of its collectives last, in this many of the recent
/// digests: most collectives, in all digests but one. Tuned.
const MOST: f64 = 0.6;
const ALWAYS: usize = RECENT - 1;

/// Number of digests of a rank's past that suffice for comparison: twice the number that is compared with it.
const PAST: usize = 2 * RECENT;

/// After this many digests with steps, the last [`RECENT`] no longer contain the first steps, which compile.
pub(super) const BEGUN: usize = RECENT + 3;

/// Half of them.
const HALF: usize = BEGUN / 2;

/// One rank's figures over the last digests.
#[derive(Debug)]
pub(super) struct RankProfile {
    /// Whether the rank is compared with others. A living rank whose hook is off is not. An ended rank
    /// reports its hook as off in its last message.
    pub counts: bool,
    pub mix: Mix,
    pub part: Option<CommunicatorId>,
    /// TFLOPS, newest first.
    pub rates: Vec<f64>,
    pub rate: Option<f64>,
    /// The mean rate over all digests from which its cost is computed.
    pub rate_longer: Option<f64>,
    /// Its earlier rate, over minutes, and that of the older half of this time; `None` while too little is known.
    pub past: Option<f64>,
    pub older: Option<f64>,
    /// The share of its steps that GEMMs take, by FLOPs.
    pub busy: Option<f64>,
    /// The GEMMs' share of the latest seconds.
    pub busy_lately: Option<f64>,
    /// Its arrival skew in each of [`LONG`] digests, as a share of the time, newest first.
    pub late: Vec<f64>,
    /// The arrival skew in most digests; `None` while too few collectives matched.
    arrival_skew: Option<f64>,
    /// Its arrival skew over all of these digests except the worst, as its cost in time.
    pub late_pooled: f64,
    /// Whether it is always last.
    pub always_last: bool,
    /// Seconds since it became the last rank to enter; each digest counts as one second.
    pub since_last: f64,
    /// Its own waiting over all of these digests, as a share of the time.
    pub waited: f64,
    /// Share of the collectives that it entered last.
    pub last: f64,
    /// FLOPs per second and the seconds covered, for each of [`work::spans`].
    pub arithmetic: [[Option<(f64, f64)>; 3]; work::DIGESTS.len()],
    /// The communicators that it uses, in order; `None` if it sends to one rank alone, or distributes tokens.
    pub shared: Option<Vec<CommunicatorId>>,
    /// Whether it sends to one rank alone.
    pub sends: bool,
    /// Share of the time its threads waited for the GPU, over [`LONG`] digests and over [`BEGUN`].
    pub blocked: Option<f64>,
    pub blocked_lately: Option<f64>,
    /// The same in the later and in the earlier half of the latter.
    pub blocked_halves: [Option<f64>; 2],
    /// Whether its first steps are over.
    pub begun: bool,
    /// The time that the others wait for it alone, and the share of time in which communication held up its
    /// GEMMs.
    pub delay: Option<StragglerDelay>,
    pub exposed: Option<f64>,
    pub pace: Option<Nanoseconds>,
}

impl RankProfile {
    /// The standard error of its GEMM rate, by the spread of its digests.
    pub(super) fn rate_error(&self) -> f64 {
        let middle = median(self.rates.clone()).unwrap_or(0.0);
        spread(self.rates.iter().map(|rate| rate - middle)) / (self.rates.len().max(1) as f64).sqrt()
    }

    pub(super) fn of(view: &RankView) -> Self {
        let rates: Vec<_> = view.gemm_rates().take(RECENT).map(|(_, rate)| rate.0).collect();
        let frequency = frequency(view);
        let arrivals: Vec<_> = view.arrivals().take(RECENT).collect();
        let per_second = frequency.unwrap_or(0.0) / 1e9;
        let weighted = |windows: usize, of: fn(&Arrivals) -> f64| {
            let windows = || view.arrivals().take(windows);
            let weight: f64 = windows().map(|window| f64::from(window.joined)).sum();
            let sum: f64 = windows().map(|window| of(window) * f64::from(window.joined)).sum();
            if weight > 0.0 { sum / weight } else { 0.0 }
        };
        let pooled = pooled(view.arrivals().take(LONG));
        let mostly_last =
            |window: &&Arrivals| f64::from(window.last) >= MOST * f64::from(window.joined.max(1));
        let earlier: Vec<f64> = view.gemm_history().rev().skip(RECENT).map(f64::from).collect();
        let is_enough = earlier.len() >= PAST;
        let older = median(earlier[earlier.len() / 2..].to_vec()).filter(|_| is_enough);
        let past = median(earlier).filter(|_| is_enough);
        let latest = view.latest();
        let rate = median(rates.clone());
        let late: Vec<_> =
            view.arrivals().take(LONG).map(|window| lost(window, per_second, view.pace())).collect();
        let recent = &late[..late.len().min(RECENT)];
        Self {
            counts: latest.is_some_and(|digest| digest.enabled || !view.is_alive()),
            mix: Mix::of(view),
            part: view.part(),
            past,
            older,
            busy: busy(view, rate),
            busy_lately: view.arithmetic(0, LATELY).zip(rate).map(|((work, _), rate)| work / (rate * 1e12)),
            rate,
            rate_longer: mean(view.gemm_rates().take(COST).map(|(_, rate)| rate.0)),
            rates,
            arrival_skew: (late.len() >= PERSISTENT && frequency.is_some())
                .then(|| median(recent.to_vec()))
                .flatten(),
            late,
            late_pooled: lost(&pooled, per_second, view.pace()),
            since_last: view.arrivals().take_while(|window| mostly_last(window)).count() as f64,
            always_last: arrivals.iter().filter(|window| mostly_last(window)).count() >= ALWAYS,
            waited: weighted(2 * RECENT, |window| window.waited) * per_second,
            last: weighted(RECENT, |window| f64::from(window.last) / f64::from(window.joined)),
            arithmetic: work::DIGESTS
                .map(|digests| work::spans(digests).map(|(skip, take)| view.arithmetic(skip, take))),
            shared: shared(view),
            sends: latest.is_some_and(|digest| digest.launches.point_to_point > 0),
            blocked: view.blocked_for(LONG),
            blocked_lately: view.blocked_for(BEGUN),
            blocked_halves: [0, HALF].map(|skip| view.blocked_before(skip, HALF)),
            begun: view.step().is_none() || has_begun(view),
            delay: view.straggler_delay(),
            exposed: view.exposed_for(LONG),
            pace: view.pace(),
        }
    }

    /// Its arrival skew in most digests, as a share of the time; `None` while too few collectives matched.
    pub(super) fn arrival_skew(&self) -> Option<f64> {
        self.arrival_skew
    }
}

/// Whether its first steps, which compile, are over. Also true if the first steps known were no longer than
/// the others.
fn has_begun(view: &RankView) -> bool {
    if view.pace_samples().nth(BEGUN - 1).is_some() {
        return true;
    }
    let steps: Vec<f64> = view.pace_samples().map(|sample| f64::from(sample.span / sample.steps)).collect();
    let usual = steps.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = steps.iter().copied().fold(0.0, f64::max);
    let latest = view.arrivals().map(|window| window.latest / 1e9).fold(0.0, f64::max);
    steps.len() >= PERSISTENT && longest < 2.0 * usual && latest < usual
}

/// The sum of several digests without the worst one, because an occasional pause may have been timed in it.
fn pooled<'a>(windows: impl Iterator<Item = &'a Arrivals>) -> Arrivals {
    let mut windows: Vec<_> = windows.collect();
    let total = |window: &Arrivals| window.late * f64::from(window.joined);
    windows.sort_by(|a, b| total(a).total_cmp(&total(b)));
    windows.pop();
    let joined: u32 = windows.iter().map(|window| window.joined).sum();
    let late: f64 = windows.iter().map(|window| total(window)).sum();
    let latest = windows.iter().map(|window| window.latest).fold(0.0, f64::max);
    Arrivals { late: late / f64::from(joined.max(1)), latest, joined, ..Arrivals::default() }
}

fn busy(view: &RankView, rate: Option<f64>) -> Option<f64> {
    let digest = view.latest()?;
    let step = digest.step.filter(|step| step.0 > 0)?.0 as f64;
    Some(digest.gemm_flops / step / (rate? * 1e12) / view.pace()?.seconds())
}

/// Factor of overlap: several collectives, such as gradients in the backward pass, wait for the same late
/// rank. Tuned.
const OVERLAP: f64 = 3.0;

/// The share of time lost to its arrival skew: at least the longest wait, once a step; for many short waits,
/// their sum, with an allowance for overlap. At most all of the time.
fn lost(arrivals: &Arrivals, per_second: f64, pace: Option<Nanoseconds>) -> f64 {
    let summed = arrivals.late * per_second;
    let lost =
        pace.map_or(summed, |pace| summed.min(arrivals.latest / pace.0.max(1) as f64).max(summed / OVERLAP));
    lost.min(1.0)
}

/// Collectives per second, from those per step if steps are known: a job that hangs or has ended has few per
/// second.
fn frequency(view: &RankView) -> Option<f64> {
    let by_steps = || {
        let digest = view.latest()?;
        let steps = digest.step?.0;
        let pace = view.pace()?.seconds();
        (steps > 0 && pace > 0.0).then(|| digest.launches.collectives as f64 / steps as f64 / pace)
    };
    by_steps().or_else(|| view.collectives_per_second())
}

/// The communicators it shares with ranks that all do the same.
fn shared(view: &RankView) -> Option<Vec<CommunicatorId>> {
    let digest = view.latest().filter(|digest| digest.launches.point_to_point == 0)?;
    let used = || digest.communicators.iter().filter(|state| state.entered > 0);
    let mut operations =
        used().filter_map(|state| state.last_operation).chain(view.samples().map(|sample| sample.operation));
    if operations.any(|operation| operation == Operation::AlltoAll) {
        return None;
    }
    let mut ids: Vec<_> = used().map(|state| state.id).collect();
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

/// A rank's work.
#[derive(Debug)]
pub(super) struct Mix {
    /// Sizes of its communicators, each once.
    pub sizes: Vec<u32>,
    /// Mean FLOPs of its GEMMs.
    pub gemm_flops: f64,
    /// GEMMs per collective.
    pub gemms_per_collective: f64,
    /// The error of that figure, because a digest is taken in the middle of a step.
    pub blur: f64,
}

impl Mix {
    pub(super) fn of(view: &RankView) -> Self {
        let Some(digest) = view.latest() else {
            return Self { sizes: Vec::new(), gemm_flops: 0.0, gemms_per_collective: 0.0, blur: ALIKE };
        };
        let used = digest.communicators.iter().filter(|state| state.entered > 0);
        let mut sizes: Vec<_> = used.map(|state| state.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let ratio = |of: f64, to: u64| if to > 0 { of / to as f64 } else { 0.0 };
        let launches = &digest.launches;
        let steps = digest.step.map_or(1, |step| step.0.max(1));
        Self {
            sizes,
            gemm_flops: ratio(digest.gemm_flops, launches.gemms),
            gemms_per_collective: ratio(launches.gemms as f64, launches.collectives),
            blur: ALIKE.max(2.0 / steps as f64),
        }
    }
}
