//! Ranks whose host keeps the others waiting, while their GPUs are as fast.
//!
//! [`super::cost`] covers most of this: it names the rank that costs most, from two ranks on, with an interval.
//! This rule stays for what that leaves out: several late ranks at once (there one must cost clearly more than
//! the next), and jobs whose ranks send to each other, where the cost of a rank is not seen. It is also sooner:
//! without it `make scenarios` (fresh seeds, 64 ranks) names 77 % of the slow data loaders in time instead of
//! 97 %, and those with many buckets after 13 s instead of 9. It needs [`COHORT`] ranks, because it compares with
//! a median. Constants without another derivation below were chosen on the tuning seeds of `make scenarios`
//! (1000 and up), not on those whose table is published.

use super::{
    super::{
        cohort::{self, LONG},
        device::EXPLAINS,
    },
    COHORT, Clocks, Confidence, Member, PERSISTENT, RECENT, SLOW, Suspect, cost, excess, median,
    usual_lateness,
};
use crate::job::RankView;

/// Share of the time that others must lose through a late rank. Five times the floor of [`super::cost`]:
/// lateness is a median over timed collectives and has no interval.
const LATE: f64 = 0.1;

/// Milliseconds per step below which it does not matter.
const LEAST_MS: f64 = 1.0;

/// Digests of [`LONG`] that suffice if those of nearly all others do not show it: if one digest in 20 is late
/// by chance, that happens once in 180 times.
const OFTEN: f64 = 4.0;

/// And this many, as many as [`PERSISTENT`], if its threads wait for the GPU less than the others'.
const SEEN: usize = PERSISTENT;

/// Twice [`LATE`]. If threads wait for the GPU for this share of the time, a rank with a late host waits less
/// than the others, by what makes a cause of its lateness. A rank that only waited for a slower neighbour, or
/// has more work, waits as long as they do.
const TELLING: f64 = 2.0 * LATE;
const SPARED: f64 = EXPLAINS;

/// Digests with steps before lateness is judged: the first steps compile.
const BEGUN: usize = 8;

/// Digests over which threads' waiting is compared, as many as [`BEGUN`], and those with steps after which none
/// of the first two, in which kernels are compiled, are included.
const LATELY: usize = BEGUN;
const WARM: usize = LATELY + 2;

/// Numbers of digests over which waiting is summed: recent, those that make a condition persistent, and many.
pub(crate) const WAITS: [usize; 3] = [LATELY, PERSISTENT, LONG];

/// Lateness is compared among ranks with the same part: the first stage of a pipeline is the last to end.
pub(super) fn by_host<'a>(cohort: &'a [Member<'a>]) -> Vec<Suspect<'a>> {
    cohort::parts(cohort).iter().flat_map(|part| late_of(part)).collect()
}

fn late_of<'a>(cohort: &[&'a Member<'a>]) -> Vec<Suspect<'a>> {
    if cohort.len() < COHORT {
        return Vec::new();
    }
    let usual = median(cohort.iter().filter_map(|member| member.rate).collect());
    let on_time = usual_lateness(cohort.iter().copied());
    let waits =
        [0, 1, 2].map(|at: usize| median(cohort.iter().filter_map(|member| member.blocked[at]).collect()));
    let [blocked, ..] = waits;
    let telling = blocked.is_some_and(|blocked| blocked > TELLING);
    // How much less its threads waited than the others'.
    let less = |member: &Member<'_>, at: usize| {
        member.blocked[at].zip(waits[at]).map_or(0.0, |(blocked, usual)| usual - blocked)
    };
    let busy = median(cohort.iter().filter_map(|member| member.busy).collect()).unwrap_or(0.0);
    let busy_lately = median(cohort.iter().filter_map(|member| member.busy_lately).collect()).unwrap_or(0.0);
    let often =
        median(cohort.iter().map(|member| member.often_late(on_time + LATE) as f64).collect()).unwrap_or(0.0);
    // Waiting for sends and receives is not observed: a rank that waited for a pipeline neighbour may be late
    // because of it.
    let guessed = |member: &Member<'_>| member.sends && !telling;
    // Hosts that limit a job are never exactly equal.
    let held_up = if blocked.is_some_and(|blocked| blocked < TELLING) { cost::held_up(cohort) } else { None };
    let late = cohort.iter().filter_map(|&member| {
        if !cost::waits_less(member, held_up) {
            return None;
        }
        let (rate, usual) = (member.rate?, usual?);
        let late = excess(member, on_time)?;
        let count = member.late.iter().filter(|late| **late - on_time > LATE).count();
        let persistent = late > LATE && count >= if guessed(member) { RECENT } else { PERSISTENT };
        // If few collectives are timed, most digests lack the one that waits.
        let sporadic = member.often_late(on_time + LATE) as f64 >= (3.0 * often + 2.0).max(OFTEN);
        let late = if sporadic { late.max(upper(&member.late_longer) - on_time) } else { late };
        // Its threads had much less to wait for: that is counted, not sampled.
        let own = less(member, 0);
        let warm = member.pace_samples > WARM;
        let seen = member.always_last && member.late_summed > LATE;
        let spared = warm && own > LATE && (seen || member.often_late(on_time + LATE) >= SEEN);
        let late = if spared { late.max(own) } else { late };
        // Or all its collectives are a little late, and the sum is the same in all digests.
        let steadily = member.always_last && member.late_pooled - on_time > LATE;
        let late = if steadily { late.max(member.late_pooled - on_time) } else { late };
        let matters = member.begun && member.ms_a_step(late).is_none_or(|ms| ms > LEAST_MS);
        // Neither its GPU's slowness nor waiting for others may be the reason. A GPU that was slow until a moment ago
        // was so while it was late.
        let slowest = member.rate_longer.map_or(rate, |longer| rate.min(longer));
        let by_host = rate > SLOW * usual && late > 2.0 * (1.0 - slowest / usual);
        let waited = member.waited > 0.5 * (late + on_time);
        // Nor more work.
        let more_lately = member.busy_lately.map_or(0.0, |own| own - busy_lately);
        let spares = if persistent { own.max(less(member, 1)) } else { less(member, 2) };
        let elsewhere = telling && spares < SPARED * late;
        let busier = late < 2.0 * (member.busy? - busy).max(more_lately);
        ((persistent || sporadic || spared || steadily)
            && matters
            && by_host
            && !waited
            && !elsewhere
            && !busier)
            .then(|| Suspect {
                member,
                rate,
                usual,
                cohort: cohort.len(),
                late: Some(late),
                confidence: if guessed(member) { Confidence::Guess } else { Confidence::Likely },
                since_s: since_s(member, on_time),
                clocks: Clocks::Unknown,
            })
    });
    late.collect()
}

/// How long it has been late: by its digests, or, if few of their collectives were timed, since it first cost
/// the others time.
fn since_s(member: &Member<'_>, on_time: f64) -> f64 {
    let late = member.late.iter().take_while(|late| **late - on_time > LATE).count() as f64;
    let toll = member.toll.filter(|toll| toll.cost > LATE);
    toll.map_or(late, |toll| late.max(member.view.heard().since(toll.since).as_secs_f64()))
}

/// Whether its first steps, which compile, are past: or the observed ones were no longer than the others.
pub(crate) fn has_begun(view: &RankView) -> bool {
    if view.pace_samples().nth(BEGUN - 1).is_some() {
        return true;
    }
    let steps: Vec<f64> = view.pace_samples().map(|sample| f64::from(sample.span / sample.steps)).collect();
    let usual = steps.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = steps.iter().copied().fold(0.0, f64::max);
    let latest = view.arrivals().map(|window| window.latest / 1e9).fold(0.0, f64::max);
    steps.len() >= PERSISTENT && longest < 2.0 * usual && latest < usual
}

/// The upper quarter.
fn upper(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * 3 / 4).copied().unwrap_or(0.0)
}
