//! Selects ranks by an expression that people write: `rank<64 & tflops<0.9*median & host~gpu1`.
//!
//! The language is the same on the screen (`/`) and on the command line (`--filter`). A condition on an
//! unknown figure is neither true nor false. A rank with such a condition is hidden, and counted.
#![forbid(unsafe_code)]

mod completion;
mod expression;
mod field;
mod glob;
mod reader;

use std::{fmt, str::FromStr};

use unicode_width::UnicodeWidthStr as _;
use xpu_model::status::{RankState, RankStatus};
use xpu_wire::id::JobName;

pub use completion::complete;
use expression::Expression;
pub use expression::{Judge, Statistic};
pub use field::{FIELDS, Field, STATES};

/// Longest filter in bytes. Nobody types a longer one.
pub const LONGEST: usize = 512;

/// The parsed filter, and its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    text: String,
    expression: Expression,
}

/// A rank to filter.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub status: &'a RankStatus,
    /// The state as the screen shows it: a rank without reports is at least silent.
    pub state: RankState,
    pub job: &'a JobName,
}

impl<'a> Subject<'a> {
    pub fn of(status: &'a RankStatus, job: &'a JobName) -> Self {
        Self { status, state: status.state, job }
    }
}

impl Filter {
    pub fn read(text: &str) -> Result<Self, Fault> {
        Ok(Self { text: text.trim().to_owned(), expression: reader::read(text)? })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the filter is only a part of a host's name. A half-typed field name also looks like one.
    pub fn is_word(&self) -> bool {
        matches!(self.expression, Expression::Word { .. }) && !self.text.contains(['=', '~', ':'])
    }

    /// The note about ranks that are left out because a figure is unknown.
    pub fn unsure(&self, unknown: usize) -> String {
        let (ranks, out) = if unknown == 1 { ("rank lacks", "is") } else { ("ranks lack", "are") };
        format!("{unknown} {ranks} a figure for `{self}` and {out} left out")
    }

    /// The filter, with the figures of the job's ranks that `0.9*median` and the like need.
    pub fn judge<'s>(&self, ranks: impl Iterator<Item = Subject<'s>> + Clone) -> Judge<'_> {
        Judge::new(&self.expression, ranks)
    }

    /// The selected ranks of a status, and the number of ranks that lack a figure.
    pub fn among<'s>(&self, ranks: &'s [RankStatus], job: &JobName) -> (Vec<&'s RankStatus>, usize) {
        let ended = ranks.iter().all(|rank| rank.state == RankState::Exited);
        let counts = |rank: &&RankStatus| ended || rank.state != RankState::Exited;
        let judge = self.judge(ranks.iter().filter(counts).map(|rank| Subject::of(rank, job)));
        let verdicts: Vec<_> = ranks.iter().map(|rank| judge.verdict(Subject::of(rank, job))).collect();
        let unknown = verdicts.iter().filter(|verdict| verdict.is_none()).count();
        let shown = ranks.iter().zip(verdicts).filter(|(_, verdict)| *verdict == Some(true));
        (shown.map(|(rank, _)| rank).collect(), unknown)
    }
}

impl FromStr for Filter {
    type Err = String;

    /// Parses a filter of the command line. The error has a caret under the wrong part.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|fault| fault.pointed(text))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The position of the error, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The position in bytes.
    pub at: usize,
    pub what: String,
}

impl Fault {
    /// The number of a terminal's columns before the error.
    pub fn column(&self, text: &str) -> usize {
        text.get(..self.at).unwrap_or(text).width()
    }

    fn pointed(&self, text: &str) -> String {
        // Typed control characters must not move the cursor.
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{}\n  {text}\n  {}^", self.what, " ".repeat(self.column(&text)))
    }
}

#[cfg(test)]
mod tests;
