//! What is wrong with a job, in a sentence with its evidence. Pure functions over a [`Job`].

use serde::{Deserialize, Serialize};

use crate::{frame::Life, id::Rank, job::Job, unit::Moment};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: Kind,
    pub class: Class,
    pub ranks: Vec<Rank>,
    pub confidence: Confidence,
    /// How long it has been so, in seconds.
    pub since_s: f64,
    /// One sentence with its figures.
    pub evidence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rank's process ended without saying so.
    Exited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The process is gone.
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    Guess,
    Likely,
    Certain,
}

/// All that is wrong with `job` at `now`, worst first.
pub fn examine(job: &Job, now: Moment) -> Vec<Finding> {
    dead_ranks(job, now).into_iter().collect()
}

fn dead_ranks(job: &Job, now: Moment) -> Option<Finding> {
    let dead: Vec<_> = job.ranks().filter(|(_, view)| view.life() == Life::Died).collect();
    let (first, view) = dead.iter().min_by_key(|(_, view)| view.heard())?;
    let since = now.since(view.heard()).as_secs_f64();
    let evidence = format!(
        "rank {first} ({host}, pid {pid}) ended without an orderly exit {since:.0} s ago, at step {step}; \
         look for a signal, the OOM killer or a traceback in its log",
        host = view.host(),
        pid = view.pid(),
        step = view.step().map_or_else(|| "unknown".to_owned(), |step| step.to_string()),
    );
    let ranks = dead.iter().map(|&(rank, _)| rank).collect();
    Some(Finding {
        kind: Kind::Exited,
        class: Class::Dead,
        ranks,
        confidence: Confidence::Certain,
        since_s: since,
        evidence,
    })
}
