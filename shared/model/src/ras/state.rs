//! Ranks that are missing in RAS, NCCL's errors, and communicators that some ranks destroy.

use xpu_wire::{
    frame::{RasCommunicator, RasMissing, RasRank},
    id::Rank,
};

use super::{
    About, Statement,
    own::{Own, which, who},
};
use crate::job::Job;

/// `ncclInProgress`: no error.
const IN_PROGRESS: i32 = 7;

pub(super) fn statements(one: &RasCommunicator, own: Option<&Own>, job: &Job) -> Vec<Statement> {
    let on = which(one.id, own);
    let state = |about: About, members: Vec<u32>, said: String| {
        (!members.is_empty()).then(|| Statement {
            ranks: own.map(|own| own.ranks(&members)).unwrap_or_default(),
            ..Statement::of(about, format!("{} {said} {on}", who(own, &members)))
        })
    };
    let those = |is: &dyn Fn(&RasRank) -> bool| -> Vec<u32> {
        one.ranks.iter().filter(|rank| is(rank)).map(|rank| rank.member).collect()
    };
    let mut all = missing(one, own, job);
    let mut errors: Vec<i32> =
        one.ranks.iter().flat_map(|rank| [rank.init_state, rank.async_error]).collect();
    errors.sort_unstable();
    errors.dedup();
    for error in errors.into_iter().filter(|&error| error != 0 && error != IN_PROGRESS) {
        let members = those(&|rank| rank.init_state == error || rank.async_error == error);
        all.extend(state(About::Error, members, format!("reported {} on", name(error))));
    }
    all.extend(state(
        About::Ending,
        those(&|rank| rank.init_state == IN_PROGRESS),
        "did not finish creating".to_owned(),
    ));
    let ended = |rank: &RasRank| rank.finalized || rank.destroyed;
    for (is, said) in [
        (&(|rank: &RasRank| rank.aborted) as &dyn Fn(&RasRank) -> bool, "aborted"),
        (&|rank: &RasRank| ended(rank) && !rank.aborted, "finalized or destroyed"),
    ] {
        let members = those(is);
        // If all ranks are in the same state, the communicator ends normally.
        if members.len() < one.ranks.len() || said == "aborted" {
            all.extend(state(About::Ending, members, said.to_owned()));
        }
    }
    all
}

fn missing(one: &RasCommunicator, own: Option<&Own>, job: &Job) -> Vec<Statement> {
    let mut all = Vec::new();
    for (is, said) in [
        (&(|rank: &RasMissing| rank.considered_dead) as &dyn Fn(&RasMissing) -> bool, "considered dead"),
        (&|rank: &RasMissing| rank.unresponsive && !rank.considered_dead, "its process does not answer"),
        (
            &|rank: &RasMissing| !rank.unresponsive && !rank.considered_dead,
            "its process does not know the communicator",
        ),
    ] {
        for rank in one.missing.iter().filter(|rank| is(rank)) {
            let ranks = own.map(|own| own.ranks(&[rank.member])).unwrap_or_default();
            let dead = ranks.first().and_then(|&rank| lives(job, rank)).map(|lives| !lives);
            let ras = format!("no data of {} on {}: {said}", who(own, &[rank.member]), which(one.id, own));
            let xpu_top = dead.map(|dead| if dead { "it has ended" } else { "its process lives" });
            all.push(Statement {
                ranks,
                xpu_top: xpu_top.map(str::to_owned),
                // A living process that does not answer may be stopped. It contradicts only the statement
                // that it is dead.
                agrees: dead.and_then(|dead| (dead || rank.considered_dead).then_some(dead)),
                ..Statement::of(About::Missing, ras)
            });
        }
    }
    all
}

fn lives(job: &Job, rank: Rank) -> Option<bool> {
    job.rank(rank).map(|view| view.is_alive() && view.exit().is_none())
}

/// `ncclResult_t`
fn name(error: i32) -> String {
    match error {
        1 => "ncclUnhandledCudaError".to_owned(),
        2 => "ncclSystemError".to_owned(),
        3 => "ncclInternalError".to_owned(),
        4 => "ncclInvalidArgument".to_owned(),
        5 => "ncclInvalidUsage".to_owned(),
        6 => "ncclRemoteError".to_owned(),
        other => format!("ncclResult_t {other}"),
    }
}
