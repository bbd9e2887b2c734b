//! How the hook sees a rank's NCCL calls, and which share of them it counts.

use serde::{Deserialize, Serialize};
use xpu_wire::frame::{Launches, NcclReport};

/// Operations that a rank asked NCCL for, since it started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NcclCalls {
    pub counted: u64,
    /// Those that were made by a function whose address the program looked up (`dlsym`).
    pub dlsym: u64,
    /// Those that only NCCL's profiler plugin interface showed. All other calls went through an interposed
    /// function.
    pub plugin: u64,
    /// Calls on communicators that are not known, or of a second copy of NCCL.
    pub uncounted: u64,
    /// The counted share of all calls that were seen, in percent.
    pub counted_pct: f64,
}

impl NcclCalls {
    /// `None` while no call was seen.
    pub fn of(launches: &Launches, report: &NcclReport) -> Option<Self> {
        let NcclReport { by_address, by_plugin, uncounted, .. } = *report;
        let counted = launches.collectives.saturating_add(launches.point_to_point);
        let seen = counted.saturating_add(uncounted);
        // Calls that failed are seen, but not counted.
        let plugin = by_plugin.min(counted);
        let dlsym = by_address.min(counted - plugin);
        let counted_pct = 100.0 * counted as f64 / seen as f64;
        (seen > 0).then_some(Self { counted, dlsym, plugin, uncounted, counted_pct })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncounted_calls_are_missing_and_no_calls_at_all_are_unknown() {
        assert_eq!(NcclCalls::of(&Launches::default(), &NcclReport::default()), None);
        let launches = Launches { collectives: 150, point_to_point: 50, ..Launches::default() };
        let report = NcclReport { by_address: 40, by_plugin: 60, uncounted: 50, ..NcclReport::default() };
        let calls = NcclCalls::of(&launches, &report).unwrap();
        assert_eq!((calls.counted, calls.dlsym, calls.plugin, calls.counted_pct), (200, 40, 60, 80.0));
        let one = Launches { collectives: 1, ..Launches::default() };
        let failed = NcclCalls::of(&one, &report).unwrap();
        assert_eq!((failed.plugin, failed.dlsym), (1, 0));
    }
}
