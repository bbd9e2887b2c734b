//! What is said of slow ranks.

use super::{Class, Finding, Kind, Member, Rank, Suspect, phrase};

pub(super) fn finding(class: Class, mut suspects: Vec<Suspect<'_>>) -> Option<Finding> {
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
    let waiting = match late {
        None => "how late it comes to collectives is not known".to_owned(),
        Some(_) => waiting(member),
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

/// How it comes to its collectives.
pub(super) fn waiting(member: &Member<'_>) -> String {
    let steps = member.view.pace().map(|pace| format!(", in steps of {:.1} ms", pace.milliseconds()));
    let (last, late_ms, steps) = (100.0 * member.last, member.late_ms, steps.unwrap_or_default());
    format!("it comes last to {last:.0} % of its collectives, {late_ms:.1} ms late at the mean{steps}")
}
