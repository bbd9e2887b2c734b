//! The faults of a simulated job.

/// A trouble, from a second on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Trouble {
    /// Nothing.
    None,
    /// GPUs that are slower by this factor.
    Compute {
        ranks: Vec<u32>,
        factor: f64,
    },
    /// Likewise, held back by its clocks.
    Clocks {
        rank: u32,
        factor: f64,
    },
    /// Loses this share of a step before each.
    Host {
        rank: u32,
        share: f64,
    },
    /// Likewise, the one and the other in turns.
    Turns {
        ranks: [u32; 2],
        share: f64,
    },
    /// Likewise, before one of `every` steps.
    Seldom {
        rank: u32,
        share: f64,
        every: u64,
    },
    /// Its host loses this share of a step in the backward pass.
    Backward {
        rank: u32,
        share: f64,
    },
    /// Every rank evaluates for a time after every `every` steps, from the start.
    Evaluations {
        seconds: f64,
        every: u64,
    },
    /// Pauses for a time at an interval, in seconds.
    Pauses {
        rank: u32,
        seconds: f64,
        every: f64,
    },
    /// Every rank does so, each at its own time.
    PausesOfAll {
        seconds: f64,
        every: f64,
    },
    /// Another process multiplies on its GPU: GEMMs take longer by this factor at the mean.
    Neighbour {
        rank: u32,
        factor: f64,
    },
    /// Loses this share of a step before each, in copies that its host waits for.
    Copies {
        rank: u32,
        share: f64,
    },
    /// Its process is stopped for this share of the time, and continued.
    Stopped {
        rank: u32,
        share: f64,
    },
    Several(Vec<Self>),
    /// Communicators that span a host are slower by this factor.
    Link {
        host: u32,
        factor: f64,
    },
    /// All communicators do.
    Network {
        factor: f64,
    },
    /// All GPUs are slower by this factor.
    Everyone {
        factor: f64,
    },
    /// All have more work by this factor.
    MoreWork {
        factor: f64,
    },
    /// All have this share more work with each second.
    Growing {
        share: f64,
    },
    /// One rank has more work by this factor.
    Busier {
        rank: u32,
        factor: f64,
    },
    /// Rank 0 writes a checkpoint at an interval, both in seconds; it copies piece by piece.
    Checkpoint {
        seconds: f64,
        every: f64,
    },
    /// A rank comes this many seconds after the others.
    LateStart {
        rank: u32,
        seconds: f64,
    },
    /// Its GPU's memory is nearly full.
    Full {
        rank: u32,
    },
    /// The driver reports an error of its GPU.
    Error {
        rank: u32,
        code: u32,
    },
    Stall {
        rank: u32,
        how: Stall,
    },
}

/// How a job comes to hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// Its Python does something else.
    OnCpu,
    /// It waits for its own kernel before it comes.
    OnGpu,
    /// It left the loop and ended.
    Ends,
    /// Its process is stopped, or gone.
    Stops,
    Dies,
    /// It calls its communicators in another order.
    Order,
    /// It calls something else, or with other bytes.
    Operation,
    Bytes,
    /// It omits the last collective of a step and goes on: from then on it is one call out of step.
    Skip,
    /// It does not return from the call.
    InCall,
    /// The collective does not end on anybody, or on it alone.
    Kernel,
    Partial,
    /// It does not come to make, or to end, a communicator.
    Init,
    Finalize,
    /// It does not send what the next stage waits for.
    Unsent,
}

/// Copies from pageable memory take their time in a call that is asynchronous by its name: PyTorch then waits
/// for the little that is left.
const COUNTED: f64 = 0.1;

impl Trouble {
    /// How many times longer it computes.
    pub(crate) fn slowness(&self, rank: u32) -> f64 {
        match self {
            Self::Several(all) => all.iter().map(|one| one.slowness(rank)).product(),
            Self::Neighbour { rank: slow, factor } if *slow == rank => *factor,
            Self::Compute { ranks, factor } if ranks.contains(&rank) => *factor,
            Self::Clocks { rank: slow, factor } if *slow == rank => *factor,
            Self::Everyone { factor } => *factor,
            _ => 1.0,
        }
    }

    /// How many times the usual work it has, this many seconds after the trouble began.
    pub(crate) fn work(&self, rank: u32, since: f64) -> f64 {
        match self {
            Self::Several(all) => all.iter().map(|one| one.work(rank, since)).product(),
            Self::Growing { share } => 1.0 + share * since,
            Self::MoreWork { factor } => *factor,
            Self::Busier { rank: busy, factor } if *busy == rank => *factor,
            _ => 1.0,
        }
    }

    /// Seconds lost before the step of this number, of `step` seconds, that begins at `at`, the one before having begun
    /// at `before`; both since the trouble began.
    pub(crate) fn lost(&self, rank: u32, (number, step): (u64, f64), before: f64, at: f64) -> f64 {
        let falls = |every: f64, phase: f64| {
            at >= 0.0 && ((at + phase) / every).floor() > ((before.max(0.0) + phase) / every).floor()
        };
        match *self {
            Self::Several(ref all) => all.iter().map(|one| one.lost(rank, (number, step), before, at)).sum(),
            Self::Turns { ranks, share } if at >= 0.0 && ranks[number as usize % 2] == rank => share * step,
            Self::Seldom { rank: slow, share, every }
                if slow == rank && at >= 0.0 && number.is_multiple_of(every) =>
            {
                share * step
            }
            Self::Evaluations { seconds, every } if number > 0 && number.is_multiple_of(every) => seconds,
            Self::Copies { rank: slow, share } if slow == rank && at >= 0.0 => share * step,
            Self::Stopped { rank: slow, share } if slow == rank && at >= 0.0 => step * share / (1.0 - share),
            Self::Host { rank: slow, share } if slow == rank && at >= 0.0 => share * step,
            Self::Pauses { rank: slow, seconds, every } if slow == rank && falls(every, 0.0) => seconds,
            Self::PausesOfAll { seconds, every } if falls(every, f64::from(rank) * 0.618 * every) => seconds,
            Self::Checkpoint { seconds, every } if rank == 0 && falls(every, 0.9 * every) => seconds,
            _ => 0.0,
        }
    }

    /// Whether few of many steps lose time.
    pub(crate) fn is_rare(&self) -> bool {
        matches!(self, Self::Pauses { .. } | Self::PausesOfAll { .. } | Self::Seldom { .. })
    }

    /// Seconds that its host loses in the backward pass.
    pub(crate) fn lost_in_backward(&self, rank: u32, step: f64) -> f64 {
        match self {
            Self::Backward { rank: slow, share } if *slow == rank => share * step,
            _ => 0.0,
        }
    }

    /// Of the seconds lost before a step, those in copies that are waited for.
    pub(crate) fn copied(&self, rank: u32, lost: f64) -> f64 {
        match self {
            Self::Copies { rank: slow, .. } if *slow == rank => COUNTED * lost,
            _ => 0.0,
        }
    }

    /// How much its slowness differs from one GEMM to the next.
    pub(crate) fn unevenness(&self, rank: u32) -> f64 {
        match self {
            Self::Neighbour { rank: slow, factor } if *slow == rank => (factor - 1.0) / factor,
            _ => 0.0,
        }
    }

    /// The share of the time in which its process is stopped.
    pub(crate) fn stopped(&self, rank: u32) -> Option<f64> {
        match self {
            Self::Stopped { rank: slow, share } if *slow == rank => Some(*share),
            _ => None,
        }
    }

    /// How many times longer a transfer takes among these hosts.
    pub(crate) fn congestion(&self, hosts: impl IntoIterator<Item = u32>) -> f64 {
        match *self {
            Self::Link { host, factor } if hosts.into_iter().any(|passed| passed == host) => factor,
            Self::Network { factor } => factor,
            _ => 1.0,
        }
    }
}
