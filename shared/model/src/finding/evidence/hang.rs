//! Why a job makes no progress.

mod calls;
mod communicator;
mod elsewhere;
mod gpu;
mod gpu_progress;
mod idle;
mod place;

use std::fmt;

pub use calls::{Deadlock, Diverged, Exchanging, Messages, Mismatch, NotEntered, OutOfStep, Unmatched};
pub use communicator::{Forming, Missing, Together};
pub use elsewhere::Elsewhere;
pub use gpu::{After, InKernel, NotLaunched, NotStarted, Partial};
pub(in crate::finding) use gpu_progress::culprits_kernel;
pub(super) use gpu_progress::sentence;
pub use gpu_progress::{By, GpuState, GpusAt};
pub use idle::Idle;
pub use place::RankPlace;
use xpu_wire::id::{HostName, Pid, Rank, Step};

use super::{super::CollectiveCall, Figures, WithFigures};
use crate::phrase;

fn numbers(of: &CollectiveCall, to: &mut Figures) {
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
    pub hung_s: f64,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, first, host, pid, step, hung_s } = self;
        let step = step.map_or_else(String::new, |step| format!(" since step {step}"));
        write!(
            f,
            "{} {} stopped running without exiting: rank {first} ({host}, pid {pid}) has reported nothing{step}, and the job has hung for {hung_s:.0} s",
            phrase::ranks(ranks),
            if ranks.len() == 1 { "has" } else { "have" },
        )
    }
}

impl WithFigures for Stopped {
    fn figures(&self, to: &mut Figures) {
        to.count("pid", u64::from(self.pid.0));
        to.count("step", self.step.map(|step| step.0));
        to.put("hung_s", self.hung_s);
    }
}
