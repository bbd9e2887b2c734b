//! A rank's end, and the ranks that followed.

use std::fmt;

use xpu_wire::{
    frame::{EndCause, Ending, RankExit},
    id::{HostName, Pid, Rank, Step},
};

use super::{super::Figures, WithFigures};
use crate::phrase;

#[derive(Clone, Debug, PartialEq)]
pub struct Exited {
    /// The first to end.
    pub rank: Rank,
    pub host: HostName,
    pub pid: Pid,
    pub step: Option<Step>,
    pub ago_s: f64,
    /// Whether its end was observed; otherwise the time since its last message is unknown.
    pub was_seen: bool,
    /// Its end, if known.
    pub exit: Option<Box<RankExit>>,
    /// Ranks that ended after it, and how many of them were asked to end.
    pub followers: Vec<Rank>,
    pub by_sigterm: usize,
}

impl fmt::Display for Exited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, host, pid, ago_s, .. } = self;
        let step = self.step.map_or_else(|| "unknown".to_owned(), |step| step.to_string());
        write!(f, "rank {rank} ({host}, pid {pid}) ")?;
        if let Some(exit) = self.exit.as_ref().filter(|exit| exit.cause() != EndCause::Dead) {
            write!(f, "{}; {ago_s:.0} s ago, at step {step}", exit.sentence())?;
        } else if self.was_seen {
            write!(f, "ended without an orderly exit {ago_s:.0} s ago, at step {step}")?;
        } else {
            write!(f, "ended without an orderly exit; it last reported {ago_s:.0} s ago, at step {step}")?;
        }
        for clause in [self.sender(), self.followers()].into_iter().flatten() {
            write!(f, "; {clause}")?;
        }
        Ok(())
    }
}

impl Exited {
    /// The process that had sent it SIGTERM, as a clause.
    pub(super) fn sender(&self) -> Option<String> {
        let asked = self.exit.as_ref()?.asked.as_ref()?;
        let name = if asked.name.is_empty() { String::new() } else { format!(" ({})", asked.name) };
        Some(format!("process {}{name} had sent it SIGTERM", asked.by))
    }

    /// The ranks that ended after it.
    pub(super) fn followers(&self) -> Option<String> {
        let stopped = match self.by_sigterm {
            _ if self.followers.is_empty() => return None,
            0 => String::new(),
            by_sigterm if by_sigterm == self.followers.len() => ", stopped by SIGTERM".to_owned(),
            by_sigterm => format!(", {by_sigterm} of them stopped by SIGTERM"),
        };
        Some(format!("{} followed{stopped}", phrase::ranks(&self.followers)))
    }
}

impl WithFigures for Exited {
    fn figures(&self, to: &mut Figures) {
        to.count("pid", u64::from(self.pid.0));
        to.count("step", self.step.map(|step| step.0));
        to.put("ago_s", self.ago_s);
        match self.exit.as_ref().map(|exit| &exit.ending) {
            Some(Ending::Code(code)) => to.put("exit_code", f64::from(*code)),
            Some(Ending::Signal(signal)) => to.put("signal", f64::from(signal.number)),
            Some(Ending::OutOfMemory { .. } | Ending::Unnoted) | None => {}
        }
        to.count("ranks_followed", self.followers.len() as u64);
    }
}
