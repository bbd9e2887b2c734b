//! The cost of all findings together, the time over which it was lost, and how much of it was waiting.

use std::{fmt, ops::Add as _, time::Duration};

use serde::Serialize;

use super::{Cost, Finding, Kind, Money};
use crate::figure;

/// The time that [`crate::job::Bound`] covers.
const BOUND_OVER: Duration = Duration::from_secs(30);

/// The cost of several findings together, at most all of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lost {
    #[serde(flatten)]
    pub cost: Cost,
    /// Seconds since the earliest of them began.
    pub since_s: f64,
}

impl Lost {
    /// `None` if no cost is known. A job that makes no progress loses all of its time, so the other findings
    /// cost nothing more. A hidden delay costs nothing now, but may have before.
    pub fn to(findings: &[Finding]) -> Option<Self> {
        let is_stopped = findings.iter().any(Finding::stops_the_job);
        let is_hidden = |finding: &Finding| finding.cost.is_some_and(|cost| cost.behind.is_some());
        let all = || findings.iter().filter(|finding| !is_stopped || finding.stops_the_job());
        let counted = || all().filter(|finding| !is_hidden(finding));
        let costs = || counted().filter_map(|finding| finding.cost);
        let all_costs = || all().filter_map(|finding| finding.cost);
        let since = counted().filter(|finding| finding.cost.is_some()).map(|finding| finding.since_s);
        let since_s = since.reduce(f64::max)?;
        let sum = |of: fn(&Cost) -> f64| costs().map(|cost| of(&cost)).sum::<f64>();
        let steps: Vec<_> = costs().filter_map(|cost| cost.ms_per_step).collect();
        let cost = Cost {
            pct: sum(|cost| cost.pct).min(100.0),
            pct_error: sum(|cost| cost.pct_error.powi(2)).sqrt(),
            ms_per_step: (!steps.is_empty()).then(|| steps.iter().sum()),
            gpu_hours: all_costs().map(|cost| cost.gpu_hours).sum(),
            gpus: costs().map(|cost| cost.gpus).max().unwrap_or_default(),
            behind: None,
            money: all_costs().filter_map(|cost| cost.money).reduce(Money::add),
        };
        Some(Self { cost, since_s })
    }

    /// The duration over which it was lost.
    pub fn since(&self) -> Duration {
        Duration::from_secs_f64(self.since_s.max(0.0))
    }
}

/// `19.0 ms a step (15.7 %, 14.9 to 16.5 %), 0.30 GPU-hours so far, in 4 m`
impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, in {}", self.cost, figure::age(self.since()))
    }
}

/// Percent of the last half minute in which the others waited for slow ranks. At most half of the `ranks` may be
/// slow, because the median rank would be a slow one otherwise.
pub fn waited_pct(findings: &[Finding], ranks: usize) -> f64 {
    let slow = findings.iter().filter(|finding| finding.kind == Kind::SlowRank);
    let few = slow.filter(|finding| !finding.ranks.is_empty() && 2 * finding.ranks.len() <= ranks);
    few.filter_map(|finding| {
        let cost = finding.cost.filter(|cost| cost.behind.is_none())?;
        Some((cost.pct - cost.pct_error) * (finding.since_s / BOUND_OVER.as_secs_f64()).min(1.0))
    })
    .fold(0.0, f64::max)
}
