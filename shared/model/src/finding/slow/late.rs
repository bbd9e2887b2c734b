//! Ranks that enter their collectives late although their GPUs are as fast as the others'. If several are
//! late together, none of them alone costs anything. If ranks send to each other, the cost of one is not
//! visible. [`super::cost`] names a single late rank.

use xpu_wire::unit::Nanoseconds;

use super::{
    super::{
        cohort::{self, LONG, RECENT, WIDTH},
        device::EXPLAINS,
    },
    COHORT, Clocks, Confidence, Member, SLOW, Suspect, cause, compute, cost, median,
};
use crate::{finding::rank_profile::BEGUN, job::mean};

/// Share of the time from which the cost of several ranks is reported. It is less certain than that of one
/// rank, so `minor` costs are not.
pub(super) const LATE: f64 = 0.05;

/// Share of a rank's arrival skew: if another cause accounts for it, its host accounts for less.
const MOST: f64 = 0.5;

/// Compares the arrival skew of ranks of the same part, because the first stage of a pipeline ends last.
pub(super) fn by_arrival<'a>(cohort: &'a [Member<'a>]) -> Vec<Suspect<'a>> {
    cohort::parts(cohort).iter().flat_map(|part| late_of(part)).collect()
}

/// The usual rank of a part.
struct Usual {
    rate: f64,
    late: f64,
    /// Spread of the arrival skew among its ranks.
    spread: f64,
    /// Its wait for others.
    waited: f64,
    /// The GEMMs' share of a step, and their share of the latest seconds.
    busy: f64,
    busy_lately: f64,
    /// Shares of the time in which threads waited for the GPU.
    blocked: Option<f64>,
    blocked_lately: Option<f64>,
    blocked_halves: [Option<f64>; 2],
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
            waited: of(|member| Some(member.waited)).unwrap_or(0.0),
            busy: of(|member| member.busy).unwrap_or(0.0),
            busy_lately: of(|member| member.busy_lately).unwrap_or(0.0),
            blocked: of(|member| member.blocked),
            blocked_lately: of(|member| member.blocked_lately),
            blocked_halves: [of(|member| member.blocked_halves[0]), of(|member| member.blocked_halves[1])],
        })
    }
}

fn late_of<'a>(part: &[&'a Member<'a>]) -> Vec<Suspect<'a>> {
    let Some(usual) = Usual::of(part).filter(|_| part.len() >= COHORT) else { return Vec::new() };
    let held_up = cost::blocked_time(part);
    let is_late = |member: &Member<'_>, late: f64, spared: Option<f64>| {
        // The arrival skew of the recently timed collectives, or of those in all digests, must exceed the
        // interval of the sample, the variation between digests, and the usual difference between ranks.
        let sampled = WIDTH * member.delay.map_or(0.0, |delay| delay.late_error);
        let is_sure = |digests: usize| {
            let known = &member.late[..digests.min(member.late.len())];
            let mean = mean(known.iter().copied()).unwrap_or(0.0);
            mean - usual.late - (sampled * mean).max(cause::ERRORS * error_of_mean(known)) > LATE
        };
        let is_apart = late > compute::spreads(part.len()) * usual.spread;
        // Or the waiting of its threads shows it, which is counted completely. Few timed collectives then
        // suffice, if they agree.
        is_apart && [RECENT, LONG].into_iter().any(is_sure)
            || spared.is_some_and(|spared| spared > LATE && late > EXPLAINS * spared)
    };
    let suspect = |&member: &&'a Member<'a>| {
        let (rate, late) = (member.rate?, member.late_pooled - usual.late);
        // Digests cut a step's wait in two.
        let cut = member.pace.map_or(0.0, Nanoseconds::seconds);
        let less = |own: Option<f64>, usual: Option<f64>, digests: usize| {
            own.zip(usual).map(|(own, usual)| usual - own - cut / digests as f64)
        };
        let spared_lately = less(member.blocked_lately, usual.blocked_lately, BEGUN);
        // A single pause, which every rank may make at times, is in one half only.
        let is_repeated = |spared: &f64| {
            let mut halves = member.blocked_halves.iter().zip(usual.blocked_halves);
            halves.all(|(own, usual)| {
                own.zip(usual).is_some_and(|(own, usual)| usual - own > EXPLAINS * spared)
            })
        };
        let spared_lately = spared_lately.filter(is_repeated);
        if !member.begun || member.late.len() < RECENT || !is_late(member, late, spared_lately) {
            return None;
        }
        let late = late.max(spared_lately.unwrap_or(0.0));
        // Its GPU or its work may be the cause. A GPU that was slow until a moment ago was slow while the
        // rank was late.
        let slowest = member.rate_longer.map_or(rate, |longer| rate.min(longer));
        let work = (member.busy? - usual.busy).max(member.busy_lately.unwrap_or(0.0) - usual.busy_lately);
        let other_causes = (1.0 - slowest / usual.rate).max(work);
        // If threads wait for the GPU at all, those of a rank whose host is late wait less, by the same time.
        let spared = greater(less(member.blocked, usual.blocked, LONG), spared_lately);
        let waits = spared.zip(greater(usual.blocked, usual.blocked_lately).filter(|usual| *usual > 0.0));
        let is_its_host = waits.is_none_or(|(spared, usual)| spared >= EXPLAINS * late.min(usual));
        let is_known = waits.is_some_and(|(_, usual)| usual >= late);
        // A rank that waits for another rank in one communicator is late in the next. Such a rank waits as
        // long as the others.
        let passes_on = if is_known {
            usual.waited - member.waited < MOST * late
        } else {
            member.waited > MOST * (late + usual.late)
        };
        if rate < SLOW * usual.rate
            || other_causes > MOST * late
            || passes_on
            || !is_its_host
            || !cost::waits_less(member, held_up)
        {
            return None;
        }
        // The duration by its digests or, if few of their collectives were timed, since it first cost the
        // others time. Only two digests in a row show that it was on time, because one may have few timed
        // collectives.
        let is_late = |digest: &f64| digest - usual.late > LATE;
        let before = member.late.windows(2).position(|pair| !pair.iter().any(is_late));
        let digests = before.unwrap_or(member.late.len()) as f64;
        let costs = member.delay.filter(|delay| delay.cost > LATE);
        let since_s = costs.map_or(0.0, |delay| member.view.last_report().since(delay.since).as_secs_f64());
        Some(Suspect {
            member,
            rate,
            usual: usual.rate,
            cohort: part.len(),
            late: Some(late),
            // Waiting for sends and receives is not observed: a rank that waited for a pipeline neighbour may
            // be late because of it.
            confidence: if member.sends && !is_known { Confidence::Guess } else { Confidence::Likely },
            since_s: since_s.max(digests),
            clocks: Clocks::Unknown,
            waits_less: is_known,
        })
    };
    part.iter().filter_map(suspect).collect()
}

/// The standard error of the mean of these.
fn error_of_mean(values: &[f64]) -> f64 {
    let n = values.len().max(2) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

fn greater(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    [one, other].into_iter().flatten().reduce(f64::max)
}
