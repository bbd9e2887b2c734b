//! Ranks for which the others wait, and whether the cause is their GPU or their host.

mod cause;
mod compute;
mod cost;
mod describe;
mod late;
pub(super) mod work;

use compute::{by_compute, by_own_past};
pub(super) use cost::REPORTED;
use describe::finding;
use late::by_arrival;
use xpu_wire::id::Rank;

use super::{
    Class, Clocks, Confidence, Cost, Evidence, Finding, Kind, Severity,
    cohort::{MANY, Member, PERSISTENT},
    device,
    pace::Growth,
};
use crate::job::median;

/// Smallest number of ranks with the same work that gives a reference: if one rank of three is slow, the
/// median of the others comes from only two.
const COHORT: usize = MANY;

/// Share of its cohort's rate below which a GPU is slow, even if the others are almost equal: three times the
/// difference between equal GPUs ([`cause::APART`]).
pub(super) const SLOW: f64 = 0.9;

/// Share of its own past rate above which a rank has not changed: halfway to being slow.
pub(super) const STEADY: f64 = 1.0 - (1.0 - SLOW) / 2.0;

/// Smallest arrival skew of a rank with a slow GPU that is reported: the share that is reported without a
/// cause.
const LATE_BY_COMPUTE: f64 = cost::REPORTED;

/// Seconds after which a slow GPU is reported although others may follow: the time of [`PERSISTENT`] digests
/// of each rank, which arrive at different times, and of one lost digest. Tuned.
const FOLLOWED: f64 = 8.0;

/// A late rank may pass on the delay of a rank with a slow GPU, unless it is later by more than half as much again:
/// that part of its arrival skew, [`cost::PASSED_ON`] of the other's, is its own.
const BEYOND: f64 = 1.0 + cost::PASSED_ON;

/// The slow ranks. `explained`: their cost has another reason, which is reported. `growth`: the permanent
/// increase of step times, which one of them may cause.
pub(super) fn ranks(cohorts: &[Vec<Member<'_>>], explained: bool, growth: Option<&Growth>) -> Vec<Finding> {
    let mut slow: Vec<_> = cohorts.iter().flat_map(|cohort| by_compute(cohort)).collect();
    let mut fell: Vec<_> = by_own_past(cohorts, &slow);
    // A single rank that became slower costs nothing if steps are no longer than before and no rank waits for
    // it: its GPU may be shared, or mostly idle.
    if let [one] = &fell[..]
        && (cost::delays_no_rank(one.member.rank, one.since_s, cohorts)
            || growth.is_none() && !cost::is_awaited(one.member.rank, cohorts))
    {
        fell.clear();
    }
    slow.extend(fell);
    slow.retain(|suspect| {
        let (member, rate) = (suspect.member, suspect.rate / suspect.usual);
        cause::may_account(member, rate, growth) && cost::may_be_of_gpu(member, rate, cohorts)
    });
    let awaited = more_follow(cohorts, &slow);
    if awaited {
        slow.clear();
    }
    let busy = work::busier(cohorts);
    let worst = slow.iter().map(|suspect| suspect.late.unwrap_or(0.0)).fold(0.0, f64::max);
    let mut late: Vec<_> = cohorts.iter().flat_map(|cohort| by_arrival(cohort)).collect();
    let others = slow.iter().map(|slow| slow.member.rank).chain(busy.iter().map(|busy| busy.member.rank));
    let others: Vec<Rank> = others.collect();
    late.retain(|suspect| !others.contains(&suspect.member.rank));
    // A rank that waits for the slow one in one communicator is late in the next, so only the latest is the
    // cause. A rank whose own host is late does not wait.
    let latest = late.iter().filter_map(|suspect| suspect.late).fold(BEYOND * worst, f64::max);
    late.retain(|suspect| {
        suspect.waits_less
            || suspect.late.is_some_and(|late| late > cost::PASSED_ON * latest && late > BEYOND * worst)
    });
    let all = cohorts.iter().flatten().map(|member| member.view);
    let usual = if slow.is_empty() { None } else { device::usual_clock(all) };
    for suspect in &mut slow {
        suspect.clocks = Clocks::of(suspect.member.view, usual).or_no_cause_at(suspect.rate / suspect.usual);
    }
    let named: Vec<Rank> = others.into_iter().chain(late.iter().map(|late| late.member.rank)).collect();
    let (clocks, compute) = slow.into_iter().partition(|suspect| matches!(suspect.clocks, Clocks::Held(_)));
    let by_rule = [(Class::Clocks, clocks), (Class::Compute, compute)]
        .into_iter()
        .filter_map(|(class, suspects)| finding(class, suspects, &named, cohorts, growth))
        .chain(work::finding(cohorts, &busy, &named, growth));
    let mut findings: Vec<_> = by_rule.collect();
    if findings.is_empty() && !explained {
        // Longer steps are reported without waiting for further ranks. So is an older delay: on a GPU with short GEMMs,
        // rates may vary so much that some rank always seems to become slower.
        let is_due = |found: &Finding| !awaited || growth.is_some() || found.since_s >= FOLLOWED;
        let is_late = |rank: &Rank| late.iter().any(|suspect| suspect.member.rank == *rank);
        // A rule by arrival is more specific about a rank whose GPU is as fast as those of many others with
        // the same work.
        let found = cost::finding(cohorts, growth)
            .filter(is_due)
            .filter(|found| found.class != Class::Step || !found.ranks.iter().all(is_late));
        if let Some(found) = found {
            return vec![found];
        }
    }
    findings.extend(finding(Class::Host, late, &named, cohorts, growth));
    findings
}

/// The finding of slow ranks. Its cost, and its duration in seconds, are those of [`cost::of`].
fn slow_ranks(
    class: Class,
    ranks: Vec<Rank>,
    confidence: Confidence,
    (cost, since_s): (Option<Cost>, f64),
    evidence: Evidence,
    advice: &str,
) -> Finding {
    Finding {
        kind: Kind::SlowRank,
        class,
        ranks,
        confidence,
        since_s,
        evidence,
        advice: advice.to_owned(),
        collective: None,
        severity: Severity::Slow,
        cost,
    }
}

/// A rank that may be slow.
struct Suspect<'a> {
    member: &'a Member<'a>,
    /// Its rate, and the expected one.
    rate: f64,
    usual: f64,
    cohort: usize,
    /// Share of the time by which it is later than its cohort; `None` while unknown.
    late: Option<f64>,
    confidence: Confidence,
    since_s: f64,
    /// The state of its clocks.
    clocks: Clocks,
    /// Whether its threads are known to wait for the GPU less than the others' threads, by most of its
    /// arrival skew.
    waits_less: bool,
}

/// Whether others are just becoming slow too. Slow ranks are reported together, but at the latest after some
/// seconds.
fn more_follow(cohorts: &[Vec<Member<'_>>], slow: &[Suspect<'_>]) -> bool {
    let is_undecided = |member: &&Member<'_>| {
        if slow.iter().any(|suspect| suspect.member.rank == member.rank) {
            return false;
        }
        let low = |past: f64| member.rates.iter().take_while(|rate| **rate < SLOW * past).count();
        member.past.is_some_and(|past| (1..PERSISTENT).contains(&low(past)))
    };
    let undecided = cohorts.iter().flatten().filter(is_undecided).count();
    let longest = slow.iter().map(|suspect| suspect.since_s).fold(0.0, f64::max);
    undecided > 0 && undecided + slow.len() > 2 && longest < FOLLOWED
}

fn usual_skew<'a>(cohort: impl Iterator<Item = &'a Member<'a>>) -> f64 {
    median(cohort.filter_map(|member| member.arrival_skew()).collect()).unwrap_or(0.0)
}

fn excess(member: &Member<'_>, on_time: f64) -> Option<f64> {
    member.arrival_skew().map(|late| late - on_time)
}
