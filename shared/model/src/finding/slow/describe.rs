//! The findings of slow ranks.

use xpu_wire::unit::Nanoseconds;

use super::super::evidence::slow::{Arrival, LateHost, Loss, Named, Rates, SlowGemms, Waiting};
use super::{Class, Evidence, Finding, Growth, Member, Rank, Suspect, cost, slow_ranks};
use crate::finding::Cost;

pub(super) fn finding(
    class: Class,
    mut suspects: Vec<Suspect<'_>>,
    beside: &[Rank],
    cohorts: &[Vec<Member<'_>>],
    growth: Option<&Growth>,
) -> Option<Finding> {
    suspects.sort_by_key(|suspect| suspect.member.rank);
    let worst = suspects.iter().max_by(|a, b| weight(a).total_cmp(&weight(b)))?;
    let ranks: Vec<Rank> = suspects.iter().map(|suspect| suspect.member.rank).collect();
    let Suspect { member, rate, usual, cohort, late, confidence, since_s, clocks, .. } = worst;
    let (cost, since_s) = cost::of(&ranks, beside, *since_s, cohorts, growth);
    let who = named(&ranks, member);
    let rates =
        Rates { tflops: *rate, usual_tflops: *usual, ranks: Some(*cohort).filter(|&ranks| ranks > 1) };
    let arrival = arrival(member, *late, cost.as_ref());
    let (evidence, advice) = match class {
        Class::Clocks | Class::Compute => {
            (Evidence::SlowGemms(SlowGemms { who, rates, clocks: clocks.clone(), arrival }), clocks.advice())
        }
        _ => (
            Evidence::LateHost(LateHost { who, rates, arrival }),
            "look at what its Python does between launches: data loader, garbage collection, logging, a busy CPU",
        ),
    };
    Some(slow_ranks(class, ranks, *confidence, (cost, since_s), evidence, advice))
}

pub(super) fn named(ranks: &[Rank], worst: &Member<'_>) -> Named {
    Named { ranks: ranks.to_vec(), worst: worst.rank, host: worst.view.host().clone() }
}

fn weight(suspect: &Suspect<'_>) -> f64 {
    suspect.late.unwrap_or(0.0) + 1.0 - suspect.rate / suspect.usual
}

/// Its arrival at its collectives, with its cost. If the cost is unknown, its arrival skew summed over all
/// collectives, which differs from the arrival skew at a single one.
pub(super) fn arrival(member: &Member<'_>, late: Option<f64>, cost: Option<&Cost>) -> Arrival {
    let loss = |late: f64| {
        if let Some(&Cost { pct, ms_per_step, .. }) = cost {
            return Loss { pct, ms_of_step: ms_per_step.map(|ms| (ms, 100.0 * ms / pct)) };
        }
        let late = late.max(0.0);
        let pace = member.view.pace().map(Nanoseconds::milliseconds);
        Loss { pct: 100.0 * late, ms_of_step: pace.map(|pace| (late * pace, pace)) }
    };
    let waiting = |late| Waiting {
        last_pct: 100.0 * member.last,
        loss: loss(late),
        is_cost: cost.is_some(),
        behind: cost.and_then(|cost| cost.behind),
    };
    Arrival { waiting: late.map(waiting), as_of_s: as_of(member) }
}

/// Seconds after which a hung rank's figures are marked as old.
const OLD: f64 = 5.0;

/// Seconds since its figures were current, if the job hangs: it reports nothing new, which does not mean that
/// its ranks are healthy.
fn as_of(member: &Member<'_>) -> Option<f64> {
    let quiet = member.view.active_at().map(|at| member.view.last_report().since(at).as_secs_f64());
    quiet.filter(|&quiet| quiet > OLD.max(3.0 * member.view.pace().map_or(0.0, Nanoseconds::seconds)))
}
