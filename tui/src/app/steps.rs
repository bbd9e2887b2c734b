//! The data of the steps page other than the step times: the parts of a step, the spread over ranks, and the
//! late ranks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use xpu_model::{
    change_point::ChangePoint,
    job::{Breakdown, Job, RankView, median},
};
use xpu_wire::{
    histogram::Histogram,
    id::{JobName, Rank},
    unit::{Moment, Nanoseconds},
};

use super::{
    JobView, Point, Row, StepTimes, Watched,
    order::{Order, Sortable},
};

#[derive(Debug, Default)]
pub struct Steps {
    pub(crate) order: Order<StepColumn>,
    /// Where steps became permanently longer or shorter, oldest first.
    pub changes: Vec<(Point, ChangePoint)>,
    /// Medians over the watched ranks.
    pub breakdown: Breakdown,
    /// Single steps of these ranks, since they are watched.
    pub singles: Histogram,
    /// Spans per step: their name, and the median time over these ranks; the longest first.
    pub spans: Vec<(String, Nanoseconds)>,
    /// Number of watched ranks with known single steps.
    pub heard: usize,
    /// Rows of the job view as they are listed.
    pub lines: Vec<usize>,
    /// The job and the second for which everything except the lines was computed.
    made: Option<(JobName, u64)>,
    /// The job and the second of the brief version on the overview.
    glanced: Option<(JobName, u64)>,
}

/// The columns by which the ranks can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepColumn {
    Skew,
    StepTime,
    Gemm,
    Blocked,
}

impl Sortable for StepColumn {
    const ALL: &'static [Self] = &[Self::Skew, Self::StepTime, Self::Gemm, Self::Blocked];

    fn title(self) -> &'static str {
        match self {
            Self::Skew => "arrival skew",
            Self::StepTime => "step time",
            Self::Gemm => "TFLOPS",
            Self::Blocked => "host waits %",
        }
    }

    fn large_first(self) -> bool {
        matches!(self, Self::Skew | Self::StepTime)
    }
}

impl StepColumn {
    pub(crate) fn of(self, row: &Row) -> Option<f64> {
        match self {
            Self::Skew => row.status.lateness_ms_p50,
            Self::StepTime => row.status.step_ms_mean,
            Self::Gemm => row.status.gemm_tflops.map(|rate| rate.0),
            Self::Blocked => row.status.blocked_pct,
        }
    }
}

impl Steps {
    /// Updates once a second what the overview shows: figures of some ranks, without watching them.
    pub(crate) fn refresh_overview(
        &mut self,
        job: &Job,
        ranks: impl FnOnce() -> BTreeSet<Rank>,
        step_times: &StepTimes,
        now: Moment,
    ) {
        let glancing = (job.name().clone(), now.0 / 1_000_000_000);
        if self.glanced.as_ref() != Some(&glancing) {
            (self.glanced, self.made) = (Some(glancing), None);
            self.changes = step_times.changes();
            self.breakdown = middle(job, ranks().into_iter());
        }
    }

    /// Updates the page: the lines always, the rest once a second.
    pub(crate) fn settle(
        &mut self,
        job: &Job,
        job_view: &JobView,
        watched: &Watched,
        step_times: &StepTimes,
        now: Moment,
    ) {
        // Figures arrive at any time within the second, and the list must always be sorted by them.
        let (rows, order) = (job_view.rows(), self.order);
        self.lines = (0..rows.len()).collect();
        self.lines.sort_by(|&one, &other| order.compare(order.by.of(&rows[one]), order.by.of(&rows[other])));
        let making = (job.name().clone(), now.0 / 1_000_000_000);
        if self.made.as_ref() == Some(&making) {
            return;
        }
        (self.made, self.glanced) = (Some(making), None);
        self.changes = step_times.changes();
        self.breakdown = middle(job, watched.ranks.iter().copied().filter(|&rank| job_view.counts(rank)));
        let views = || watched.ranks.iter().filter_map(|&rank| job.rank(rank));
        self.singles = Histogram::new();
        views().filter_map(RankView::single_steps).for_each(|steps| self.singles.merge(steps));
        self.spans = spans(views());
        self.heard = views().filter_map(RankView::single_steps).filter(|steps| !steps.is_empty()).count();
    }
}

fn spans<'a>(views: impl Iterator<Item = &'a RankView>) -> Vec<(String, Nanoseconds)> {
    let mut by_name: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, took) in views.flat_map(RankView::spans) {
        by_name.entry(name).or_default().push(took.0 as f64);
    }
    let middle = by_name.into_iter().filter_map(|(name, took)| Some((name.to_owned(), median(took)?)));
    let mut all: Vec<_> = middle.map(|(name, took)| (name, Nanoseconds(took as u64))).collect();
    all.sort_by_key(|&(_, took)| Reverse(took));
    all
}

fn middle(job: &Job, ranks: impl Iterator<Item = Rank>) -> Breakdown {
    let known: Vec<_> = ranks.filter_map(|rank| job.breakdown(rank)).collect();
    Breakdown::middle(&known)
}
