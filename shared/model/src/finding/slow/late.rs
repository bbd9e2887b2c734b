//! Ranks that enter their collectives late while their GPUs are as fast as the others': of several at once none
//! alone costs anything, and among ranks that send to each other what one costs is not seen. [`super::cost`]
//! names a single one.

use super::{
    super::{
        cohort::{self, LONG, RECENT, WIDTH},
        device::EXPLAINS,
    },
    COHORT, Clocks, Confidence, Member, SLOW, Suspect, compute, cost, median,
};

/// The share of the time from which a cost is `slow`: what several ranks cost together is known less well than
/// what one does, so `minor` costs are not told.
pub(super) const LATE: f64 = 0.05;

/// Digests of [`LONG`] in which it must be late unless it is always last: a quarter of them. What is rarer is a
/// single long step ([`super::super::pace`]).
const OFTEN: usize = LONG.div_ceil(4);

/// What accounts for this share of its lateness leaves less than that to its host.
const MOST: f64 = 0.5;

/// Lateness is compared among ranks with the same part: the first stage of a pipeline is the last to end.
pub(super) fn by_arrival<'a>(cohort: &'a [Member<'a>]) -> Vec<Suspect<'a>> {
    cohort::parts(cohort).iter().flat_map(|part| late_of(part)).collect()
}

/// The usual rank of a part.
struct Usual {
    rate: f64,
    late: f64,
    /// Spread of the lateness among its ranks.
    spread: f64,
    /// The GEMMs' share of a step, and of the latest seconds.
    busy: f64,
    busy_lately: f64,
    /// Shares of the time in which threads waited for the GPU.
    blocked: Option<f64>,
    blocked_lately: Option<f64>,
}

impl Usual {
    fn of(part: &[&Member<'_>]) -> Option<Self> {
        let of = |figure: fn(&Member<'_>) -> Option<f64>| {
            median(part.iter().filter_map(|member| figure(member)).collect())
        };
        let late = of(|member| Some(member.late_pooled))?;
        Some(Self {
            rate: of(|member| member.rate)?,
            late,
            spread: cohort::spread(part.iter().map(|member| member.late_pooled - late)),
            busy: of(|member| member.busy).unwrap_or(0.0),
            busy_lately: of(|member| member.busy_lately).unwrap_or(0.0),
            blocked: of(|member| member.blocked),
            blocked_lately: of(|member| member.blocked_lately),
        })
    }
}

fn late_of<'a>(part: &[&'a Member<'a>]) -> Vec<Suspect<'a>> {
    let Some(usual) = Usual::of(part).filter(|_| part.len() >= COHORT) else { return Vec::new() };
    let held_up = cost::held_up(part);
    let is_late = |member: &Member<'_>, late: f64, spared: Option<f64>| {
        // By its timed collectives, beyond their interval and what ranks differ by.
        let error = WIDTH * member.toll.map_or(0.0, |toll| toll.late_error) * member.late_pooled;
        let digests = member.late.iter().filter(|digest| **digest - usual.late > LATE).count();
        let by_arrival = late - error > LATE && late > compute::spreads(part.len()) * usual.spread;
        let by_arrival = by_arrival && (digests >= OFTEN || member.always_last);
        // Or by its threads' waiting, which is counted: then few timed collectives need only agree.
        by_arrival || spared.is_some_and(|spared| spared > LATE && late > EXPLAINS * spared)
    };
    let suspect = |&member: &&'a Member<'a>| {
        let (rate, late) = (member.rate?, member.late_pooled - usual.late);
        let less = |own: Option<f64>, usual: Option<f64>| own.zip(usual).map(|(own, usual)| usual - own);
        let spared_lately = less(member.blocked_lately, usual.blocked_lately);
        if !member.begun || member.late.len() < RECENT || !is_late(member, late, spared_lately) {
            return None;
        }
        let late = late.max(spared_lately.unwrap_or(0.0));
        // Its GPU, its work or its own waiting for others may be the cause. A GPU that was slow until a moment
        // ago was so while it was late.
        let slowest = member.rate_longer.map_or(rate, |longer| rate.min(longer));
        let work = (member.busy? - usual.busy).max(member.busy_lately.unwrap_or(0.0) - usual.busy_lately);
        let other_causes = (1.0 - slowest / usual.rate).max(work).max(member.waited);
        // Threads of a rank whose host is late wait for the GPU that much less, if they wait at all.
        let spared = greater(less(member.blocked, usual.blocked), spared_lately);
        let waits = spared.zip(greater(usual.blocked, usual.blocked_lately));
        let is_its_host = waits.is_none_or(|(spared, usual)| spared >= EXPLAINS * late.min(usual));
        let is_told = waits.is_some_and(|(_, usual)| usual >= late);
        if rate < SLOW * usual.rate
            || other_causes > MOST * late
            || !is_its_host
            || !cost::waits_less(member, held_up)
        {
            return None;
        }
        // By its digests, or, if few of their collectives were timed, since it first cost the others time.
        let digests = member.late.iter().take_while(|digest| **digest - usual.late > LATE).count() as f64;
        let costs = member.toll.filter(|toll| toll.cost > LATE);
        let since_s = costs.map_or(0.0, |toll| member.view.heard().since(toll.since).as_secs_f64());
        Some(Suspect {
            member,
            rate,
            usual: usual.rate,
            cohort: part.len(),
            late: Some(late),
            // Waiting for sends and receives is not observed: a rank that waited for a pipeline neighbour may
            // be late because of it.
            confidence: if member.sends && !is_told { Confidence::Guess } else { Confidence::Likely },
            since_s: since_s.max(digests),
            clocks: Clocks::Unknown,
        })
    };
    part.iter().filter_map(suspect).collect()
}

fn greater(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    [one, other].into_iter().flatten().reduce(f64::max)
}
