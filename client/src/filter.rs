//! Which ranks are meant, as people write it: `rank<64 & tflops<0.9*median & host~gpu1`.
//!
//! The same words on the screen (`/`) and on the command line (`--filter`). What is not known is neither so nor not so:
//! such a rank is not shown, and counted.
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

/// Longest filter in bytes. A longer one was not typed.
pub const LONGEST: usize = 512;

/// Understood, and as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    text: String,
    expression: Expression,
}

/// A rank that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub status: &'a RankStatus,
    /// As it is shown: a rank that is not heard is at least silent.
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

    /// A part of a host's name and nothing else, as it also is while the name of a field is being typed.
    pub fn is_word(&self) -> bool {
        matches!(self.expression, Expression::Word { .. }) && !self.text.contains(['=', '~', ':'])
    }

    /// The note about ranks that are left out because a figure is unknown.
    pub fn unsure(&self, unknown: usize) -> String {
        let (ranks, out) = if unknown == 1 { ("rank has", "is") } else { ("ranks have", "are") };
        format!("{unknown} {ranks} no figure that `{self}` needs, and {out} left out")
    }

    /// What decides, once the job's ranks are known that `0.9*median` and its like are of.
    pub fn judge<'s>(&self, ranks: impl Iterator<Item = Subject<'s>> + Clone) -> Judge<'_> {
        Judge::new(&self.expression, ranks)
    }

    /// The ranks of a status that are meant, and how many of the others have no figure.
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

    /// For the command line: the error has a caret under what is wrong.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|fault| fault.pointed(text))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Where it is not understood, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Byte of the text.
    pub at: usize,
    pub what: String,
}

impl Fault {
    /// Columns of a terminal before it.
    pub fn column(&self, text: &str) -> usize {
        text.get(..self.at).unwrap_or(text).width()
    }

    fn pointed(&self, text: &str) -> String {
        // Nothing of what was typed may move the cursor.
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{}\n  {text}\n  {}^", self.what, " ".repeat(self.column(&text)))
    }
}

#[cfg(test)]
mod tests;
