//! The view model of a job: computed once per redraw, not once per frame received.
//!
//! A thousand of ten thousand ranks report between two redraws. A rank's figures are computed again only when
//! it has reported; figures over all ranks (order, scales) only when the job's revision changed.

mod compute;
mod list;
mod refresh;
mod row;

use std::{sync::Arc, time::Duration};

use compute::Examination;
pub use list::Filtered;
pub use row::{Row, Urgency};
use xpu_analysis::capture::Groups;
use xpu_model::{
    baseline::Runs,
    finding::{Examiner, Finding, Lost, Price},
    job::{Bound, Job, PartlySeen},
    status::{RankState, STALE, StepClock, StepSign},
};
use xpu_wire::{
    id::{JobName, Rank, Step},
    unit::{Moment, Nanoseconds},
};

use super::{Bundle, Fold, Inspection, Listing, Metric, Outlier, RankLayout, Sort};
use crate::widget::scale::Scale;

#[derive(Debug, Default)]
pub struct JobView {
    job: JobName,
    /// The job's revision, the arrangement and the second for which the view was computed.
    made: Option<(u64, Arrangement, u64)>,
    rows: Vec<Row>,
    /// Where the next redraw continues with outdated figures.
    next: usize,
    /// Whether there are outdated figures.
    behind: bool,
    /// Whether the previous redraw left all outdated figures to this one.
    rested: bool,
    /// Whether this redraw has had enough work.
    pub(super) busy: bool,
    pub rank_layout: RankLayout,
    /// The places of ranks on the maps, seen or not.
    laid_out_for: Option<(usize, u32)>,
    /// The listed rows, or the worst row of each group; rows that the filter excludes are left out.
    pub order: Vec<usize>,
    /// Number of listed rows that come first because of a problem.
    pub set_off: usize,
    /// The result of the filter, while there is one.
    pub filtered: Option<Filtered>,
    /// Empty unless ranks are folded.
    pub bundles: Vec<Bundle>,
    /// The metric that decides which rank of a group is its worst.
    pub judge: Metric,
    /// The scales, in the order of [`Metric::ALL`].
    scales: [Option<Scale>; Metric::ALL.len()],
    pub outlier: Option<Outlier>,
    pub findings: Vec<Finding>,
    /// What all findings cost together, and what limits the job as a whole.
    pub lost: Option<Lost>,
    pub bound: Option<Bound>,
    /// Why the job is compared with no past run, if that was requested.
    pub lacks_past_run: Option<String>,
    examiner: Examiner,
    /// The price of a GPU-hour.
    pub(crate) price: Option<Price>,
    /// Whether the findings lack what the log knows of the time before.
    has_new_findings: bool,
    /// The second of the findings, and the number of living ranks then.
    examined: Option<Examination>,
    pub world_size: u32,
    pub hosts: usize,
    pub steps: Option<(Step, Step)>,
    pub step_time: Option<Nanoseconds>,
    /// The last known step time, because arrival skew is a share of a step even in a hung job.
    usual_step: Option<Nanoseconds>,
    /// The present or last pace of the job.
    pub headline: Headline,
    /// The source of step ends.
    pub step_sign: Option<StepSign>,
    /// The optimizer whose steps count as the program's, if that is the source.
    pub optimizer: Option<String>,
    /// The clock of single steps.
    pub step_clock: Option<StepClock>,
    /// The sum over all ranks with current figures that report it.
    pub tokens_per_s: Option<f64>,
    /// Mean over the ranks with a known and current figure.
    pub mfu: Option<f64>,
    /// Time since any rank completed a step.
    pub since_step: Option<Duration>,
    /// Time since the last report of the job.
    pub age: Duration,
    /// Number of ranks that report now, or have sent a goodbye.
    pub heard: usize,
    /// The seen part of a communicator that is only partly seen, which is why its bandwidth is unknown.
    pub partly_seen: Option<PartlySeen>,
    /// Number of living ranks whose hook is off.
    pub ranks_off: usize,
    /// The hooks' blind spots.
    pub blind: Vec<String>,
    /// Number of processes that claim ranks that other processes have.
    pub turned_away: u32,
    pub losses: Losses,
    /// Share of wall time that the hook took from launching threads, for the worst rank.
    pub overhead: f64,
    /// The shown rank, with its shapes and sizes.
    pub inspected: Option<Inspection>,
    /// The rank and the job's revision for which the inspection was computed.
    inspection: Option<(Rank, u64)>,
}

/// How the user wants the ranks listed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Arrangement {
    pub sort: Sort,
    pub fold: Fold,
    pub groups: Option<Groups>,
    /// Among ranks in the same state, this metric decides which is the worst.
    pub judge: Metric,
}

impl Arrangement {
    fn of(listing: &Listing, job: &Job, judge: Metric) -> Self {
        let groups = listing.groups_of(job).cloned();
        Self { sort: listing.sort, fold: listing.fold.clone(), groups, judge }
    }
}

/// The present time on a host. No clocks are compared: an age is the age at the time of the host's report,
/// plus the time since that report arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// The time that the host reported.
    pub spoke: Option<Moment>,
    pub since: Duration,
}

impl Clock {
    fn age(self, then: Moment) -> Duration {
        self.spoke.map_or(Duration::ZERO, |spoke| spoke.since(then)) + self.since
    }
}

/// The pace of the job as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Headline {
    pub step_time: Option<Nanoseconds>,
    /// Medians over the ranks, in TFLOPS and GB/s.
    pub gemm: Option<f64>,
    pub bus: Option<f64>,
    pub tokens_per_s: Option<f64>,
    pub mfu: Option<f64>,
    /// Time since any rank had current figures; `None` while a rank has.
    pub age: Option<Duration>,
}

/// Counts of data that was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    pub records: u64,
    pub frames: u64,
    /// Operations that should have been timed, but were not.
    pub untimed: u64,
}

impl JobView {
    /// An empty view of another job, with the same past runs and price.
    fn for_another_job(&self) -> Self {
        Self { examiner: self.examiner.for_another_job(), price: self.price, ..Self::default() }
    }

    /// Empties it, and returns what it was.
    pub(super) fn forget(&mut self) -> Self {
        let other = self.for_another_job();
        std::mem::replace(self, other)
    }

    pub(crate) fn compare_with(&mut self, runs: Option<&Arc<Runs>>) {
        self.examiner.compare_with(runs);
    }

    /// Whether some shown figures are from an earlier redraw, because many arrived at once.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// The finding that explains why the job hangs.
    pub fn stall(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.stops_the_job())
    }

    /// Ranks that wait for others.
    pub fn waiting(&self) -> usize {
        self.rows.iter().filter(|row| row.status.state == RankState::Waiting).count()
    }

    /// Ranks that were seen, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The ranks' range of a metric; `None` while none is known.
    pub fn scale(&self, metric: Metric) -> Option<&Scale> {
        self.scales[metric as usize].as_ref()
    }

    /// The base of differences, if it is not the median. The usual arrival skew is almost zero, so
    /// differences are measured against a step. Exposed communication may be almost zero too; its differences
    /// are measured against all time.
    pub(super) fn whole(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Skew => self.usual_step.map(Nanoseconds::milliseconds),
            Metric::Exposed => Some(100.0),
            _ => None,
        }
    }

    /// The quantities for which any rank has a figure, and those whose absence is explained.
    pub fn reported(&self) -> Vec<Metric> {
        let is_shown = |metric: &Metric| metric.is_always_shown() || self.scale(*metric).is_some();
        Metric::ALL.into_iter().filter(is_shown).collect()
    }

    pub fn row_of(&self, rank: Rank) -> Option<usize> {
        self.rows.binary_search_by_key(&rank, |row| row.status.rank).ok()
    }

    /// The row of the worst rank by a metric.
    pub fn worst(&self, metric: Metric) -> Option<(&Row, f64)> {
        let scale = self.scale(metric)?;
        let known = self.current().filter_map(|row| Some((row, metric.of(row)?)));
        known.reduce(|one, other| if scale.badness(other.1) > scale.badness(one.1) { other } else { one })
    }

    /// Whether a rank's figures count: current ones, and the last ones of a job that has ended.
    pub fn counts(&self, rank: Rank) -> bool {
        let row = self.row_of(rank).and_then(|row| self.rows.get(row));
        self.is_over() || row.is_some_and(|row| row.status.is_live())
    }

    /// Whether no rank reports any more: the job has ended, or no host reports.
    pub fn is_frozen(&self) -> bool {
        !self.rows.iter().any(Row::is_heard)
    }

    /// The rows whose figures count: the current ones, or if there are none, all with their last figures.
    fn current(&self) -> impl Iterator<Item = &Row> + Clone {
        let frozen = self.is_frozen();
        self.rows.iter().filter(move |row| frozen || row.is_heard())
    }

    pub fn is_stale(&self) -> bool {
        self.age >= STALE
    }

    /// Whether every rank that was seen has ended.
    pub fn is_over(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(Row::is_gone)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;

    use super::*;

    /// A rank that has just joined: no figure of it is known.
    pub(in crate::app) fn row(rank: u32, host: &str) -> Row {
        let mut jobs = Jobs::default();
        jobs.fold(&Simulation::new(1, 1, 1).snapshots(0)[0]);
        let job = jobs.foremost().unwrap();
        let mut row = Row::of(job, Rank(0), job.rank(Rank(0)).unwrap());
        (row.status.rank, row.status.host) = (Rank(rank), host.into());
        row
    }
}
