//! The inputs of findings from a rank's own digests. They do not change until the rank reports again, so this need not
//! be worked out in the second in which all ranks are looked at.

use xpu_wire::{collective::Operation, id::CommunicatorId, unit::Nanoseconds};

use super::{
    cohort::{ALIKE, LONG, PERSISTENT, RECENT},
    slow::{host, work},
};
use crate::job::{Arrivals, RankView, Toll, median};

/// Digests whose arithmetic is that of now.
const LATELY: usize = RECENT;

/// Who comes last to most of its collectives, at this share of them, in so many of the recent digests, always comes last.
const MOST: f64 = 0.6;
const ALWAYS: usize = RECENT - 1;

/// Digests of one's own past that are enough to compare with.
const PAST: usize = 10;

/// One rank's figures of the last digests.
#[derive(Debug)]
pub(super) struct RankProfile {
    /// Whether it is among those that are compared: a living rank whose hook is off is not; one that ended says off with its last word.
    pub counts: bool,
    pub mix: Mix,
    pub part: Option<CommunicatorId>,
    /// TFLOPS, newest first.
    pub rates: Vec<f64>,
    pub rate: Option<f64>,
    /// What it was before, over minutes; `None` while too little is known.
    pub past: Option<f64>,
    /// Share of its steps that its GEMMs take, by their arithmetic.
    pub busy: Option<f64>,
    /// Share of the latest seconds that they took.
    pub busy_lately: Option<f64>,
    /// How late in each digest, as a share of the time that passed, newest first.
    pub late: Vec<f64>,
    /// The same of three times as many digests.
    pub late_longer: Vec<f64>,
    /// That of most digests; `None` while too little was joined.
    lateness: Option<f64>,
    /// How late in all of these together but the worst of them, as the sum of what its collectives waited for it and as what that
    /// takes of the time.
    pub late_summed: f64,
    pub late_pooled: f64,
    /// Whether it is always the last to come.
    pub always_last: bool,
    /// Seconds, a digest each, since it began to come last.
    pub since_last: f64,
    /// Its own waiting, likewise, in all of them.
    pub waited: f64,
    /// Share of the collectives it came last to.
    pub last: f64,
    /// Arithmetic a second and the seconds that is of, of each of [`work::spans`].
    pub arithmetic: [[Option<(f64, f64)>; 3]; work::DIGESTS.len()],
    /// Communicators it uses, in order; `None` where it sends to one rank alone, or deals tokens out.
    pub shared: Option<Vec<CommunicatorId>>,
    /// Whether it sends to one rank alone.
    pub sends: bool,
    /// Share of the time its threads waited for the GPU, over so many digests as [`host::WAITS`] has.
    pub blocked: [Option<f64>; host::WAITS.len()],
    /// Whether its first steps are past, and digests that told of steps.
    pub begun: bool,
    pub pace_samples: usize,
    /// What the others wait for it alone, and the share of time that its GEMMs were held up by communication.
    pub toll: Option<Toll>,
    pub exposed: Option<f64>,
    pub pace: Option<Nanoseconds>,
}

impl RankProfile {
    /// The standard error of its GEMM rate, by how far those of its digests spread.
    pub(super) fn rate_error(&self) -> f64 {
        let middle = median(self.rates.clone()).unwrap_or(0.0);
        let off = median(self.rates.iter().map(|rate| (rate - middle).abs()).collect());
        1.4826 * off.unwrap_or(0.0) / (self.rates.len().max(1) as f64).sqrt()
    }

    pub(super) fn of(view: &RankView) -> Self {
        let rates: Vec<_> = view.gemm_rates().take(RECENT).map(|(_, rate)| rate.0).collect();
        let frequency = frequency(view);
        let arrivals: Vec<_> = view.arrivals().take(RECENT).collect();
        let per_second = frequency.unwrap_or(0.0) / 1e9;
        let mean = |windows: usize, of: fn(&Arrivals) -> f64| {
            let windows = || view.arrivals().take(windows);
            let weight: f64 = windows().map(|window| f64::from(window.joined)).sum();
            let sum: f64 = windows().map(|window| of(window) * f64::from(window.joined)).sum();
            if weight > 0.0 { sum / weight } else { 0.0 }
        };
        let pooled = pooled(view.arrivals().take(LONG));
        let mostly_last =
            |window: &&Arrivals| f64::from(window.last) >= MOST * f64::from(window.joined.max(1));
        let earlier: Vec<f64> = view.gemm_history().rev().skip(RECENT).map(f64::from).collect();
        let past = (earlier.len() >= PAST).then(|| median(earlier)).flatten();
        let latest = view.latest();
        let rate = median(rates.clone());
        let late: Vec<_> = arrivals.iter().map(|window| lost(window, per_second, view.pace())).collect();
        Self {
            counts: latest.is_some_and(|digest| digest.enabled || !view.is_alive()),
            mix: Mix::of(view),
            part: view.part(),
            past,
            busy: busy(view, rate),
            busy_lately: view.arithmetic(0, LATELY).zip(rate).map(|((work, _), rate)| work / (rate * 1e12)),
            rate,
            rates,
            lateness: (late.len() >= PERSISTENT && frequency.is_some())
                .then(|| median(late.clone()))
                .flatten(),
            late,
            late_longer: view
                .arrivals()
                .take(LONG)
                .map(|window| lost(window, per_second, view.pace()))
                .collect(),
            late_summed: pooled.late * per_second,
            late_pooled: lost(&pooled, per_second, view.pace()),
            since_last: view.arrivals().take_while(|window| mostly_last(window)).count() as f64,
            always_last: arrivals.iter().filter(|window| mostly_last(window)).count() >= ALWAYS,
            waited: mean(2 * RECENT, |window| window.waited) * per_second,
            last: mean(RECENT, |window| f64::from(window.last) / f64::from(window.joined)),
            arithmetic: work::DIGESTS
                .map(|digests| work::spans(digests).map(|(skip, take)| view.arithmetic(skip, take))),
            shared: shared(view),
            sends: latest.is_some_and(|digest| digest.launches.point_to_point > 0),
            blocked: host::WAITS.map(|digests| view.blocked_for(digests)),
            begun: view.step().is_none() || host::has_begun(view),
            pace_samples: view.pace_samples().count(),
            toll: view.toll(),
            exposed: view.exposed_for(LONG),
            pace: view.pace(),
        }
    }

    /// Digests, of three times as many, in which it was later than that.
    pub(super) fn often_late(&self, than: f64) -> usize {
        self.late_longer.iter().filter(|late| **late > than).count()
    }

    /// How late it comes in most digests, as a share of the time that passes; `None` while too little was joined.
    pub(super) fn lateness(&self) -> Option<f64> {
        self.lateness
    }

    /// A share of the time in milliseconds of a step, where steps are known.
    pub(super) fn ms_a_step(&self, share: f64) -> Option<f64> {
        Some(share * self.pace?.milliseconds())
    }
}

/// Those of several digests together. The worst is left out: of a pause now and then one may be timed.
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

/// Collectives that overlap, as gradients' do in backward, wait for the same lateness several times over.
const OVERLAP: f64 = 3.0;

/// What its lateness takes of the time: at least that of the collective that waited longest, once a step; and where many wait a
/// little each, their sum, with allowance for those that overlap.
fn lost(arrivals: &Arrivals, per_second: f64, pace: Option<Nanoseconds>) -> f64 {
    let summed = arrivals.late * per_second;
    pace.map_or(summed, |pace| summed.min(arrivals.latest / pace.0.max(1) as f64).max(summed / OVERLAP))
}

/// By steps where they are known: a job that stands, or has ended, has a low frequency by the clock.
fn frequency(view: &RankView) -> Option<f64> {
    let by_steps = || {
        let digest = view.latest()?;
        let steps = digest.step?.0;
        let pace = view.pace()?.seconds();
        (steps > 0 && pace > 0.0).then(|| digest.launches.collectives as f64 / steps as f64 / pace)
    };
    by_steps().or_else(|| view.collectives_per_second())
}

/// The communicators it has in common with ranks that all do the same.
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

/// What a rank does.
#[derive(Debug)]
pub(super) struct Mix {
    /// Sizes of its communicators, each once.
    pub sizes: Vec<u32>,
    /// Arithmetic of its GEMMs at the mean.
    pub gemm_flops: f64,
    /// GEMMs to a collective.
    pub gemms_per_collective: f64,
    /// How far that may be off: a digest comes in the middle of a step.
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
