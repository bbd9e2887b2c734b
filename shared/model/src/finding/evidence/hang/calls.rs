//! Ranks that made another call than the others, or none.

use std::fmt;

use xpu_wire::{collective::Operation, id::Rank};

use super::{
    super::{
        super::{CollectiveCall, hang::Doing},
        Figures, WithFigures,
    },
    numbers,
};
use crate::{
    figure,
    phrase::{self, counted},
};

/// Diverging calls, by the ranks' records.
#[derive(Clone, Debug, PartialEq)]
pub struct Diverged {
    /// The sentence of [`crate::divergence`].
    pub sentence: String,
    /// The number of the collective in its communicator.
    pub number: Option<u64>,
    pub hung_s: f64,
    /// The rank that has not called, and its activity.
    pub lacks: Option<(Rank, Doing)>,
}

impl fmt::Display for Diverged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; the job has hung for {:.0} s", self.sentence, self.hung_s)?;
        self.lacks.map_or(Ok(()), |(rank, doing)| write!(f, "; rank {rank}: {doing}"))
    }
}

impl WithFigures for Diverged {
    fn figures(&self, to: &mut Figures) {
        to.count("collective_number", self.number);
        to.put("hung_s", self.hung_s);
        to.put("inside_s", self.lacks.and_then(|(_, doing)| doing.seconds()));
    }
}

/// All ranks of a communicator wait for their GPUs, after sends and receives.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchanging {
    pub ranks: Vec<Rank>,
    pub communicator: String,
    pub hung_s: f64,
    pub messages: Messages,
}

/// What the records of calls show about these sends and receives.
#[derive(Clone, Debug, PartialEq)]
pub enum Messages {
    Unread,
    /// Each send has its receive.
    Matched,
    /// The same, and the GPUs of these ranks have not reached theirs.
    NotReached(Vec<Rank>),
}

impl fmt::Display for Exchanging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, communicator, hung_s, messages } = self;
        write!(
            f,
            "all {} of communicator {communicator} wait for their GPUs, after sends and receives",
            counted(ranks.len())
        )?;
        match messages {
            Messages::Unread => {
                f.write_str(
                    "; whether each send has its receive is unknown: the records of calls are not read",
                )?;
            }
            Messages::Matched => f.write_str("; each send has its receive, and they do not end")?,
            Messages::NotReached(behind) => {
                let (have, its) = if behind.len() == 1 { ("has", "its") } else { ("have", "their") };
                write!(
                    f,
                    "; each send has its receive, and {} {have} not reached {its}, because earlier work does not end",
                    phrase::ranks(behind)
                )?;
            }
        }
        write!(f, "; the job has hung for {hung_s:.0} s")
    }
}

impl WithFigures for Exchanging {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_waiting", self.ranks.len() as u64);
        to.put("hung_s", self.hung_s);
    }
}

/// Others wait in a collective that these ranks did not enter.
#[derive(Clone, Debug, PartialEq)]
pub struct NotEntered {
    pub ranks: Vec<Rank>,
    pub collective: CollectiveCall,
    pub waiting: usize,
    pub hung_s: f64,
    /// Where the others called it; `None` if it is unknown, or not the same for all.
    pub called_at: Option<String>,
    /// The activity of the first of them.
    pub doing: Doing,
}

impl NotEntered {
    /// `the call is at train.py:45 step`
    pub(in crate::finding::evidence) fn call_site(&self) -> Option<String> {
        self.called_at.as_ref().map(|site| format!("the call is at {site}"))
    }
}

impl fmt::Display for NotEntered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, collective, waiting, hung_s, doing, .. } = self;
        let (who, collective) = (phrase::ranks(ranks), collective.to_string());
        let wait = if *waiting == 1 { "has waited" } else { "have waited" };
        write!(
            f,
            "{who} did not enter {collective}, in which {} {wait} for {hung_s:.0} s; ",
            counted(*waiting)
        )?;
        if let Some(site) = self.call_site() {
            write!(f, "{site}; ")?;
        }
        match &ranks[..] {
            [first, _, ..] => write!(f, "rank {first}: {doing}"),
            _ => doing.fmt(f),
        }
    }
}

impl WithFigures for NotEntered {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_waiting", self.waiting as u64);
        to.put("hung_s", self.hung_s);
        to.put("inside_s", self.doing.seconds());
        numbers(&self.collective, to);
    }
}

/// Ranks wait for each other in two communicators.
#[derive(Clone, Debug, PartialEq)]
pub struct Deadlock {
    pub ranks: Vec<Rank>,
    pub here: CollectiveCall,
    pub there: CollectiveCall,
    pub hung_s: f64,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} wait for each other: some entered {}, others {}, and neither group entered the other's",
            phrase::ranks(&self.ranks),
            self.here,
            self.there,
        )
    }
}

impl WithFigures for Deadlock {
    fn figures(&self, to: &mut Figures) {
        to.put("hung_s", self.hung_s);
        numbers(&self.here, to);
        to.count("other_collective_number", self.there.number);
        to.count("other_collective_bytes", self.there.bytes);
    }
}

/// The ranks call different collectives.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The calls and ranks of the minority, or of all if it is undecided.
    pub called: Vec<(Vec<Rank>, Operation, u64)>,
    /// The others' call.
    pub collective: CollectiveCall,
    /// The others; `None` if both sides are equal in number.
    pub most: Option<usize>,
    pub hung_s: f64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let called = self.called.iter().map(|(ranks, operation, bytes)| {
            format!("{} called {operation} of {}", phrase::ranks(ranks), figure::exact_bytes(*bytes))
        });
        let (called, usual) = (called.collect::<Vec<_>>().join(", "), self.collective.to_string());
        match self.most {
            None => write!(f, "the ranks disagree on {usual}: {called}"),
            Some(most) => write!(f, "{called} where {} called {usual}", counted(most)),
        }
    }
}

impl WithFigures for Mismatch {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_alike", self.most.map(|most| most as u64));
        to.put("hung_s", self.hung_s);
        numbers(&self.collective, to);
        to.count("called_bytes", self.called.first().map(|(.., bytes)| *bytes));
    }
}

/// A few ranks called more collectives than most, and all wait for the GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfStep {
    pub ranks: Vec<Rank>,
    /// Number of calls of these ranks, and of the others.
    pub most: u64,
    pub least: u64,
    pub others: usize,
    /// The first collective that did not end.
    pub collective: CollectiveCall,
    pub hung_s: f64,
}

impl fmt::Display for OutOfStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, most, least, others, collective, hung_s } = self;
        write!(
            f,
            "{} called {most} collectives of communicator {} where {} called {least}, and all wait for the GPU; all called numbers {} to {}, none of which is known to have ended for {hung_s:.0} s",
            phrase::ranks(ranks),
            collective.communicator,
            counted(*others),
            collective.number,
            least.saturating_sub(1),
        )
    }
}

impl WithFigures for OutOfStep {
    fn figures(&self, to: &mut Figures) {
        to.count("calls", self.most);
        to.count("usual_calls", self.least);
        to.count("ranks_alike", self.others as u64);
        to.put("hung_s", self.hung_s);
        numbers(&self.collective, to);
    }
}

/// A rank called fewer sends and receives than ranks with the same role.
#[derive(Clone, Debug, PartialEq)]
pub struct Unmatched {
    pub ranks: Vec<Rank>,
    /// Number of calls of the first of them, and of most of the ranks with the same role.
    pub calls: u64,
    pub usual: u64,
    pub of: usize,
    pub hung_s: f64,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, calls, usual, of, hung_s } = self;
        let first = ranks.first().copied().unwrap_or_default();
        write!(
            f,
            "{} called fewer sends and receives than ranks with the same role: rank {first} called {calls}, most of {of} called {usual}; the job has hung for {hung_s:.0} s",
            phrase::ranks(ranks),
        )
    }
}

impl WithFigures for Unmatched {
    fn figures(&self, to: &mut Figures) {
        to.count("calls", self.calls);
        to.count("usual_calls", self.usual);
        to.count("ranks_compared", self.of as u64);
        to.put("hung_s", self.hung_s);
    }
}
