//! NCCL's RAS service as a second source: its statements about a job, compared with xpu-top's own records.
//!
//! RAS counts, per communicator and rank, the collectives that the rank has launched. So it can prove that a
//! rank has not launched a collective that the others have launched. It proves nothing about a collective
//! that all have launched. The differences between ranks are compared, not the counts, because RAS leaves out
//! some collectives that the records have.
//!
//! Pure: no clock, no network.

mod counts;
mod own;
mod state;

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use xpu_wire::{
    collective::Operation,
    frame::{RasCommunicator, RasReport},
    id::{CommunicatorId, Rank},
};

use crate::{figure, job::Job};
use own::Own;

/// Time without progress after which ranks launch nothing more, so both counts describe the same state.
const STALLED: Duration = Duration::from_secs(3);

/// Number of statements that are kept: a job may have thousands of communicators.
const STATEMENTS: usize = 64;

/// The statements of RAS, each with that of xpu-top.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Witness {
    pub verdict: Verdict,
    /// First the differences between RAS and xpu-top, then those between ranks.
    pub statements: Vec<Statement>,
    /// Number of further statements.
    pub more: usize,
}

/// The result of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// At least one statement differs.
    Differs,
    Agrees,
    /// The job makes progress, or xpu-top has no counts of these ranks.
    NotComparable,
    NoAnswer,
}

/// One statement of RAS, and that of xpu-top about the same matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    pub about: About,
    /// The communicator as xpu-top shows it; empty if the statement is about all.
    pub communicator: String,
    /// The program's name for it; empty if it has none.
    pub name: String,
    pub operation: Option<Operation>,
    /// The ranks of the job that it names.
    pub ranks: Vec<Rank>,
    pub ras: String,
    pub xpu_top: Option<String>,
    /// Whether xpu-top agrees; `None` if it has no data.
    pub agrees: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// Collectives that ranks have launched.
    Counts,
    /// Ranks about which RAS has no data.
    Missing,
    /// Errors of NCCL.
    Error,
    /// Communicators that some ranks destroy or abort.
    Ending,
    /// A communicator that only RAS or only xpu-top has.
    Unknown,
    /// Collectives that only RAS or only xpu-top counts, equally on all ranks.
    LeftOut,
    /// How complete the answer is.
    Answer,
}

impl Statement {
    fn of(about: About, ras: String) -> Self {
        let (communicator, name, ranks) = (String::new(), String::new(), Vec::new());
        Self { about, communicator, name, operation: None, ranks, ras, xpu_top: None, agrees: None }
    }

    /// `RAS: rank 3 ...; xpu-top: the same`
    pub fn sentence(&self) -> String {
        let own = self.xpu_top.as_ref().map_or_else(String::new, |own| format!("; xpu-top: {own}"));
        format!("RAS: {}{own}", self.ras)
    }

    fn order(&self) -> (u8, About) {
        let differs = match (self.agrees, self.about) {
            (Some(false), _) => 0,
            (_, About::LeftOut) => 2,
            _ => 1,
        };
        (differs, self.about)
    }
}

impl Witness {
    /// The last statements of RAS about the job; `None` if it was never asked.
    pub fn of(job: &Job) -> Option<Self> {
        job.ras().map(|report| Self::compare(report, job))
    }

    /// The result if RAS was not asked, or has not answered.
    pub fn unanswered(why: &str) -> Self {
        let statement = Statement::of(About::Answer, format!("no answer: {why}"));
        Self { verdict: Verdict::NoAnswer, statements: vec![statement], more: 0 }
    }

    fn compare(report: &RasReport, job: &Job) -> Self {
        if !report.is_answered() {
            return Self::unanswered(&report.why);
        }
        let (is_stuck, own) = (is_stuck(job), own::of(job, |_| true));
        let mut named: BTreeMap<CommunicatorId, usize> = BTreeMap::new();
        for one in &report.communicators {
            *named.entry(one.id).or_default() += 1;
        }
        // If two communicators have the same hash, they cannot be distinguished.
        let mine = |id: CommunicatorId| own.get(&id).filter(|_| named.get(&id) == Some(&1));
        let (mut statements, mut are_compared) = (Vec::new(), true);
        for one in &report.communicators {
            let (said, is_compared) = of_one(one, mine(one.id), job, is_stuck);
            statements.extend(said);
            // A single rank cannot be compared with another.
            are_compared &= is_compared || one.ranks.len() < 2;
        }
        let deviates = statements.iter().any(|one| one.about == About::Counts);
        if !deviates && let Some(same) = counts::alike(report, are_compared) {
            statements.push(same);
        }
        let unknown = own.values().filter(|own| !named.contains_key(&own.id));
        statements.extend(unknown.filter_map(own::unknown));
        statements.extend(answer(report, is_stuck));
        let verdict = if statements.iter().any(|one| one.agrees == Some(false)) {
            Verdict::Differs
        } else if statements.iter().any(|one| one.agrees == Some(true)) {
            Verdict::Agrees
        } else {
            Verdict::NotComparable
        };
        statements.sort_by_key(Statement::order);
        let more = statements.len().saturating_sub(STATEMENTS);
        statements.truncate(STATEMENTS);
        Self { verdict, statements, more }
    }

    /// The most important statement about one communicator; `None` if RAS has not answered, or does not name
    /// it.
    pub fn of_communicator(job: &Job, id: CommunicatorId) -> Option<Statement> {
        let report = job.ras().filter(|report| report.is_answered())?;
        let mut named = report.communicators.iter().filter(|one| one.id == id);
        let (one, is_only) = (named.next()?, named.next().is_none());
        let own = own::of(job, |of| of == id).remove(&id).filter(|_| is_only);
        let (statements, is_compared) = of_one(one, own.as_ref(), job, is_stuck(job));
        let alone = RasReport { communicators: vec![one.clone()], ..RasReport::default() };
        statements.into_iter().min_by_key(Statement::order).or_else(|| counts::alike(&alone, is_compared))
    }
}

/// Whether no living rank makes progress.
fn is_stuck(job: &Job) -> bool {
    let living = || job.ranks().filter(|(_, view)| view.is_alive());
    living().next().is_some() && living().all(|(_, view)| view.stalled_for() >= STALLED)
}

/// The statements about one communicator. Also returns whether xpu-top's own counts were compared.
fn of_one(one: &RasCommunicator, mine: Option<&Own>, job: &Job, is_stuck: bool) -> (Vec<Statement>, bool) {
    let (mut statements, is_compared) = counts::statements(one, mine, is_stuck);
    statements.extend(state::statements(one, mine, job));
    for statement in &mut statements {
        statement.communicator = one.id.to_string();
        statement.name = mine.map(|own| own.name.clone()).unwrap_or_default();
    }
    (statements, is_compared)
}

/// Statements about what limits the answer as a whole.
fn answer(report: &RasReport, is_stuck: bool) -> Vec<Statement> {
    let mut statements = Vec::new();
    if report.timeouts > 0 {
        let times = figure::counted(report.timeouts as usize, "time", "times");
        statements.push(Statement::of(About::Answer, format!("it timed out {times} waiting for data")));
    }
    if report.communicators.is_empty() {
        statements.push(Statement::of(About::Answer, "it knows no communicator".to_owned()));
    }
    if !is_stuck {
        let why = "the job makes progress, so these counts were taken at different times and may differ by collectives in progress";
        statements.push(Statement::of(About::Answer, why.to_owned()));
    }
    statements
}

#[cfg(test)]
mod tests;
