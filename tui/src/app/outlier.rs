//! The rank that is an outlier by its figures alone, before a finding names it.

use xpu_wire::id::Rank;

use super::{JobView, Metric};

/// A rank well below the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// The index of the rank among the rows.
    pub row: usize,
    pub metric: Metric,
    pub value: f64,
    /// Distance from the median as a share of it; negative, because it is below.
    pub deviation: f64,
    /// Number of other ranks that are low as well.
    pub others: usize,
}

impl Outlier {
    /// The lowest rank by GEMM rate, else by bandwidth, if it is low enough to be reported.
    pub(super) fn among(job_view: &JobView) -> Option<Self> {
        [Metric::Gemm, Metric::Bus].into_iter().find_map(|metric| {
            let scale = job_view.scale(metric)?;
            let values = || job_view.rows().iter().enumerate().filter(|(_, row)| row.is_heard());
            let low = || {
                values()
                    .filter_map(move |(index, row)| Some((index, metric.of(row)?)))
                    .filter(|&(_, value)| scale.is_bad(value))
            };
            let (row, value) = low().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
            Some(Self { row, metric, value, deviation: scale.deviation(value), others: low().count() - 1 })
        })
    }

    pub fn rank(&self, job_view: &JobView) -> Rank {
        job_view.rows()[self.row].status.rank
    }
}
