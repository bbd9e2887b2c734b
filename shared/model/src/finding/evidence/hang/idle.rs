//! Evidence that no rank makes a step or works.

use std::fmt;

use xpu_wire::id::{Rank, Step};

use super::super::{super::hang::Doing, Figures, WithFigures};
use crate::phrase;

/// Ranks that were training and now do nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Idle {
    pub ranks: Vec<Rank>,
    pub step: Option<Step>,
    /// The earlier step time of the slowest of them.
    pub usual_step_ms: Option<f64>,
    /// The activity of the first of them.
    pub first: Doing,
    pub hung_s: f64,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, step, usual_step_ms, first, hung_s } = self;
        let step = step.map_or_else(String::new, |step| format!(" after step {step}"));
        write!(
            f,
            "{} {} completed no step for {hung_s:.0} s{step}, launched nothing, and used no CPU",
            phrase::ranks(ranks),
            if ranks.len() == 1 { "has" } else { "have" },
        )?;
        if let Some(usual) = usual_step_ms {
            write!(f, "; a step usually took {usual:.1} ms")?;
        }
        match (&ranks[..], first) {
            ([_], doing) => write!(f, "; {doing}"),
            ([rank, ..], Doing::Inside(call, seconds)) => {
                write!(f, "; rank {rank} has been inside {call} for {seconds:.0} s")
            }
            _ => Ok(()),
        }
    }
}

impl WithFigures for Idle {
    fn figures(&self, to: &mut Figures) {
        to.count("step", self.step.map(|step| step.0));
        to.put("usual_step_ms", self.usual_step_ms);
        to.put("hung_s", self.hung_s);
    }
}
