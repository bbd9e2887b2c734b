//! The progress of each rank's GPU in the collective in which a job hangs, and the evidence for it.

use std::fmt;

use serde::Serialize;
use xpu_wire::id::Rank;

use crate::phrase;

/// Ranks in the same state by the same evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpusAt {
    pub ranks: Vec<Rank>,
    pub state: GpuState,
    pub by: By,
    /// For [`GpuState::Behind`], the last operation that was launched before it, and the time since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launched_s: Option<f64>,
    /// The driver's figures for the first of these ranks: percent of the time, and watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_pct: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// The kernels that the GPU ran, by a core dump; `None` if none was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Vec<String>>,
}

/// In the order of a collective's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuState {
    /// The rank has not called it.
    NotCalled,
    /// The call has not returned.
    NotLaunched,
    /// The call waits on its stream for earlier work.
    Behind,
    /// The call is launched; whether it has begun is unknown.
    Launched,
    Begun,
    /// The call has begun, and the GPU is busy at the power of a kernel that only waits.
    Still,
    Done,
}

/// The evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The calls in its ledger.
    Calls,
    /// The calls in its ledger, and the counts of NCCL's RAS.
    CallsAndRas,
    /// Events on its stream.
    Events,
    /// Events on its stream, and the driver.
    EventsAndDriver,
    /// Utilisation and power by the driver.
    Driver,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calls => "by its calls",
            Self::CallsAndRas => "by its calls and by RAS",
            Self::Events => "by events on the stream",
            Self::EventsAndDriver => "by events on the stream and by the driver",
            Self::Driver => "by the driver",
        })
    }
}

/// `rank 1: behind work up to GEMM 4096x4096x4096 bf16, launched 14 s ago (by events on the stream)`
impl fmt::Display for GpusAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", phrase::ranks(&self.ranks))?;
        match &self.kernels {
            Some(kernels) if kernels.is_empty() => f.write_str("runs no kernel (by a core dump), ")?,
            Some(kernels) => write!(f, "runs {} (by a core dump), ", kernels.join(", "))?,
            None => {}
        }
        match (self.state, &self.work) {
            (GpuState::NotCalled, _) => f.write_str("not called"),
            (GpuState::NotLaunched, _) => f.write_str("called, not launched"),
            (GpuState::Behind, Some(work)) => write!(f, "behind work up to {work}"),
            (GpuState::Behind, None) => f.write_str("behind earlier work on its stream"),
            (GpuState::Launched, _) => f.write_str("launched, start not seen"),
            (GpuState::Begun, _) => f.write_str("begun"),
            // A busy GPU may run something else.
            (GpuState::Still, _) if self.by == By::Driver => {
                f.write_str("launched, start not seen, and moving nothing")
            }
            (GpuState::Still, _) => f.write_str("begun and moving nothing"),
            (GpuState::Done, _) => f.write_str("done"),
        }?;
        if let Some(seconds) = self.launched_s {
            write!(f, ", launched {seconds:.0} s ago")?;
        }
        match (self.busy_pct, self.power_w) {
            (Some(busy), Some(watts)) => write!(f, ", {busy:.0} % busy at {watts:.0} W")?,
            (Some(busy), None) => write!(f, ", {busy:.0} % busy")?,
            _ => {}
        }
        write!(f, " ({})", self.by)
    }
}

/// All groups, as the end of a sentence; the fewest ranks first.
pub(in super::super) fn sentence(groups: &[GpusAt]) -> String {
    let groups: Vec<_> = groups.iter().map(GpusAt::to_string).collect();
    groups.join("; ")
}

/// The only kernel on the GPUs of these ranks, if they wait behind earlier work.
pub(in crate::finding) fn culprits_kernel<'a>(ranks: &[Rank], groups: &'a [GpusAt]) -> Option<&'a str> {
    let of = groups.iter().find(|group| group.ranks == ranks && group.state == GpuState::Behind)?;
    let [kernel] = of.kernels.as_deref()? else { return None };
    Some(kernel)
}
