//! The activity of the rank for which others wait.

use std::{fmt, time::Duration};

use xpu_wire::{
    frame::{Life, RankStacks},
    id::Rank,
    ledger::Call,
};

use super::{
    compilation, held,
    rendezvous::{self, Position},
};
use crate::job::{Job, RankView};

/// Time since its last work after which a rank does not compute.
const AT_WORK: Duration = Duration::from_secs(3);

/// A rank's activity, as far as visible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doing {
    Ended,
    Gone,
    Silent,
    /// Inside a call, for this many seconds.
    Inside(Call, f64),
    /// Inside no call of CUDA or NCCL.
    Outside,
    /// Inside no such call, and its process works: on its CPU, or on files.
    Works,
    /// Inside no such call, and its main thread compiles kernels with this compiler, or waits for it.
    Compiles(&'static str),
    /// Inside no such call, and its main thread waits for this lock file.
    AwaitsLockFile(&'static str),
    /// Inside no such call, and its main thread is in an uninterruptible wait for a disk or a file server.
    InTheKernel,
    /// Inside no such call, and its main thread waits for other ranks in this function.
    Meets(&'static str),
}

impl Doing {
    pub(super) fn of(view: &RankView) -> Self {
        match (view.life(), held(view)) {
            (Life::Ended, _) => Self::Ended,
            (Life::Died, _) => Self::Gone,
            (Life::Silent, _) => Self::Silent,
            (Life::Alive, Some((call, seconds))) => Self::Inside(call, seconds),
            (Life::Alive, None) => Self::Outside,
        }
    }

    /// The activity, with more detail for a rank that is in no call.
    pub(super) fn closely(job: &Job, rank: Rank, view: &RankView) -> Self {
        let known = Self::of(view);
        let now = |stacks: &&RankStacks| view.last_report().since(stacks.read_at) < view.stalled_for();
        let is_stuck = |stacks: &RankStacks| {
            let main = stacks.main_thread();
            main.and_then(|thread| thread.task.as_ref()).is_some_and(|task| task.letter == 'D')
        };
        let stacks = job.stacks_of(rank).filter(now);
        let works = view.idle_for() < AT_WORK;
        match known {
            Self::Outside if !works && stacks.is_some_and(is_stuck) => Self::InTheKernel,
            Self::Outside if let Some(lock) = stacks.and_then(compilation::lock_file) => {
                Self::AwaitsLockFile(lock)
            }
            Self::Outside if let Some(compiler) = stacks.and_then(compilation::compiler) => {
                Self::Compiles(compiler)
            }
            Self::Outside if works => Self::Works,
            Self::Outside => match rendezvous::position(job, rank, view) {
                Position::Meets(place) => Self::Meets(place),
                Position::Elsewhere | Position::Unknown => Self::Outside,
            },
            known => known,
        }
    }

    /// Seconds that the rank has been inside its call.
    pub(in crate::finding) fn seconds(self) -> Option<f64> {
        if let Self::Inside(_, seconds) = self { Some(seconds) } else { None }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("it has ended"),
            Self::Gone => f.write_str("its process is gone"),
            Self::Silent => f.write_str("it reports nothing"),
            Self::Inside(call, seconds) => write!(f, "it has been inside {call} for {seconds:.0} s"),
            Self::Outside => f.write_str("it is in no CUDA or NCCL call"),
            Self::Works => f.write_str("it is in no CUDA or NCCL call, and computes or reads and writes files"),
            Self::Compiles(compiler) => {
                write!(f, "it is in no CUDA or NCCL call, and compiles kernels ({compiler})")
            }
            Self::AwaitsLockFile(lock) => write!(f, "it is in no CUDA or NCCL call, and waits for {lock}"),
            Self::Meets(place) => {
                write!(f, "it is in no CUDA or NCCL call, and waits for other ranks in {place}")
            }
            Self::InTheKernel => f.write_str(
                "it is in no CUDA or NCCL call, and its main thread waits in the kernel for a disk or a file server (state D)",
            ),
        }
    }
}
