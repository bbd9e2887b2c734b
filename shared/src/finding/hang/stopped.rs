//! Processes that live and run no more: stopped by a signal or a debugger, or waiting for a disk.

use std::time::Duration;

use super::{Class, Confidence, Finding, Kind, Moment, Rank, Severity, Still, phrase};
use crate::{frame::Life, job::Job};

pub(super) fn ranks(job: &Job, still: &[Still<'_>], deadline: Duration, now: Moment) -> Option<Finding> {
    let silent: Vec<_> = job.ranks().filter(|(_, view)| view.life() == Life::Silent).collect();
    let (first, view) = *silent.first()?;
    let living = job.ranks().any(|(_, view)| view.life() == Life::Alive);
    let stopped = |rank: Rank| still.iter().find(|still| still.places.iter().any(|place| place.rank == rank));
    // While the others go on, a rank that says nothing may only be hard of hearing.
    let stands = silent.iter().find_map(|&(rank, _)| stopped(rank));
    let since = match stands {
        Some(still) => still.stands_for,
        None if !living => {
            Some(now.since(job.common(view.host(), view.heard()))).filter(|silence| *silence >= deadline)?
        }
        None => return None,
    };
    let ranks: Vec<Rank> = silent.iter().map(|&(rank, _)| rank).collect();
    let collective = stands.map(|still| still.collective(still.least(), still.waiting()));
    let step = view.step().map_or_else(String::new, |step| format!(" since step {step}"));
    let evidence = format!(
        "{} no longer run{}, and the process is there: rank {first} ({}, pid {}) has said nothing{step}, and the job has stood for {:.0} s",
        phrase::ranks(&ranks),
        if ranks.len() == 1 { "s" } else { "" },
        view.host(),
        view.pid(),
        since.as_secs_f64(),
    );
    Some(Finding {
        kind: Kind::Hang,
        class: Class::Stopped,
        ranks,
        confidence: Confidence::Certain,
        since_s: since.as_secs_f64(),
        evidence,
        advice: format!(
            "look at its state in /proc/{}/status: T is a signal (kill -CONT) or a debugger, D waits for a disk or network",
            view.pid()
        ),
        collective,
        severity: Severity::Critical,
        cost: None,
    })
}
