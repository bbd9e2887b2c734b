//! Processes that are alive but do not run: stopped by a signal or a debugger, or waiting for a disk.

use std::time::Duration;

use xpu_wire::frame::Life;

use super::super::evidence::hang::Stopped;
use super::{Class, Confidence, Evidence, Finding, Kind, Moment, Rank, Severity, StalledCommunicator};
use crate::job::Job;

pub(super) fn ranks(
    job: &Job,
    stalled: &[StalledCommunicator<'_>],
    deadline: Duration,
    now: Moment,
) -> Option<Finding> {
    let silent: Vec<_> = job.ranks().filter(|(_, view)| view.life() == Life::Silent).collect();
    let (first, view) = *silent.first()?;
    let living = job.ranks().any(|(_, view)| view.life() == Life::Alive);
    let stopped =
        |rank: Rank| stalled.iter().find(|stalled| stalled.places.iter().any(|place| place.rank == rank));
    // While the others run, a silent rank may only have lost its connection.
    let stuck = silent.iter().find_map(|&(rank, _)| stopped(rank));
    let since = match stuck {
        Some(stalled) => stalled.stalled_for,
        None if !living => Some(now.since(job.common(view.host(), view.last_report())))
            .filter(|silence| *silence >= deadline)?,
        None => return None,
    };
    let ranks: Vec<Rank> = silent.iter().map(|&(rank, _)| rank).collect();
    let collective = stuck.map(|stalled| stalled.collective(stalled.least(), stalled.waiting()));
    Some(Finding {
        kind: Kind::Hang,
        class: Class::Stopped,
        ranks: ranks.clone(),
        confidence: Confidence::Certain,
        since_s: since.as_secs_f64(),
        evidence: Evidence::Stopped(Stopped {
            ranks,
            first,
            host: view.host().clone(),
            pid: view.pid(),
            step: view.step(),
            hung_s: since.as_secs_f64(),
        }),
        advice: format!(
            "look at its state in /proc/{}/status: T is a signal (kill -CONT) or a debugger, D waits for a disk or network",
            view.pid()
        ),
        collective,
        severity: Severity::Critical,
        cost: None,
    })
}
