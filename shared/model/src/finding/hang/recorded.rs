//! Ranks with diverging calls, by the record of each rank's last calls.

use super::{
    super::{Evidence, evidence::hang::Diverged},
    Class, CollectiveCall, Confidence, Doing, Finding, StalledCommunicator, finding,
};
use crate::{
    divergence::{By, Divergence, DivergenceKind},
    job::Job,
};

/// The first divergence, if the job hangs because of it. A rank that merely has not arrived yet is reported
/// by its progress instead.
pub(super) fn divergence(job: &Job, stalled: &[StalledCommunicator<'_>]) -> Option<Finding> {
    // If a rank has made more calls since its record was read, the record is out of date.
    let fresh = |stalled: &&StalledCommunicator<'_>| {
        stalled.places.iter().all(|place| job.has_fresh_record(place.rank))
    };
    let divergence =
        job.divergence().filter(|found| !found.passed && found.kind != DivergenceKind::NotEntered)?;
    let of = stalled.iter().find(|stalled| stalled.id == divergence.id).filter(fresh)?;
    let Divergence { kind, ranks, by, sentence, name, number, ends, .. } = divergence;
    let lacks = ends.iter().find(|(_, call)| call.is_none());
    let lacks = lacks.and_then(|&(rank, _)| Some((rank, Doing::closely(job, rank, job.rank(rank)?))));
    let evidence = Evidence::Diverged(Diverged {
        sentence: sentence.clone(),
        number: *number,
        hung_s: of.stalled_for.as_secs_f64(),
        lacks,
    });
    let (class, advice) = match kind {
        DivergenceKind::Order => (
            Class::Deadlock,
            "look at both calls: that rank left one of them out, or calls the two communicators in another order (NCCL_LAUNCH_ORDER_IMPLICIT=1 orders them from NCCL 2.26 on)",
        ),
        DivergenceKind::Unmatched => (Class::Unmatched, "look at both calls, and at the calls before them"),
        // A rank that merely has not arrived yet is filtered out above.
        DivergenceKind::Extra
        | DivergenceKind::LeftOut
        | DivergenceKind::Operation
        | DivergenceKind::Size
        | DivergenceKind::Type
        | DivergenceKind::Reduction
        | DivergenceKind::Root
        | DivergenceKind::NotEntered => (
            Class::Mismatch,
            "look at the code path that only that rank takes, and at its calls before this one",
        ),
    };
    let confidence = match by {
        By::Majority => Confidence::Certain,
        // The rank may have called from another site only because the other rank did not reach that site.
        By::Novelty if is_replaced(divergence) => Confidence::Guess,
        By::Novelty => Confidence::Likely,
        By::Nothing => Confidence::Guess,
    };
    let collective = number.map(|number| CollectiveCall {
        communicator: divergence.communicator.clone(),
        name: name.clone(),
        number,
        operation: None,
        bytes: None,
    });
    Some(finding(class, ranks.clone(), confidence, of, evidence, advice, collective))
}

/// Whether it is a call from another site, instead of the others' call.
fn is_replaced(divergence: &Divergence) -> bool {
    let follows = matches!(
        divergence.kind,
        DivergenceKind::Extra | DivergenceKind::LeftOut | DivergenceKind::Order | DivergenceKind::Unmatched
    );
    let mut sites = divergence.calls.iter().map(|call| &call.site);
    let first = sites.next();
    !follows && sites.any(|site| Some(site) != first)
}
