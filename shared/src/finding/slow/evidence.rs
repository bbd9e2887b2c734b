//! What is said of slow ranks.

use super::{Class, Finding, Kind, Member, Rank, Severity, Suspect, cost, phrase};
use crate::finding::Cost;
use crate::unit::Nanoseconds;

pub(super) fn finding(
    class: Class,
    mut suspects: Vec<Suspect<'_>>,
    cohorts: &[Vec<Member<'_>>],
) -> Option<Finding> {
    suspects.sort_by_key(|suspect| suspect.member.rank);
    let worst = suspects.iter().max_by(|a, b| weight(a).total_cmp(&weight(b)))?;
    let ranks: Vec<Rank> = suspects.iter().map(|suspect| suspect.member.rank).collect();
    let Suspect { member, rate, usual, cohort, late, confidence, since_s, held } = worst;
    let who = match ranks.len() {
        1 => format!("rank {} ({})", member.rank, member.view.host()),
        _ => format!("{}: the worst, rank {} ({}),", phrase::ranks(&ranks), member.rank, member.view.host()),
    };
    let against = match *cohort {
        1 => "it had before".to_owned(),
        n => format!("that {} ranks with the same work have at the median", phrase::count(n)),
    };
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let (cost, since_s) = cost::of(&ranks, *since_s, cohorts);
    let waiting = match late {
        None => format!("how late it comes to collectives is not known{}", held_over(member)),
        Some(late) => waiting(member, *late, cost.as_ref()),
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
                "{who} is what the others wait for: {waiting}, while its GEMMs run at {rate:.1} TFLOPS, {} the {usual:.1} {against}",
                compared(rate / usual)
            ),
            "look at what its Python does between launches: data loader, garbage collection, logging, a busy CPU",
        ),
    };
    Some(Finding {
        kind: Kind::SlowRank,
        class,
        ranks,
        confidence: *confidence,
        since_s,
        evidence,
        advice: advice.to_owned(),
        collective: None,
        severity: Severity::Slow,
        cost,
    })
}

fn weight(suspect: &Suspect<'_>) -> f64 {
    suspect.late.unwrap_or(0.0) + 1.0 - suspect.rate / suspect.usual
}

/// How it comes to its collectives, and what that costs; where that is not known, what it adds up to.
pub(super) fn waiting(member: &Member<'_>, late: f64, cost: Option<&Cost>) -> String {
    let last = 100.0 * member.last;
    let late = late.max(0.0);
    if let Some(Cost { pct, ms_per_step, .. }) = cost {
        let costs = ms_per_step.map_or_else(
            || format!("{pct:.1} % of the time"),
            |ms| format!("{ms:.1} ms of a step of {:.1} ms", 100.0 * ms / pct),
        );
        return format!(
            "it comes last to {last:.0} % of its collectives, which costs {costs}{}",
            held_over(member)
        );
    }
    let cost = member.view.pace().map_or_else(
        || format!("{:.0} % of the time", 100.0 * late),
        |pace| {
            let pace = pace.milliseconds();
            format!("{:.1} ms in a step of {pace:.1} ms", late * pace)
        },
    );
    // Of all of them: what it is late to a single one is another figure.
    format!("it comes last to {last:.0} % of its collectives, which adds up to {cost}{}", held_over(member))
}

/// Two rates that are alike, or nearly.
fn compared(ratio: f64) -> &'static str {
    match ratio {
        1.03.. => "faster than",
        0.97.. => "as fast as",
        _ => "a little less than",
    }
}

/// Seconds after which what is known of a rank that stands is said to be old.
const OLD: f64 = 5.0;

/// A job that stands tells nothing new of who was slow: that it is not seen any more is no health.
fn held_over(member: &Member<'_>) -> String {
    let quiet = member.view.active_at().map(|at| member.view.heard().since(at).as_secs_f64());
    let old =
        quiet.filter(|&quiet| quiet > OLD.max(3.0 * member.view.pace().map_or(0.0, Nanoseconds::seconds)));
    old.map_or_else(String::new, |quiet| {
        format!(" (as of {quiet:.0} s ago: since then it has not got on, and nothing new is known)")
    })
}
