//! Why a job makes no progress.

use std::fmt;

use xpu_wire::{
    collective::Operation,
    id::{HostName, Pid, Rank, Step},
    ledger::Call,
};

use super::{
    super::{
        Standstill,
        hang::{Doing, Witness},
        phrase,
        phrase::counted,
    },
    Figures, Told,
};

fn numbers(of: &Standstill, to: &mut Figures) {
    to.count("collective_number", of.number);
    to.count("collective_bytes", of.bytes);
}

/// Processes that are alive but do not run.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopped {
    pub ranks: Vec<Rank>,
    pub first: Rank,
    pub host: HostName,
    pub pid: Pid,
    pub step: Option<Step>,
    pub stands_s: f64,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, first, host, pid, step, stands_s } = self;
        let step = step.map_or_else(String::new, |step| format!(" since step {step}"));
        write!(
            f,
            "{} {} stopped running without exiting: rank {first} ({host}, pid {pid}) has reported nothing{step}, and the job has hung for {stands_s:.0} s",
            phrase::ranks(ranks),
            if ranks.len() == 1 { "has" } else { "have" },
        )
    }
}

impl Told for Stopped {
    fn figures(&self, to: &mut Figures) {
        to.count("pid", u64::from(self.pid.0));
        to.count("step", self.step.map(|step| step.0));
        to.put("stands_s", self.stands_s);
    }
}

/// Diverging calls, by the ranks' records.
#[derive(Clone, Debug, PartialEq)]
pub struct Parted {
    /// The sentence of [`crate::divergence`].
    pub sentence: String,
    /// Of the collective in its communicator.
    pub number: Option<u64>,
    pub stands_s: f64,
}

impl fmt::Display for Parted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; the job has hung for {:.0} s", self.sentence, self.stands_s)
    }
}

impl Told for Parted {
    fn figures(&self, to: &mut Figures) {
        to.count("collective_number", self.number);
        to.put("stands_s", self.stands_s);
    }
}

/// A communicator being created or destroyed.
#[derive(Clone, Debug, PartialEq)]
pub struct Forming {
    /// It is being created; else destroyed.
    pub makes: bool,
    pub inside: Vec<Rank>,
    pub stands_s: f64,
    pub missing: Missing,
}

/// The ranks that do not come.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    Nobody,
    /// Number of ranks that were never seen.
    Unseen(usize),
    /// Number of ranks doing something else, of which perhaps only some belong to it.
    Unknown,
    Ranks {
        ranks: Vec<Rank>,
        doing: Doing,
    },
}

impl fmt::Display for Forming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { makes, inside, stands_s, missing } = self;
        let doing = if *makes { "creating" } else { "destroying" };
        let have = if inside.len() == 1 { "has" } else { "have" };
        let waiting =
            format!("{} {have} been {doing} a communicator for {stands_s:.0} s", counted(inside.len()));
        match missing {
            Missing::Nobody => write!(f, "all ranks have been {doing} a communicator for {stands_s:.0} s"),
            Missing::Unseen(unseen) => {
                write!(f, "{waiting}, and {} of the job were never seen", counted(*unseen))
            }
            Missing::Unknown => {
                write!(f, "{}: {waiting}; which rank is missing is unknown", phrase::ranks(inside))
            }
            Missing::Ranks { ranks, doing } => {
                let first = ranks.first().copied().unwrap_or_default();
                write!(f, "{} did not join: {waiting}; rank {first}: {doing}", phrase::ranks(ranks))
            }
        }
    }
}

impl Told for Forming {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_waiting", self.inside.len() as u64);
        match &self.missing {
            Missing::Unseen(unseen) => to.count("ranks_unseen", *unseen as u64),
            Missing::Ranks { doing, .. } => to.put("inside_s", doing.seconds()),
            Missing::Nobody | Missing::Unknown => {}
        }
        to.put("stands_s", self.stands_s);
    }
}

/// Others wait in a collective these ranks did not enter.
#[derive(Clone, Debug, PartialEq)]
pub struct NotEntered {
    pub ranks: Vec<Rank>,
    pub collective: Standstill,
    pub waiting: usize,
    pub stands_s: f64,
    /// What the first of them does.
    pub doing: Doing,
}

impl fmt::Display for NotEntered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, collective, waiting, stands_s, doing } = self;
        let (ranks_told, collective) = (phrase::ranks(ranks), phrase::collective(collective));
        let wait = if *waiting == 1 { "has waited" } else { "have waited" };
        write!(
            f,
            "{ranks_told} did not enter {collective}, in which {} {wait} for {stands_s:.0} s; ",
            counted(*waiting)
        )?;
        match &ranks[..] {
            [first, _, ..] => write!(f, "rank {first}: {doing}"),
            _ => doing.fmt(f),
        }
    }
}

impl Told for NotEntered {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_waiting", self.waiting as u64);
        to.put("stands_s", self.stands_s);
        to.put("inside_s", self.doing.seconds());
        numbers(&self.collective, to);
    }
}

/// Ranks wait for each other in two communicators.
#[derive(Clone, Debug, PartialEq)]
pub struct Deadlock {
    pub ranks: Vec<Rank>,
    pub here: Standstill,
    pub there: Standstill,
    pub stands_s: f64,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} wait for each other: some entered {}, others {}, and neither group entered the other's",
            phrase::ranks(&self.ranks),
            phrase::collective(&self.here),
            phrase::collective(&self.there),
        )
    }
}

impl Told for Deadlock {
    fn figures(&self, to: &mut Figures) {
        to.put("stands_s", self.stands_s);
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
    pub collective: Standstill,
    /// The others; `None` if both sides are equal in number.
    pub most: Option<usize>,
    pub stands_s: f64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let called = self.called.iter().map(|(ranks, operation, bytes)| {
            format!("{} called {operation} of {}", phrase::ranks(ranks), phrase::bytes(*bytes))
        });
        let (called, usual) = (called.collect::<Vec<_>>().join(", "), phrase::collective(&self.collective));
        match self.most {
            None => write!(f, "the ranks disagree on {usual}: {called}"),
            Some(most) => write!(f, "{called} where {} called {usual}", counted(most)),
        }
    }
}

impl Told for Mismatch {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_alike", self.most.map(|most| most as u64));
        to.put("stands_s", self.stands_s);
        numbers(&self.collective, to);
        to.count("called_bytes", self.called.first().map(|(.., bytes)| *bytes));
    }
}

/// A few called more collectives than most, and all wait for the GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfStep {
    pub ranks: Vec<Rank>,
    /// Calls of these, and of the others.
    pub most: u64,
    pub least: u64,
    pub others: usize,
    /// The first that did not end.
    pub collective: Standstill,
    pub stands_s: f64,
}

impl fmt::Display for OutOfStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, most, least, others, collective, stands_s } = self;
        write!(
            f,
            "{} called {most} collectives of communicator {} where {} called {least}, and all wait for the GPU: all called numbers {} to {}, and none of these is known to have ended for {stands_s:.0} s",
            phrase::ranks(ranks),
            collective.communicator,
            counted(*others),
            collective.number,
            least.saturating_sub(1),
        )
    }
}

impl Told for OutOfStep {
    fn figures(&self, to: &mut Figures) {
        to.count("calls", self.most);
        to.count("usual_calls", self.least);
        to.count("ranks_alike", self.others as u64);
        to.put("stands_s", self.stands_s);
        numbers(&self.collective, to);
    }
}

/// All called it; some are still inside the call.
#[derive(Clone, Debug, PartialEq)]
pub struct NotLaunched {
    pub ranks: Vec<Rank>,
    pub collective: Standstill,
    /// The call that the first of them is inside, and for how long.
    pub call: Call,
    pub inside_s: f64,
    pub stands_s: f64,
}

impl fmt::Display for NotLaunched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, collective, call, inside_s, .. } = self;
        let first = ranks.first().copied().unwrap_or_default();
        let (ranks, collective) = (phrase::ranks(ranks), phrase::collective(collective));
        write!(
            f,
            "{ranks} called {collective} and did not launch it: rank {first} has been inside {call} for {inside_s:.0} s"
        )
    }
}

impl Told for NotLaunched {
    fn figures(&self, to: &mut Figures) {
        to.put("inside_s", self.inside_s);
        to.put("stands_s", self.stands_s);
        numbers(&self.collective, to);
    }
}

/// It ended on all but a few.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    pub ranks: Vec<Rank>,
    pub collective: Standstill,
    pub others: usize,
    pub stands_s: f64,
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, collective, others, stands_s } = self;
        write!(
            f,
            "{} ended on {} and not on {}, which {} waited for the GPU for {stands_s:.0} s",
            phrase::collective(collective),
            counted(*others),
            phrase::ranks(ranks),
            if ranks.len() == 1 { "has" } else { "have" },
        )
    }
}

impl Told for Partial {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_done", self.others as u64);
        to.put("stands_s", self.stands_s);
        numbers(&self.collective, to);
    }
}

/// A collective that some GPUs have not reached.
#[derive(Clone, Debug, PartialEq)]
pub struct NotStarted {
    /// Those GPUs' ranks, and the number of other ranks on which it has started.
    pub ranks: Vec<Rank>,
    pub started: usize,
    pub collective: Standstill,
    pub stands_s: f64,
    pub witness: Witness,
    pub after: Option<After>,
}

/// The last call before it that has ended on the stream of the first of these ranks, and both places in the program: what does not
/// end was launched between the two.
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
            write!(f, " at {place}, and before this at {until},")?;
        }
        Ok(())
    }
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, started, collective, stands_s, witness, after } = self;
        let after = after.as_ref().map_or_else(|| " before it".to_owned(), After::to_string);
        let (gpus, run, take) = if ranks.len() == 1 {
            ("its GPU has", "runs", "takes")
        } else {
            ("their GPUs have", "run", "take")
        };
        let (others, are) = if *started == 1 {
            ("the GPU of 1 other rank has", "that of the other is")
        } else {
            (&*format!("the GPUs of {started} other ranks have"), "those of the others are")
        };
        write!(
            f,
            "{} launched {}, and {gpus} not started it: ",
            phrase::ranks(ranks),
            phrase::collective(collective)
        )?;
        match witness {
            Witness::Event => {
                write!(f, "work launched{after} does not end; {others} (by events before it on the streams)")
            }
            Witness::Idle { others_busy_pct } => write!(
                f,
                "it waits for something launched{after}; by the driver it {run} nothing, and {are} busy {others_busy_pct:.0} % of the time"
            ),
            Witness::Power { watts, others_watts } => write!(
                f,
                "work launched{after} seems not to end; by the driver it {take} {watts:.0} W, and {are} busy at {others_watts:.0} W, as ranks that wait for others"
            ),
        }?;
        write!(f, "; the job has hung for {stands_s:.0} s")
    }
}

impl Told for NotStarted {
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
        to.put("stands_s", self.stands_s);
        numbers(&self.collective, to);
    }
}

/// All launched it, and it does not end.
#[derive(Clone, Debug, PartialEq)]
pub struct InKernel {
    /// The ranks on which it does not end, and the number that launched it.
    pub ranks: Vec<Rank>,
    pub launched: usize,
    pub collective: Standstill,
    pub stands_s: f64,
    /// Communicators in the same state.
    pub alike: usize,
}

impl fmt::Display for InKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, launched, collective, stands_s, alike } = self;
        let (ranks, collective) = (phrase::ranks(ranks), phrase::collective(collective));
        write!(
            f,
            "all {launched} ranks launched {collective}, and it has not ended for {stands_s:.0} s on {ranks}"
        )?;
        match alike {
            0 => Ok(()),
            alike => write!(f, "; nor have those of {alike} similar communicators"),
        }
    }
}

impl Told for InKernel {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_launched", self.launched as u64);
        to.put("stands_s", self.stands_s);
        numbers(&self.collective, to);
        to.count("communicators_alike", self.alike as u64);
    }
}

/// A rank called fewer sends and receives than those that do the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Unmatched {
    pub ranks: Vec<Rank>,
    /// Calls of the first of them, and of most of the given number.
    pub calls: u64,
    pub usual: u64,
    pub of: usize,
    pub stands_s: f64,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, calls, usual, of, stands_s } = self;
        let first = ranks.first().copied().unwrap_or_default();
        write!(
            f,
            "{} called fewer sends and receives than ranks with the same role: rank {first} called {calls}, most of {of} called {usual}; the job has hung for {stands_s:.0} s",
            phrase::ranks(ranks),
        )
    }
}

impl Told for Unmatched {
    fn figures(&self, to: &mut Figures) {
        to.count("calls", self.calls);
        to.count("usual_calls", self.usual);
        to.count("ranks_compared", self.of as u64);
        to.put("stands_s", self.stands_s);
    }
}
