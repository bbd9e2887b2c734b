//! The time without GEMMs and communication, and what the GPU waits for in it, as far as it is measured.

use std::fmt;

use serde::Serialize;

use super::{BoundBy, RUNS_AHEAD};
use crate::job::Breakdown;

/// The parts of that time, in percent of all time; `None` for parts that are not measured. Steps would be
/// shorter by each part if its cause were absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OtherTime {
    #[serde(rename = "data_loading_pct")]
    pub loading_pct: Option<f64>,
    #[serde(rename = "garbage_collection_pct")]
    pub collecting_pct: Option<f64>,
    #[serde(rename = "copies_pct")]
    pub copying_pct: Option<f64>,
    pub synchronizing_pct: Option<f64>,
    pub unexplained_pct: f64,
}

/// One of its measured parts.
struct Part {
    by: BoundBy,
    pct: Option<f64>,
    name: &'static str,
}

impl OtherTime {
    /// `rest`: the share of all time.
    ///
    /// An idle GPU waits for its host. If no thread of the host waits for the GPU, every second of host work,
    /// or of waiting for data, lengthens the step by a second, up to the time for which the GPU is idle.
    /// Without calls that wait for the GPU, the host would save the time in these calls, but the GPU would
    /// still need its busy time. The step would then be shorter by the lesser of the time in these calls and
    /// the idle time.
    pub(super) fn of(one: &Breakdown, rest: f64) -> Self {
        let runs_ahead = one.blocked.is_none_or(|blocked| 100.0 * blocked >= RUNS_AHEAD);
        let idle = match one.busy {
            Some(busy) => (1.0 - busy).clamp(0.0, rest),
            None if runs_ahead => 0.0,
            None => rest,
        };
        let mut left = idle;
        let mut part = |share: Option<f64>| {
            let part = share?.min(left);
            left -= part;
            Some(100.0 * part)
        };
        let (loading_pct, collecting_pct) = (part(one.loading), part(one.collecting));
        let (copying_pct, synchronizing_pct) = (part(one.copying), part(one.synchronizing));
        let unexplained_pct = 100.0 * (rest - (idle - left)).max(0.0);
        Self { loading_pct, collecting_pct, copying_pct, synchronizing_pct, unexplained_pct }
    }

    fn parts(&self) -> [Part; 4] {
        [
            Part { by: BoundBy::DataLoading, pct: self.loading_pct, name: "data loading" },
            Part { by: BoundBy::GarbageCollection, pct: self.collecting_pct, name: "garbage collection" },
            Part { by: BoundBy::Copies, pct: self.copying_pct, name: "copies" },
            Part { by: BoundBy::Synchronizing, pct: self.synchronizing_pct, name: "synchronizing calls" },
        ]
    }

    /// The largest part, if it is larger than the unexplained part.
    pub(super) fn largest(&self) -> Option<BoundBy> {
        let known = self.parts().into_iter().filter_map(|part| Some((part.by, part.pct?)));
        let largest = known.max_by(|one, other| one.1.total_cmp(&other.1))?;
        (largest.1 > self.unexplained_pct).then_some(largest.0)
    }
}

/// `data loading 40 %, synchronizing calls 3 %, unexplained 12 %`
impl fmt::Display for OtherTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Part { pct, name, .. } in self.parts() {
            if let Some(share) = pct.filter(|share| *share >= 0.5) {
                write!(f, "{name} {share:.0} %, ")?;
            }
        }
        write!(f, "unexplained {:.0} %", self.unexplained_pct)
    }
}
