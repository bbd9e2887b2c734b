//! A collective that all ranks called, but that does not start or end on the GPUs of some.

use std::fmt;

use xpu_wire::{collective::Operation, id::Rank, ledger::Call};

use super::{
    super::{
        super::{CollectiveCall, hang::Witness},
        Figures, WithFigures,
    },
    numbers,
};
use crate::phrase::{self, counted};

/// A collective that all ranks called, while some are still inside the call.
#[derive(Clone, Debug, PartialEq)]
pub struct NotLaunched {
    pub ranks: Vec<Rank>,
    pub collective: CollectiveCall,
    /// The call that the first of them is inside, and the time since it entered.
    pub call: Call,
    pub inside_s: f64,
    pub hung_s: f64,
}

impl fmt::Display for NotLaunched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, collective, call, inside_s, .. } = self;
        let first = ranks.first().copied().unwrap_or_default();
        let (ranks, collective) = (phrase::ranks(ranks), collective.to_string());
        write!(
            f,
            "{ranks} called {collective} but did not launch it: rank {first} has been inside {call} for {inside_s:.0} s"
        )
    }
}

impl WithFigures for NotLaunched {
    fn figures(&self, to: &mut Figures) {
        to.put("inside_s", self.inside_s);
        to.put("hung_s", self.hung_s);
        numbers(&self.collective, to);
    }
}

/// A collective that some GPUs have not reached.
#[derive(Clone, Debug, PartialEq)]
pub struct NotStarted {
    /// Those GPUs' ranks, and the number of other ranks on which it has started; 0 if that is unknown.
    pub ranks: Vec<Rank>,
    pub started: usize,
    pub collective: CollectiveCall,
    pub hung_s: f64,
    pub witness: Witness,
    pub after: Option<After>,
}

/// The last call before the collective that has ended, on the stream of the first of these ranks; and the
/// places of both calls in the program. The work that does not end was launched between the two calls.
#[derive(Clone, Debug, PartialEq)]
pub struct After {
    pub operation: Operation,
    pub place: Option<String>,
    pub until: Option<String>,
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " after {}", self.operation)?;
        if let (Some(place), Some(until)) = (&self.place, &self.until) {
            write!(f, " at {place} and before the call at {until}")?;
        }
        Ok(())
    }
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, collective, hung_s, .. } = self;
        write!(
            f,
            "{} launched {}, but {} not started it: {}; the job has hung for {hung_s:.0} s",
            phrase::ranks(ranks),
            collective,
            if ranks.len() == 1 { "its GPU has" } else { "their GPUs have" },
            self.reason()
        )
    }
}

impl NotStarted {
    /// What these GPUs do instead.
    pub(in crate::finding::evidence) fn reason(&self) -> String {
        let Self { ranks, started, witness, after, .. } = self;
        let after = after.as_ref().map_or_else(|| " before it".to_owned(), After::to_string);
        let (run, take) = if ranks.len() == 1 { ("runs", "takes") } else { ("run", "take") };
        let (others, are) = match *started {
            0 => ("whether the other GPUs have is unknown", ""),
            1 => ("the GPU of 1 other rank has", "that of the other is"),
            _ => (&*format!("the GPUs of {started} other ranks have"), "those of the others are"),
        };
        match witness {
            Witness::Event => {
                format!(
                    "work launched{after} does not end; {others} (shown by events before it on the streams)"
                )
            }
            Witness::Idle { others_busy_pct } => format!(
                "it waits for work launched{after}; the driver reports that it {run} nothing and that {are} busy {others_busy_pct:.0} % of the time"
            ),
            Witness::Power { watts, others_watts } => format!(
                "work launched{after} probably does not end; the driver reports that it {take} {watts:.0} W and that {are} busy at {others_watts:.0} W, typical of GPUs that wait for others"
            ),
        }
    }
}

impl WithFigures for NotStarted {
    fn figures(&self, to: &mut Figures) {
        if self.witness == Witness::Event {
            to.count("ranks_started", self.started as u64);
        }
        match self.witness {
            Witness::Event => {}
            Witness::Idle { others_busy_pct } => to.put("others_busy_pct", others_busy_pct),
            Witness::Power { watts, others_watts } => {
                to.put("power_w", watts);
                to.put("others_power_w", others_watts);
            }
        }
        to.put("hung_s", self.hung_s);
        numbers(&self.collective, to);
    }
}

/// A collective that all ranks launched, but that does not end.
#[derive(Clone, Debug, PartialEq)]
pub struct InKernel {
    /// The ranks on which it does not end, and the number that launched it.
    pub ranks: Vec<Rank>,
    pub launched: usize,
    pub collective: CollectiveCall,
    pub hung_s: f64,
    /// Number of communicators in the same state.
    pub alike: usize,
}

impl fmt::Display for InKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, launched, collective, hung_s, alike } = self;
        let (ranks, collective) = (phrase::ranks(ranks), collective.to_string());
        write!(
            f,
            "all {launched} ranks launched {collective}, and it has not ended for {hung_s:.0} s on {ranks}"
        )?;
        match alike {
            0 => Ok(()),
            alike => write!(f, "; nor have those of {alike} similar communicators"),
        }
    }
}

impl WithFigures for InKernel {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_launched", self.launched as u64);
        to.put("hung_s", self.hung_s);
        numbers(&self.collective, to);
        to.count("communicators_alike", self.alike as u64);
    }
}

/// A collective that ended on all ranks but a few.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    pub ranks: Vec<Rank>,
    pub collective: CollectiveCall,
    pub others: usize,
    pub hung_s: f64,
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, collective, others, hung_s } = self;
        write!(
            f,
            "{} ended on {} but not on {}, which {} waited for the GPU for {hung_s:.0} s",
            collective,
            counted(*others),
            phrase::ranks(ranks),
            if ranks.len() == 1 { "has" } else { "have" },
        )
    }
}

impl WithFigures for Partial {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_done", self.others as u64);
        to.put("hung_s", self.hung_s);
        numbers(&self.collective, to);
    }
}
