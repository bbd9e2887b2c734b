//! What limits a job as a whole, from its ranks' digests: shares of the time that add up to 100 %.

mod gemm_time;
mod main_thread;
mod other_time;

use std::fmt;

pub use gemm_time::GemmTime;
pub use main_thread::{GilHolder, MainThreadSeen};
pub use other_time::OtherTime;
use serde::{Deserialize, Serialize};
use xpu_wire::id::Rank;

use super::{Breakdown, Job};

/// Number of ranks that are examined: in a job that trains together, all ranks spend their time in the same
/// way.
const ASKED: usize = 64;

/// Percent of the time that threads must wait for the GPU. Below it, they leave the GPU idle.
const RUNS_AHEAD: f64 = 10.0;

/// Where the time of the last half minute went, in percent, for the median rank. Of an even number of
/// ranks, the one that waits least is left out. The four shares add up to 100.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    pub by: BoundBy,
    /// The GPU in GEMMs.
    pub gemms_pct: f64,
    /// The three parts of the GEMM share, which add up to it.
    #[serde(flatten)]
    pub gemms: Option<GemmTime>,
    /// Exposed transfers: exposed communication without waiting for other ranks, or with it if `waiting_pct`
    /// is unknown.
    pub transfers_pct: f64,
    /// Exposed communication in which the rank waited for other ranks, and the rest of its wait for slow ranks by
    /// the findings; `null` while none of its timed collectives has matched, as for a viewer that sees one host
    /// of several.
    pub waiting_pct: Option<f64>,
    /// Everything else: other kernels, copies, and an idle GPU.
    pub other_pct: f64,
    /// The parts of that share, which add up to it.
    #[serde(flatten)]
    pub other: OtherTime,
    /// Time that threads waited for the GPU, in addition; `None` if it is unknown.
    pub host_waits_pct: Option<f64>,
    /// Where a main thread is, if it was sampled.
    pub main_thread: Option<MainThreadSeen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundBy {
    Gemms,
    Communication,
    /// Late ranks.
    Stragglers,
    /// Waiting for batches that are not ready.
    DataLoading,
    /// Python's garbage collections.
    GarbageCollection,
    /// Copies that are not asynchronous.
    Copies,
    /// Calls after which the GPU has nothing to do (`.item()`).
    Synchronizing,
    /// The GPU is idle most of the time: no thread waits for it.
    Host,
    /// Kernels other than GEMMs, copies, or gaps.
    Other,
}

impl Job {
    /// `None` until GEMMs and exposed communication are known. A single rank without NCCL has no exposed
    /// communication. `live`: the ranks with current figures. `waited_pct`: the share of the time in which ranks
    /// waited for slow ranks, by the findings.
    pub fn bound(&self, live: impl Iterator<Item = Rank>, waited_pct: f64) -> Option<Bound> {
        let live: Vec<Rank> = live.collect();
        let every = live.len().div_ceil(ASKED).max(1);
        let asked = || live.iter().step_by(every).copied();
        let known = asked().filter_map(|rank| self.breakdown(rank)).filter(|one| one.gemms.is_some());
        let known = without_least_waiting(known.collect());
        let mut bound = Bound::of(&Breakdown::middle(&known), self.is_alone())?;
        bound.wait_at_least(waited_pct);
        let views = || asked().filter_map(|rank| self.rank(rank));
        if let Some(gemms) = &mut bound.gemms {
            gemms.take_reasons(views().filter_map(|view| view.device()));
        }
        // Only one rank of a host is sampled at a time.
        bound.main_thread = live
            .iter()
            .filter_map(|&rank| MainThreadSeen::of(rank, self.rank(rank)?.times()?.main.as_ref()?))
            .max_by_key(|seen| (seen.samples, std::cmp::Reverse(seen.rank)));
        Some(bound)
    }
}

/// Of an even number of ranks, the one that waits least is left out: of two ranks one may wait for the other, and the
/// median, which is the mean of both, would show half of that.
fn without_least_waiting(mut known: Vec<Breakdown>) -> Vec<Breakdown> {
    let waiting = |at: usize, one: &Breakdown| Some((at, one.waiting?));
    if known.iter().filter(|one| one.waiting.is_some()).count() < 2 {
        return known;
    }
    let waits = known.iter().enumerate().filter_map(|(at, one)| waiting(at, one));
    let least = waits.min_by(|(_, one), (_, other)| one.total_cmp(other));
    if let Some((at, _)) = least.filter(|_| known.len().is_multiple_of(2)) {
        known.swap_remove(at);
    }
    known
}

impl Bound {
    fn of(one: &Breakdown, is_alone: bool) -> Option<Self> {
        let gemms = one.gemms.filter(|share| *share > 0.0)?.min(1.0);
        let exposed = one.exposed.or_else(|| is_alone.then_some(0.0))?.min(1.0 - gemms);
        let waited = one.waiting.zip(one.collectives).filter(|(_, all)| *all > 0.0);
        let is_known = waited.is_some() || exposed == 0.0;
        let waiting = exposed * waited.map_or(0.0, |(waiting, all)| (waiting / all).min(1.0));
        let (transfers, rest) = (exposed - waiting, 1.0 - gemms - exposed);
        let other = OtherTime::of(one, rest);
        let mut bound = Self {
            by: BoundBy::Other,
            gemms_pct: 100.0 * gemms,
            gemms: GemmTime::of(one, gemms),
            transfers_pct: 100.0 * transfers,
            waiting_pct: is_known.then_some(100.0 * waiting),
            other_pct: 100.0 * rest,
            other,
            host_waits_pct: one.blocked.map(|blocked| 100.0 * blocked),
            main_thread: None,
        };
        bound.by = bound.largest();
        Some(bound)
    }

    /// Counts unexplained time as waiting for other ranks, up to this share. While a host waits for its GPU, it
    /// launches no GEMMs that the collective on the GPU could hold up, so exposed communication lacks that wait.
    fn wait_at_least(&mut self, pct: f64) {
        let Some(waiting) = &mut self.waiting_pct else { return };
        let moved = (pct - *waiting).clamp(0.0, self.other.unexplained_pct.max(0.0));
        *waiting += moved;
        self.other.unexplained_pct -= moved;
        self.other_pct -= moved;
        self.by = self.largest();
    }

    fn largest(&self) -> BoundBy {
        let Self { gemms_pct, transfers_pct, other_pct, .. } = *self;
        let waiting_pct = self.waiting_pct.unwrap_or_default();
        let largest = gemms_pct.max(transfers_pct).max(waiting_pct).max(other_pct);
        if largest == gemms_pct {
            BoundBy::Gemms
        } else if largest == waiting_pct {
            BoundBy::Stragglers
        } else if largest == transfers_pct {
            BoundBy::Communication
        } else if let Some(by) = self.other.largest() {
            by
        } else if self.host_waits_pct.is_some_and(|blocked| blocked < RUNS_AHEAD) {
            BoundBy::Host
        } else {
            BoundBy::Other
        }
    }
}

impl BoundBy {
    fn name(self) -> &'static str {
        match self {
            Self::Gemms => "GEMMs",
            Self::Communication => "communication",
            Self::Stragglers => "waiting for other ranks",
            Self::DataLoading => "data loading",
            Self::GarbageCollection => "garbage collection",
            Self::Copies => "copies that the host waits for",
            Self::Synchronizing => "calls that synchronize with the GPU",
            Self::Host => "the host, which gives the GPU too little work",
            Self::Other => "work other than GEMMs and communication",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gemms_pct, transfers_pct, waiting_pct, other, .. } = self;
        let made_of = self.gemms.as_ref().map_or_else(String::new, |gemms| format!(" ({gemms})"));
        write!(f, "bound by {}: GEMMs {gemms_pct:.0} %{made_of}, ", self.by.name())?;
        match waiting_pct {
            Some(waiting) => {
                write!(
                    f,
                    "exposed transfers {transfers_pct:.0} %, waiting for other ranks {waiting:.0} %, "
                )?;
            }
            None => write!(
                f,
                "exposed communication {transfers_pct:.0} % (transfers and waiting for other ranks), "
            )?,
        }
        write!(f, "{other} of the time")?;
        match &self.main_thread {
            // Otherwise it mostly waits for its GPU.
            Some(seen)
                if !matches!(self.by, BoundBy::Gemms | BoundBy::Communication | BoundBy::Stragglers) =>
            {
                write!(f, "; {seen}")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
