//! The view model of a job: computed once per redraw, not once per frame received.
//!
//! Of ten thousand ranks a thousand report between two pictures. A rank's figures are worked out again only when it has
//! reported; what takes all ranks (order, scales) only when the job's revision moved.

mod list;
mod reckon;
mod refresh;
mod row;

use std::{sync::Arc, time::Duration};

pub use list::Sifted;
use reckon::Examination;
pub use row::{Row, Urgency};
use xpu_analysis::capture::Groups;
use xpu_model::{
    baseline::Runs,
    finding::{Cost, Examiner, Finding, Price},
    job::{Bound, PartlySeen},
    status::{RankState, STALE, StepClock, StepSign},
};
use xpu_wire::{
    id::{JobName, Rank, Step},
    unit::{Moment, Nanoseconds},
};

use super::{Bundle, Fold, Inspection, Metric, Outlier, Seats, Sort};
use crate::widget::scale::Scale;

#[derive(Debug, Default)]
pub struct JobView {
    job: JobName,
    /// The job's revision, the arrangement and the second all this is of.
    made: Option<(u64, Arrangement, u64)>,
    rows: Vec<Row>,
    /// Where the next picture goes on with figures that are not of what is known.
    next: usize,
    /// There are such.
    behind: bool,
    /// The last picture left all of them to this one.
    rested: bool,
    /// This picture has had enough to do.
    pub(super) busy: bool,
    pub seats: Seats,
    /// Ranks, and those there should be, that have their seats.
    seated: Option<(usize, u32)>,
    /// What is listed: rows, or the worst row of each bundle; those left out are not among them.
    pub order: Vec<usize>,
    /// How many of the first listed are there because something is wrong with them.
    pub set_off: usize,
    /// What came of the filter, while there is one.
    pub sifted: Option<Sifted>,
    /// Empty unless ranks are folded.
    pub bundles: Vec<Bundle>,
    /// What decides which rank of a bundle is its worst.
    pub judge: Metric,
    /// In the order of [`Metric::ALL`].
    scales: [Option<Scale>; Metric::ALL.len()],
    pub outlier: Option<Outlier>,
    pub findings: Vec<Finding>,
    /// What the findings cost together, and what holds the job up as a whole.
    pub cost: Option<Cost>,
    pub bound: Option<Bound>,
    examiner: Examiner,
    /// The second the findings are of, and how many ranks lived.
    examined: Option<Examination>,
    pub world_size: u32,
    pub hosts: usize,
    pub steps: Option<(Step, Step)>,
    pub step_time: Option<Nanoseconds>,
    /// The last known step: in a hung job, arrival skew is still a share of a step.
    usual_step: Option<Nanoseconds>,
    /// How fast the job is, or was.
    pub headline: Headline,
    /// The source of step ends.
    pub step_sign: Option<StepSign>,
    /// The optimizer whose steps count as the program's, if that is the source.
    pub optimizer: Option<String>,
    /// Whose clock single steps are by.
    pub step_clock: Option<StepClock>,
    /// Of all current ranks that say so, together.
    pub tokens_per_s: Option<f64>,
    /// Mean over the current ranks of which it is known.
    pub mfu: Option<f64>,
    /// Since any rank completed a step.
    pub since_step: Option<Duration>,
    /// Since anything was heard of the job.
    pub age: Duration,
    /// Ranks that say now how they do, or said goodbye.
    pub heard: usize,
    /// How much is seen of a communicator of which not all is: what keeps bandwidth from being known.
    pub partly_seen: Option<PartlySeen>,
    /// Living ranks whose hook is off.
    pub ranks_off: usize,
    /// What hooks cannot see.
    pub blind: Vec<String>,
    /// Processes that claim ranks which others are.
    pub turned_away: u32,
    pub losses: Losses,
    /// Share of wall time the hook took from launching threads, the worst rank's.
    pub overhead: f64,
    /// The rank that is looked at, with its shapes and sizes.
    pub inspected: Option<Inspection>,
    /// The rank and the job's revision it is of.
    inspection: Option<(Rank, u64)>,
}

/// How the user wants the ranks listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Arrangement {
    pub sort: Sort,
    pub fold: Fold,
    pub groups: Option<Groups>,
    /// Of ranks in the same state, that is worst which is worst by this.
    pub judge: Metric,
    /// What a GPU costs in an hour.
    pub price: Option<Price>,
}

/// How late it is on a host. No clock is compared with another: how old a thing was when its host spoke, and how long ago that came in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// What the host said the time was.
    pub spoke: Option<Moment>,
    pub since: Duration,
}

impl Clock {
    fn age(self, then: Moment) -> Duration {
        self.spoke.map_or(Duration::ZERO, |spoke| spoke.since(then)) + self.since
    }
}

/// How fast the job is as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Headline {
    pub step_time: Option<Nanoseconds>,
    /// Medians over the ranks: TFLOPS, and GB/s.
    pub gemm: Option<f64>,
    pub bus: Option<f64>,
    pub tokens_per_s: Option<f64>,
    pub mfu: Option<f64>,
    /// Since any rank's figures were of now; `None` while one's are.
    pub age: Option<Duration>,
}

/// What was not seen, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    pub records: u64,
    pub frames: u64,
    /// Operations that should have been timed.
    pub untimed: u64,
}

impl JobView {
    pub(super) fn hold_against(&mut self, runs: Option<&Arc<Runs>>) {
        self.examiner.hold_against(runs);
    }

    /// Whether figures on the screen are of a picture ago, because many came at once.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Why the job hangs.
    pub fn standstill(&self) -> Option<&Finding> {
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

    /// What differences are measured against, if not the median: the usual arrival skew is next to nothing, and what counts is its
    /// share of a step. So may exposed communication be, which is a share of all time.
    pub(super) fn whole(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Skew => self.usual_step.map(Nanoseconds::milliseconds),
            Metric::Exposed => Some(100.0),
            _ => None,
        }
    }

    /// The quantities with a figure of any rank, and those whose absence is explained.
    pub fn reported(&self) -> Vec<Metric> {
        let is_shown = |metric: &Metric| metric.is_always_shown() || self.scale(*metric).is_some();
        Metric::ALL.into_iter().filter(is_shown).collect()
    }

    pub fn row_of(&self, rank: Rank) -> Option<usize> {
        self.rows.binary_search_by_key(&rank, |row| row.status.rank).ok()
    }

    /// The row of the worst, by a metric.
    pub fn worst(&self, metric: Metric) -> Option<(&Row, f64)> {
        let scale = self.scale(metric)?;
        let known = self.current().filter_map(|row| Some((row, metric.of(row)?)));
        known.reduce(|one, other| if scale.badness(other.1) > scale.badness(one.1) { other } else { one })
    }

    /// Whether a rank's figures count: those of now, and of a job that is over the last ones.
    pub fn counts(&self, rank: Rank) -> bool {
        let row = self.row_of(rank).and_then(|row| self.rows.get(row));
        self.is_over() || row.is_some_and(|row| row.status.is_live())
    }

    /// Whether no rank says any more how it does: the job is over, or no host is heard.
    pub fn is_frozen(&self) -> bool {
        !self.rows.iter().any(Row::is_heard)
    }

    /// The rows whose figures count: those of now, and once there are none, all as they were last.
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
    use xpu_wire::simulation::Simulation;

    use super::*;

    /// A rank that has just come: no figure is known of it.
    pub(in crate::app) fn row(rank: u32, host: &str) -> Row {
        let mut jobs = Jobs::default();
        jobs.fold(&Simulation::new(1, 1, 1).snapshots(0)[0]);
        let job = jobs.foremost().unwrap();
        let mut row = Row::of(job, Rank(0), job.rank(Rank(0)).unwrap());
        (row.status.rank, row.status.host) = (Rank(rank), host.into());
        row
    }
}
