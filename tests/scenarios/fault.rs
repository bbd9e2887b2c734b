//! The faults of a simulated job.

/// A fault that begins after some seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// These GPUs are slower by this factor.
    Compute {
        ranks: Vec<u32>,
        factor: f64,
    },
    /// The GPU of one rank is slower by this factor, because its clocks are held down.
    Clocks {
        rank: u32,
        factor: f64,
    },
    /// The host of a rank loses this share of a step before each step.
    Host {
        rank: u32,
        share: f64,
    },
    /// As [`Self::Host`], with two ranks that alternate.
    Turns {
        ranks: [u32; 2],
        share: f64,
    },
    /// As [`Self::Host`], but only before one of `every` steps.
    Seldom {
        rank: u32,
        share: f64,
        every: u64,
    },
    /// The host of a rank loses this share of a step in each backward pass.
    Backward {
        rank: u32,
        share: f64,
    },
    /// Every rank evaluates for some seconds after every `every` steps, from the start.
    Evaluations {
        seconds: f64,
        every: u64,
    },
    /// A rank pauses at an interval. Both times are in seconds.
    Pauses {
        rank: u32,
        seconds: f64,
        every: f64,
    },
    /// Every rank pauses like this, each at its own time.
    PausesOfAll {
        seconds: f64,
        every: f64,
    },
    /// Another process multiplies on the rank's GPU. GEMMs take longer by this factor on average.
    Neighbour {
        rank: u32,
        factor: f64,
    },
    /// A rank loses this share of a step before each step, in copies that its host waits for.
    Copies {
        rank: u32,
        share: f64,
    },
    /// The process of a rank is stopped for this share of the time, and then continued.
    Stopped {
        rank: u32,
        share: f64,
    },
    Several(Vec<Self>),
    /// Communicators that span this host are slower by this factor.
    Link {
        host: u32,
        factor: f64,
    },
    /// All communicators are slower by this factor.
    Network {
        factor: f64,
    },
    /// All GPUs are slower by this factor.
    Everyone {
        factor: f64,
    },
    /// All ranks have more work by this factor.
    MoreWork {
        factor: f64,
    },
    /// All ranks get more work, by this share with each second.
    Growing {
        share: f64,
    },
    /// One rank has more work by this factor.
    Busier {
        rank: u32,
        factor: f64,
    },
    /// Rank 0 writes checkpoints at an interval, both in seconds. It copies piece by piece.
    Checkpoint {
        seconds: f64,
        every: f64,
    },
    /// One rank starts this many seconds after the others.
    LateStart {
        rank: u32,
        seconds: f64,
    },
    /// The memory of the rank's GPU is nearly full.
    Full {
        rank: u32,
    },
    /// The driver reports an error of the rank's GPU.
    Error {
        rank: u32,
        code: u32,
    },
    Stall {
        rank: u32,
        how: Stall,
    },
}

/// What the rank does when the job begins to hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// Its Python code does something else.
    OnCpu,
    /// It waits for its own kernel before it enters the collective.
    OnGpu,
    /// It leaves the training loop and ends.
    Ends,
    /// Its process is stopped, or dies.
    Stops,
    Dies,
    /// It calls its communicators in another order.
    Order,
    /// It calls another operation, or one with another size.
    Operation,
    Bytes,
    /// It omits the last collective of a step and continues: from then on it is off by one call.
    Skip,
    /// It does not return from the call.
    InCall,
    /// The collective completes on no rank, or on all but this one.
    Kernel,
    Partial,
    /// It does not join the creation, or the end, of a communicator.
    Init,
    Finalize,
    /// It does not send what the next stage waits for.
    Unsent,
}

/// The share of a copy that counts as waiting. A copy from pageable memory takes its time in a call that is
/// asynchronous by its name, and PyTorch then waits only for the small rest.
const COUNTED: f64 = 0.1;

impl Fault {
    /// How many times longer the rank computes.
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

    /// The rank's work as a multiple of the usual, this many seconds after the fault began.
    pub(crate) fn work(&self, rank: u32, since: f64) -> f64 {
        match self {
            Self::Several(all) => all.iter().map(|one| one.work(rank, since)).product(),
            Self::Growing { share } => 1.0 + share * since,
            Self::MoreWork { factor } => *factor,
            Self::Busier { rank: busy, factor } if *busy == rank => *factor,
            _ => 1.0,
        }
    }

    /// Seconds lost before a step. The step has this number, takes `step` seconds, and begins at `at`. The
    /// previous step began at `before`. Both times count from the start of the fault.
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

    /// Whether only a few of many steps lose time.
    pub(crate) fn is_rare(&self) -> bool {
        matches!(self, Self::Pauses { .. } | Self::PausesOfAll { .. } | Self::Seldom { .. })
    }

    /// Seconds that the rank's host loses in the backward pass.
    pub(crate) fn lost_in_backward(&self, rank: u32, step: f64) -> f64 {
        match self {
            Self::Backward { rank: slow, share } if *slow == rank => share * step,
            _ => 0.0,
        }
    }

    /// The part of the seconds lost before a step in which the host waits for copies.
    pub(crate) fn copied(&self, rank: u32, lost: f64) -> f64 {
        match self {
            Self::Copies { rank: slow, .. } if *slow == rank => COUNTED * lost,
            _ => 0.0,
        }
    }

    /// How much the rank's slowness varies from one GEMM to the next.
    pub(crate) fn unevenness(&self, rank: u32) -> f64 {
        match self {
            Self::Neighbour { rank: slow, factor } if *slow == rank => (factor - 1.0) / factor,
            _ => 0.0,
        }
    }

    /// The share of time in which the rank's process is stopped.
    pub(crate) fn stopped(&self, rank: u32) -> Option<f64> {
        match self {
            Self::Stopped { rank: slow, share } if *slow == rank => Some(*share),
            _ => None,
        }
    }

    /// How many times longer a transfer between these hosts takes.
    pub(crate) fn congestion(&self, hosts: impl IntoIterator<Item = u32>) -> f64 {
        match *self {
            Self::Link { host, factor } if hosts.into_iter().any(|passed| passed == host) => factor,
            Self::Network { factor } => factor,
            _ => 1.0,
        }
    }
}
