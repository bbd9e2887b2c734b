//! Ranks that do the same work, which alone can be compared: those of one pipeline stage, not those of two.

use std::collections::BTreeMap;

use crate::{
    id::{CommunicatorId, Rank},
    job::{Arrivals, Job, RankView, median},
    unit::Nanoseconds,
};

/// Means of the ranks of one cohort lie this close.
const ALIKE: f64 = 0.05;

/// Digests that count as now.
pub(super) const RECENT: usize = 5;

/// Of them, in how many something must be so before it is told.
pub(super) const PERSISTENT: usize = 3;

/// Digests over which lateness is looked for that is in few collectives of a step, of which few are timed.
pub(super) const LONG: usize = 3 * RECENT;

/// Digests whose arithmetic is that of now.
const LATELY: usize = RECENT;

/// Who comes last to most of its collectives, at this share of them, in so many of the recent digests, always comes last.
const MOST: f64 = 0.6;
const ALWAYS: usize = RECENT - 1;

/// Digests of one's own past that are enough to compare with.
const PAST: usize = 10;

/// One rank with its figures of the last digests.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub rank: Rank,
    pub view: &'a RankView,
    /// TFLOPS, newest first.
    pub rates: Vec<f64>,
    pub rate: Option<f64>,
    /// What it was before, over minutes; `None` while too little is known.
    pub past: Option<f64>,
    /// Share of its steps that its products take, by their arithmetic.
    pub busy: Option<f64>,
    /// Share of the latest seconds that they took.
    pub busy_lately: Option<f64>,
    /// Collectives a second.
    frequency: Option<f64>,
    /// How late in each digest, as a share of the time that passed, newest first.
    pub late: Vec<f64>,
    /// The same of three times as many digests.
    pub late_longer: Vec<f64>,
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
}

impl<'a> Member<'a> {
    fn of(rank: Rank, view: &'a RankView) -> Self {
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
        Self {
            rank,
            view,
            past,
            busy: busy(view, median(rates.clone())),
            busy_lately: view
                .arithmetic(0, LATELY)
                .zip(median(rates.clone()))
                .map(|((work, _), rate)| work / (rate * 1e12)),
            rate: (!rates.is_empty()).then(|| median(rates.clone())).flatten(),
            rates,
            frequency,
            late: arrivals.iter().map(|window| lost(window, per_second, view.pace())).collect(),
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
        }
    }

    /// Digests, of three times as many, in which it was later than that.
    pub(super) fn often_late(&self, than: f64) -> usize {
        self.late_longer.iter().filter(|late| **late > than).count()
    }

    /// How late it comes in most digests, as a share of the time that passes; `None` while too little was joined.
    pub(super) fn lateness(&self) -> Option<f64> {
        let known = self.late.len() >= PERSISTENT && self.frequency.is_some();
        known.then(|| median(self.late.clone())).flatten()
    }

    /// A share of the time in milliseconds of a step, where steps are known.
    pub(super) fn ms_a_step(&self, share: f64) -> Option<f64> {
        Some(share * self.view.pace()?.milliseconds())
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

/// The ranks of a job by what they do, as far as digests tell. Living ranks whose hook is off are not
/// among them; one that ended says off with its last word.
pub(super) fn of(job: &Job) -> Vec<Vec<Member<'_>>> {
    let mut known: Vec<_> = job
        .ranks()
        .filter(|(_, view)| view.latest().is_some_and(|digest| digest.enabled || !view.is_alive()))
        .map(|(rank, view)| (Mix::of(view), Member::of(rank, view)))
        .collect();
    known.sort_by(|(a, _), (b, _)| a.sizes.cmp(&b.sizes).then(a.product.total_cmp(&b.product)));
    let groups = split(known, |(a, _), (b, _)| a.sizes == b.sizes && are_alike(a.product, b.product, ALIKE));
    let cohorts = groups.into_iter().flat_map(|mut group| {
        group.sort_by(|(a, _), (b, _)| a.products.total_cmp(&b.products));
        split(group, |(a, _), (b, _)| are_alike(a.products, b.products, a.blur.max(b.blur)))
    });
    cohorts.map(|cohort| cohort.into_iter().map(|(_, member)| member).collect()).collect()
}

/// The ranks that do the same work as this one, itself among them: those it can be compared with.
pub fn peers(job: &Job, rank: Rank) -> Vec<Rank> {
    let Some(this) = job.rank(rank) else { return Vec::new() };
    let (mix, part) = (Mix::of(this), this.part());
    let alike = |view: &RankView| {
        let other = Mix::of(view);
        view.part() == part
            && other.sizes == mix.sizes
            && are_alike(other.product, mix.product, ALIKE)
            && are_alike(other.products, mix.products, mix.blur.max(other.blur))
    };
    job.ranks().filter(|&(other, view)| other == rank || alike(view)).map(|(other, _)| other).collect()
}

/// The ranks of a cohort by the part they have, as far as communicators tell: where ranks send to each other, those of one stage are
/// in one, and those of another in another.
pub(super) fn parts<'a>(cohort: &'a [Member<'a>]) -> Vec<Vec<&'a Member<'a>>> {
    let mut parts: BTreeMap<Option<CommunicatorId>, Vec<_>> = BTreeMap::new();
    for member in cohort {
        parts.entry(member.view.part()).or_default().push(member);
    }
    parts.into_values().collect()
}

/// What a rank does.
#[derive(Debug)]
struct Mix {
    /// Sizes of its communicators, each once.
    sizes: Vec<u32>,
    /// Arithmetic of its products at the mean.
    product: f64,
    /// Products to a collective.
    products: f64,
    /// How far that may be off: a digest comes in the middle of a step.
    blur: f64,
}

impl Mix {
    fn of(view: &RankView) -> Self {
        let Some(digest) = view.latest() else {
            return Self { sizes: Vec::new(), product: 0.0, products: 0.0, blur: ALIKE };
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
            product: ratio(digest.gemm_flops, launches.gemms),
            products: ratio(launches.gemms as f64, launches.collectives),
            blur: ALIKE.max(2.0 / steps as f64),
        }
    }
}

fn are_alike(a: f64, b: f64, within: f64) -> bool {
    (a - b).abs() <= within * a.abs().max(b.abs())
}

/// Cuts a sorted list where two neighbours differ.
fn split<T>(sorted: Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for one in sorted {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| same(last, &one)) => group.push(one),
            _ => groups.push(vec![one]),
        }
    }
    groups
}
