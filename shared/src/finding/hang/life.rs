//! A communicator that is being made or ended, and to which not all come.

use std::time::Duration;

use super::{
    Class, Confidence, Finding, Kind, LONG_PATIENCE, Rank, Severity, counted, has_begun, phrase, whereabouts,
};
use crate::{
    frame::Life,
    job::{Job, RankView},
    ledger::Call,
};

/// Its making: until the first step is done, ranks may come late.
pub(super) fn making(job: &Job, deadline: Duration) -> Option<Finding> {
    let patience = if has_begun(job) { deadline } else { LONG_PATIENCE };
    waiting(job, Call::CommunicatorInit, patience)
}

pub(super) fn ending(job: &Job, deadline: Duration) -> Option<Finding> {
    waiting(job, Call::CommunicatorEnd, deadline)
}

fn waiting(job: &Job, call: Call, patience: Duration) -> Option<Finding> {
    let waited = |view: &RankView| {
        let inside = view.latest().filter(|_| view.life() == Life::Alive)?.inside.iter();
        inside
            .filter(|inside| inside.call == call)
            .map(|inside| inside.waited.seconds())
            .max_by(f64::total_cmp)
    };
    let since_s = job
        .ranks()
        .filter_map(|(_, view)| waited(view))
        .filter(|waited| *waited >= patience.as_secs_f64())
        .max_by(f64::total_cmp)?;
    let (inside, absent): (Vec<_>, Vec<_>) =
        job.ranks().filter(|(_, view)| view.is_alive()).partition(|(_, view)| waited(view).is_some());
    // Who works may come yet.
    let works =
        absent.iter().any(|(_, view)| view.idle_for() < patience.min(Duration::from_secs_f64(since_s)) / 2);
    if works && since_s < LONG_PATIENCE.as_secs_f64() {
        return None;
    }
    let makes = call == Call::CommunicatorInit;
    let finding = |ranks: Vec<Rank>, confidence, evidence, advice: &str| Finding {
        kind: Kind::Hang,
        class: if makes { Class::Init } else { Class::Finalize },
        ranks,
        confidence,
        since_s,
        evidence,
        advice: advice.to_owned(),
        collective: None,
        severity: Severity::Critical,
        cost: None,
    };
    let ranks = |of: &[(Rank, &RankView)]| of.iter().map(|&(rank, _)| rank).collect::<Vec<_>>();
    let (doing, done) = if makes { ("making", "made") } else { ("ending", "ended") };
    let waiting = format!("{} {done} a communicator for {since_s:.0} s", counted(inside.len()));
    let missing = ranks(&absent);
    let Some((first, view)) = absent.first() else {
        let unseen = job.world_size() as usize - inside.len().min(job.world_size() as usize);
        let evidence = match unseen {
            0 => format!("all ranks have been {doing} a communicator for {since_s:.0} s"),
            unseen => format!("{waiting}, and {} of the job were never seen", counted(unseen)),
        };
        let advice = "see that all ranks start and reach each other (NCCL_SOCKET_IFNAME, firewalls; NCCL_DEBUG=INFO tells more)";
        return Some(finding(ranks(&inside), Confidence::Likely, evidence, advice));
    };
    if absent.len() >= inside.len() {
        // Perhaps only some are to be in it: who is missing is not known.
        let evidence =
            format!("{}: {waiting}; who does not come is not known", phrase::ranks(&ranks(&inside)));
        return Some(finding(
            ranks(&inside),
            Confidence::Guess,
            evidence,
            "look at the stacks of the other ranks",
        ));
    }
    let evidence =
        format!("{} did not come: {waiting}; rank {first}: {}", phrase::ranks(&missing), whereabouts(view));
    Some(finding(missing, Confidence::Likely, evidence, "look at those ranks' stacks"))
}
