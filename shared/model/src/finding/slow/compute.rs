//! GPUs that are slower than others with the same work, or slower than before.

use super::{
    super::cohort::{SPREADS, spread},
    COHORT, Clocks, Confidence, LATE_BY_COMPUTE, Member, PERSISTENT, SLOW, STEADY, Suspect, cause, cost,
    excess,
    late::LATE,
    median, usual_skew,
};

/// The smallest spread that is assumed for rates of equal GPUs, even if they seem equal: a third of their
/// largest difference ([`cause::APART`]).
const LEAST_SPREAD: f64 = cause::APART / 3.0;

/// Share of the time from which a rank is not late by chance, and the others wait for it: the share from
/// which several late ranks are named.
const WAITED_FOR: f64 = LATE;

/// Seconds after which arrival skew is known: the others report the same collectives two digests later, and
/// on average half a digest passes until the next. Tuned.
const SKEW_KNOWN_S: f64 = 4.5;

pub(super) fn by_compute<'a>(cohort: &'a [Member<'a>]) -> Vec<Suspect<'a>> {
    if cohort.len() < COHORT {
        return Vec::new();
    }
    let Some(usual) = median(cohort.iter().filter_map(|member| member.rate).collect()) else {
        return Vec::new();
    };
    let off = cohort.iter().filter_map(|member| Some(member.rate? - usual));
    let spread = spread(off).max(LEAST_SPREAD * usual);
    let on_time = usual_skew(cohort.iter());
    let clear = spreads(cohort.len()) * spread;
    let slow = cohort.iter().filter_map(|member| {
        let rate = member.rate?;
        let is_low = |rate: &f64| *rate < SLOW * usual;
        let low = member.rates.iter().filter(|rate| is_low(rate)).count();
        let is_clear = usual - rate > clear.max(cause::ERRORS * member.rate_error());
        if !is_low(&rate) || !is_clear || low < PERSISTENT || cost::is_limited_by_host(member) {
            return None;
        }
        let late = excess(member, on_time);
        if only_waits(member, late) {
            return None;
        }
        let confidence = match late {
            Some(late) if late >= LATE_BY_COMPUTE => Confidence::Certain,
            _ => Confidence::Likely,
        };
        let since_s = low_since(member, SLOW * usual);
        Some(Suspect {
            member,
            rate,
            usual,
            cohort: cohort.len(),
            late,
            confidence,
            since_s,
            clocks: Clocks::Unknown,
            waits_less: false,
        })
    });
    slow.collect()
}

/// [`SPREADS`], adjusted to this number of ranks: by chance, the slowest of more ranks deviates more.
pub(super) fn spreads(ranks: usize) -> f64 {
    let extreme = |ranks: usize| (2.0 * (ranks as f64).ln()).sqrt();
    SPREADS + extreme(ranks) - extreme(COHORT)
}

/// Ranks that became slower than their own past while enough others did not: one of two, or half of a cohort.
pub(super) fn by_own_past<'a>(cohorts: &'a [Vec<Member<'a>>], known: &[Suspect<'_>]) -> Vec<Suspect<'a>> {
    let all = || cohorts.iter().flatten();
    let fallen = |member: &'a Member<'a>| {
        let (rate, usual) = (member.rate?, member.past?);
        let low = member.rates.iter().filter(|rate| **rate < SLOW * usual).count();
        let is_clear = usual - rate > cause::ERRORS * member.rate_error();
        let may_matter = is_clear && !cost::is_limited_by_host(member);
        (rate < SLOW * usual && low >= PERSISTENT && may_matter).then_some((member, rate, usual))
    };
    // While a slowdown of all ranks ages, it becomes the usual rate of one rank before that of another.
    let stayed = |member: &&Member<'_>| {
        let usual = member.past.zip(member.older).map(|(past, older)| past.max(older));
        member.rate.zip(usual).is_some_and(|(rate, usual)| rate > STEADY * usual)
    };
    let mut fallen: Vec<_> = all().filter_map(fallen).collect();
    let steady = all().filter(stayed).count();
    // If most ranks became slower, a rank that did not may be the cause.
    if fallen.len() > steady {
        fallen.retain(|&(member, _, usual)| low_since(member, SLOW * usual) > SKEW_KNOWN_S);
    }
    // A rank that neither became slower nor stayed the same is still between the two.
    if steady * 4 < fallen.len() + steady || (fallen.len() + steady) * 10 < all().count() * 9 {
        return Vec::new();
    }
    // A kernel that waits for other ranks takes SMs from concurrent GEMMs. If the others wait for a rank that
    // did not become slower, that rank made the others' GEMMs slower.
    let latest = all().filter(stayed).filter_map(|member| member.arrival_skew()).fold(0.0, f64::max);
    let kept = |member: &Member<'_>| {
        let late = member.arrival_skew();
        latest > WAITED_FOR
            && late.is_some_and(|late| late < cost::PASSED_ON * latest)
            && only_waits(member, late)
    };
    let new = fallen
        .into_iter()
        .filter(|(member, ..)| known.iter().all(|known| known.member.rank != member.rank) && !kept(member));
    let suspect = |(member, rate, usual): (&'a Member<'a>, f64, f64)| Suspect {
        member,
        rate,
        usual,
        cohort: 1,
        late: member.arrival_skew(),
        confidence: Confidence::Likely,
        since_s: low_since(member, SLOW * usual),
        clocks: Clocks::Unknown,
        waits_less: false,
    };
    new.map(suspect).collect()
}

/// Whether the rank waits for others, while no rank waits for it.
fn only_waits(member: &Member<'_>, late: Option<f64>) -> bool {
    late.is_some_and(|late| late < LATE_BY_COMPUTE) && member.waited > LATE_BY_COMPUTE
}

/// Seconds for which its rate has been below `bound`. If all its rates are, the slowdown may have begun
/// before them, and the others' waits, which are kept for longer, give its start.
fn low_since(member: &Member<'_>, bound: f64) -> f64 {
    let heard = member.view.last_report();
    let mut rates = member.view.gemm_rates().peekable();
    let first = std::iter::from_fn(|| rates.next_if(|(_, rate)| rate.0 < bound)).last();
    // A digest covers the second before it.
    let low = first.map_or(1.0, |(first, _)| heard.since(first).as_secs_f64() + 1.0);
    let waited_for = member.delay.filter(|_| rates.next().is_none() && low > cost::LOOKED_BACK);
    low.max(waited_for.map_or(0.0, |delay| heard.since(delay.since).as_secs_f64()))
}
