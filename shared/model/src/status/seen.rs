//! How the hook sees a rank's NCCL calls, and which share of them it counts.

use std::fmt;

use serde::{Deserialize, Serialize};
use xpu_wire::frame::{Launches, NcclReport};

use crate::figure;

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

impl NcclCalls {
    /// The calls of several ranks together; `None` without any.
    pub fn of_all(ranks: impl Iterator<Item = Self>) -> Option<Self> {
        ranks.reduce(|sum, one| {
            let counted = sum.counted.saturating_add(one.counted);
            let uncounted = sum.uncounted.saturating_add(one.uncounted);
            let (dlsym, plugin) =
                (sum.dlsym.saturating_add(one.dlsym), sum.plugin.saturating_add(one.plugin));
            let counted_pct = 100.0 * counted as f64 / counted.saturating_add(uncounted) as f64;
            Self { counted, dlsym, plugin, uncounted, counted_pct }
        })
    }
}

/// `1,200 calls, 98 % of them counted: 800 by preload, 376 by dlsym`
impl fmt::Display for NcclCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counted, dlsym, plugin, uncounted, counted_pct } = *self;
        let seen = counted.saturating_add(uncounted);
        // A share that rounds to 100 % is not all of them.
        let pct = if uncounted > 0 { counted_pct.min(99.0) } else { counted_pct };
        write!(f, "{} calls, {pct:.0} % of them counted", figure::count(seen))?;
        let preload = counted.saturating_sub(dlsym.saturating_add(plugin));
        let all = [(preload, "preload"), (dlsym, "dlsym"), (plugin, "NCCL's profiler plugin")];
        let mut used = all.into_iter().filter(|(calls, _)| *calls > 0).peekable();
        let Some((first, way)) = used.next() else { return Ok(()) };
        if used.peek().is_none() {
            return write!(f, ": by {way}");
        }
        write!(f, ": {} by {way}", figure::count(first))?;
        used.try_for_each(|(calls, way)| write!(f, ", {} by {way}", figure::count(calls)))
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
        assert_eq!(
            calls.to_string(),
            "250 calls, 80 % of them counted: 100 by preload, 40 by dlsym, 60 by NCCL's profiler plugin"
        );
        let all = NcclCalls::of(&launches, &NcclReport::default()).unwrap();
        assert_eq!(all.to_string(), "200 calls, 100 % of them counted: by preload");
        let both = NcclCalls::of_all([calls, all].into_iter()).unwrap();
        assert_eq!((both.counted, both.uncounted, both.plugin), (400, 50, 60));
    }
}
