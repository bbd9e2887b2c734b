//! Ranks the others wait for, and whether that is their GPU or their host.

use super::{
    Class, Confidence, Finding, Kind,
    cohort::{self, Member, PERSISTENT, RECENT},
    device, phrase,
};
use crate::{
    id::Rank,
    job::{Job, median},
};

/// Fewer ranks that do the same are no measure for each other.
const COHORT: usize = 4;

/// Below this share of its cohort's rate a GPU is slow.
const SLOW: f64 = 0.9;

/// And this many times the usual spread below it.
const SPREADS: f64 = 4.0;

/// Rates of equal GPUs differ by as much as this, were they ever so equal when looked at.
const LEAST_SPREAD: f64 = 0.01;

/// Share of the time that others must lose by a rank that is late.
const LATE: f64 = 0.1;

/// Of a slow GPU, less is enough: that it is late at all.
const LATE_BY_COMPUTE: f64 = 0.02;

/// Milliseconds a step below which nobody cares.
const LEAST_MS: f64 = 1.0;

/// Digests of ten that say so are enough where those of nearly all others do not.
const OFTEN: f64 = 4.0;

/// Digests with steps before lateness is judged: the first steps compile.
const BEGUN: usize = 8;

/// Digests with steps after which the last half minute holds none of the first ones.
const WARM: usize = 40;

/// Seconds after which a slow GPU is told though others may follow.
const FOLLOWED: f64 = 8.0;

/// Above this share of its own past one has not changed.
const STEADY: f64 = 0.95;

pub(super) fn ranks(job: &Job) -> Vec<Finding> {
    let cohorts = cohort::of(job);
    let mut slow: Vec<_> = cohorts.iter().flat_map(|cohort| by_compute(cohort)).collect();
    let fell: Vec<_> = by_own_past(&cohorts, &slow);
    slow.extend(fell);
    if more_follow(&cohorts, &slow) {
        slow.clear();
    }
    let worst = slow.iter().map(|suspect| suspect.late.unwrap_or(0.0)).fold(0.0, f64::max);
    let mut late: Vec<_> = cohorts.iter().flat_map(|cohort| by_host(cohort)).collect();
    late.retain(|suspect| slow.iter().all(|slow| slow.member.rank != suspect.member.rank));
    // Who waits for the slow one in one communicator is late in the next: only the latest is to blame.
    let latest = late.iter().filter_map(|suspect| suspect.late).fold(1.5 * worst, f64::max);
    late.retain(|suspect| suspect.late.is_some_and(|late| late > 0.5 * latest && late > 1.5 * worst));
    let all = || cohorts.iter().flatten().map(|member| member.view);
    for suspect in &mut slow {
        suspect.held = device::held(suspect.member.view, all());
    }
    let (clocks, compute) = slow.into_iter().partition(|suspect| suspect.held.is_some());
    [(Class::Clocks, clocks), (Class::Compute, compute), (Class::Host, late)]
        .into_iter()
        .filter_map(|(class, suspects)| finding(class, suspects))
        .collect()
}

/// A rank under suspicion.
struct Suspect<'a> {
    member: &'a Member<'a>,
    /// Its rate, and what it should be.
    rate: f64,
    usual: f64,
    cohort: usize,
    /// Share of the time it is later than its cohort; `None` while unknown.
    late: Option<f64>,
    confidence: Confidence,
    since_s: f64,
    /// How its clocks are held down.
    held: Option<String>,
}

fn by_compute<'a>(cohort: &'a [Member<'a>]) -> Vec<Suspect<'a>> {
    if cohort.len() < COHORT {
        return Vec::new();
    }
    let Some(usual) = median(cohort.iter().filter_map(|member| member.rate).collect()) else {
        return Vec::new();
    };
    let off = cohort.iter().filter_map(|member| Some((member.rate? - usual).abs()));
    let spread = (1.4826 * median(off.collect()).unwrap_or(0.0)).max(LEAST_SPREAD * usual);
    let on_time = usual_lateness(cohort.iter());
    let slow = cohort.iter().filter_map(|member| {
        let rate = member.rate?;
        let is_low = |rate: &f64| *rate < SLOW * usual;
        let low = member.rates.iter().filter(|rate| is_low(rate)).count();
        if !is_low(&rate) || (usual - rate) / spread < SPREADS || low < PERSISTENT {
            return None;
        }
        let late = excess(member, on_time);
        // One that itself waits for others holds nobody up.
        if late.is_some_and(|late| late < LATE_BY_COMPUTE) && member.waited > LATE_BY_COMPUTE {
            return None;
        }
        let confidence = match late {
            Some(late) if late >= LATE_BY_COMPUTE => Confidence::Certain,
            _ => Confidence::Likely,
        };
        let since_s = low_since(member, SLOW * usual);
        Some(Suspect { member, rate, usual, cohort: cohort.len(), late, confidence, since_s, held: None })
    });
    slow.collect()
}

/// Whether others have just become slow too: who is slow is told together, after some seconds in any case.
fn more_follow(cohorts: &[Vec<Member<'_>>], slow: &[Suspect<'_>]) -> bool {
    let is_undecided = |member: &&Member<'_>| {
        let low =
            |past: f64| member.rates.iter().take(PERSISTENT).filter(|rate| **rate < SLOW * past).count();
        member.past.is_some_and(|past| (1..PERSISTENT).contains(&low(past)))
    };
    let undecided = cohorts.iter().flatten().filter(is_undecided).count();
    let all = cohorts.iter().flatten().count();
    let longest = slow.iter().map(|suspect| suspect.since_s).fold(0.0, f64::max);
    undecided > 1 && undecided * 4 > slow.len() && undecided * 50 > all && longest < FOLLOWED
}

/// Ranks that fell behind their own past while enough others did not: one of two, half of a cohort.
fn by_own_past<'a>(cohorts: &'a [Vec<Member<'a>>], known: &[Suspect<'_>]) -> Vec<Suspect<'a>> {
    let all = || cohorts.iter().flatten();
    let fallen = |member: &'a Member<'a>| {
        let (rate, usual) = (member.rate?, member.past?);
        let low = member.rates.iter().filter(|rate| **rate < SLOW * usual).count();
        Some((member, rate, usual)).filter(|_| rate < SLOW * usual && low >= PERSISTENT)
    };
    let steady =
        all().filter(|member| member.rate.zip(member.past).is_some_and(|(rate, past)| rate > STEADY * past));
    let fallen: Vec<_> = all().filter_map(fallen).collect();
    let steady = steady.count();
    // Some that neither fell nor stayed are between two digests.
    if steady * 4 < fallen.len() + steady || (fallen.len() + steady) * 10 < all().count() * 9 {
        return Vec::new();
    }
    let new =
        fallen.into_iter().filter(|(member, ..)| known.iter().all(|known| known.member.rank != member.rank));
    let suspect = |(member, rate, usual): (&'a Member<'a>, f64, f64)| Suspect {
        member,
        rate,
        usual,
        cohort: 1,
        late: member.lateness(),
        confidence: Confidence::Likely,
        since_s: low_since(member, SLOW * usual),
        held: None,
    };
    new.map(suspect).collect()
}

/// Who is late is told among those with the same part: the first stage of a pipeline is the last to end.
fn by_host<'a>(cohort: &'a [Member<'a>]) -> Vec<Suspect<'a>> {
    cohort::parts(cohort).iter().flat_map(|part| late_of(part)).collect()
}

fn late_of<'a>(cohort: &[&'a Member<'a>]) -> Vec<Suspect<'a>> {
    if cohort.len() < COHORT {
        return Vec::new();
    }
    let usual = median(cohort.iter().filter_map(|member| member.rate).collect());
    let on_time = usual_lateness(cohort.iter().copied());
    let blocked = median(cohort.iter().filter_map(|member| member.view.blocked()).collect());
    let busy = median(cohort.iter().filter_map(|member| member.busy).collect()).unwrap_or(0.0);
    let often =
        median(cohort.iter().map(|member| member.often_late(on_time + LATE) as f64).collect()).unwrap_or(0.0);
    let late = cohort.iter().filter_map(|&member| {
        let (rate, usual) = (member.rate?, usual?);
        let begun = member.view.step().is_none() || has_begun(member);
        let late = excess(member, on_time)?;
        let count = member.late.iter().filter(|late| **late - on_time > LATE).count();
        let persistent = late > LATE && count >= if point_to_point(member) { RECENT } else { PERSISTENT };
        // Where few collectives are timed, most digests do not hold the one that waits.
        let sporadic = member.often_late(on_time + LATE) as f64 >= (3.0 * often + 2.0).max(OFTEN);
        let late = if sporadic { late.max(upper(&member.late_longer) - on_time) } else { late };
        // Its threads had so much less to wait for: that is counted, not sampled.
        let less = member.view.blocked().zip(blocked).map_or(0.0, |(blocked, usual)| usual - blocked);
        let warm = member.view.beats().len() > WARM;
        let spared = warm && less > LATE && member.often_late(on_time + LATE) >= 3;
        let late = if spared { late.max(less) } else { late };
        let matters = begun && member.ms_a_step(late).is_none_or(|ms| ms > LEAST_MS);
        // What its GPU is slower by must not be the reason, nor that others kept it waiting.
        let by_host = rate > SLOW * usual && late > 2.0 * (1.0 - rate / usual);
        let waited = member.waited > 0.5 * (late + on_time);
        // Nor that it has more to do.
        let busier = late < 2.0 * (member.busy? - busy);
        ((persistent || sporadic || spared) && matters && by_host && !waited && !busier).then(|| Suspect {
            member,
            rate,
            usual,
            cohort: cohort.len(),
            late: Some(late),
            confidence: if point_to_point(member) { Confidence::Guess } else { Confidence::Likely },
            since_s: member.late.iter().take_while(|late| **late - on_time > LATE).count() as f64,
            held: None,
        })
    });
    late.collect()
}

/// Waiting for sends and receives is not seen: who waited for a neighbour in the pipeline may be late for its sake.
fn point_to_point(member: &Member<'_>) -> bool {
    member.view.latest().is_some_and(|digest| digest.launches.point_to_point > 0)
}

/// Whether its first steps, which compile, are past: or those that were seen were no longer than the others.
fn has_begun(member: &Member<'_>) -> bool {
    let steps: Vec<f64> = member.view.beats().map(|beat| f64::from(beat.span / beat.steps)).collect();
    let usual = steps.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = steps.iter().copied().fold(0.0, f64::max);
    let latest = member.view.arrivals().map(|window| window.latest / 1e9).fold(0.0, f64::max);
    steps.len() >= BEGUN || (steps.len() >= PERSISTENT && longest < 2.0 * usual && latest < usual)
}

/// The upper quarter.
fn upper(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * 3 / 4).copied().unwrap_or(0.0)
}

fn usual_lateness<'a>(cohort: impl Iterator<Item = &'a Member<'a>>) -> f64 {
    median(cohort.filter_map(Member::lateness).collect()).unwrap_or(0.0)
}

fn excess(member: &Member<'_>, on_time: f64) -> Option<f64> {
    member.lateness().map(|late| late - on_time)
}

/// How long its rate has been below `bound`.
fn low_since(member: &Member<'_>, bound: f64) -> f64 {
    let first = member.view.gemm_rates().take_while(|(_, rate)| rate.0 < bound).last();
    // A digest tells of the second before it.
    first.map_or(1.0, |(heard, _)| member.view.heard().since(heard).as_secs_f64() + 1.0)
}

fn finding(class: Class, mut suspects: Vec<Suspect<'_>>) -> Option<Finding> {
    suspects.sort_by_key(|suspect| suspect.member.rank);
    let worst = suspects.iter().max_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let ranks: Vec<Rank> = suspects.iter().map(|suspect| suspect.member.rank).collect();
    let Suspect { member, rate, usual, cohort, late, confidence, since_s, held } = worst;
    let who = match ranks.len() {
        1 => format!("rank {} ({})", member.rank, member.view.host()),
        _ => format!("{}: the worst, rank {} ({}),", phrase::ranks(&ranks), member.rank, member.view.host()),
    };
    let against = match cohort {
        1 => "it had before".to_owned(),
        n => format!("that {n} ranks with the same work have at the median"),
    };
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let waiting = if late.is_none() {
        "how late it comes to collectives is not known".to_owned()
    } else {
        let steps = member.view.pace().map(|pace| format!(", in steps of {:.1} ms", pace.milliseconds()));
        let (last, late_ms, steps) = (percent(member.last), member.late_ms, steps.unwrap_or_default());
        format!("it comes last to {last} of its collectives, {late_ms:.1} ms late at the mean{steps}")
    };
    let (evidence, advice) = match (class, held) {
        (Class::Clocks, Some(held)) => (
            format!(
                "{who} runs its GEMMs at {rate:.1} TFLOPS, {} below the {usual:.1} {against}, and {held}; {waiting}",
                percent(1.0 - rate / usual)
            ),
            "look at that GPU's cooling, power supply and clock limits (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER)",
        ),
        (Class::Compute, _) => (
            format!(
                "{who} runs its GEMMs at {rate:.1} TFLOPS, {} below the {usual:.1} {against}; {waiting}",
                percent(1.0 - rate / usual)
            ),
            "look at its GPU's clocks, power and temperature (nvidia-smi -q -d PERFORMANCE) and for other processes on it",
        ),
        _ => (
            format!(
                "{who} is what the others wait for: {waiting}, while its GEMMs run at {rate:.1} TFLOPS, as fast as the {usual:.1} {against}"
            ),
            "look at what its Python does between launches: data loader, garbage collection, logging, a busy CPU",
        ),
    };
    Some(Finding {
        kind: Kind::SlowRank,
        class,
        ranks,
        confidence: *confidence,
        since_s: *since_s,
        evidence,
        advice: advice.to_owned(),
        collective: None,
    })
}

fn cost(suspect: &Suspect<'_>) -> f64 {
    suspect.late.unwrap_or(0.0) + 1.0 - suspect.rate / suspect.usual
}
