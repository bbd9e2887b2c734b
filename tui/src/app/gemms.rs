//! GEMMs by shape, over the watched ranks: the speed of each shape, and the ranks on which it is slow.

use std::collections::BTreeMap;

use xpu_model::{
    job::{Job, RankView, median},
    peak::Peaks,
    stack::Ranks,
};
use xpu_wire::{
    frame::GemmTotals,
    gemm::GemmShape,
    histogram::Histogram,
    id::Rank,
    unit::{Moment, Tflops},
};

use super::{
    Watched,
    order::{Order, Sortable},
};
use crate::widget::scale::Scale;

#[derive(Debug, Default)]
pub struct Gemms {
    shapes: Vec<Gemm>,
    /// GPU peaks given by the user, which override the data sheets.
    pub(crate) peaks: Peaks,
    pub(crate) order: Order<GemmColumn>,
    /// The selected entry, by its shape, because lists are sorted again every second.
    selected: Option<GemmShape>,
    /// Number of watched ranks whose summary has arrived.
    pub(crate) heard: usize,
    /// The second for which all this was computed, the time from which its ranks are watched, and the number
    /// of summaries that had arrived.
    made: Option<(u64, Moment, usize)>,
}

/// One shape on all ranks that are watched.
#[derive(Clone, Debug)]
pub struct Gemm {
    pub shape: GemmShape,
    /// Number of GEMMs on all these ranks since they started, and number of timed ones.
    pub count: u64,
    pub timed: u64,
    /// Its share of the GEMM time of all shapes, estimated from the timed GEMMs.
    pub share: f64,
    /// TFLOPS, the slowest rank first.
    pub rates: Vec<(Rank, f64)>,
    /// Ranks that have run it, but whose rate is unknown: none of theirs was timed.
    pub untimed: Ranks,
    pub scale: Option<Scale>,
    pub basis: Basis,
    /// The median share of each rank's GPU peak: 0.6 is 60 %.
    pub of_peak: Option<f64>,
    /// Durations on all ranks together, since they are watched.
    pub durations: Histogram,
}

/// The operations from which rates are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// FLOPs over time since each rank is watched, as on the overview.
    Watched,
    /// All timed GEMMs since the ranks started. They are used if at most half of the ranks have timed one
    /// while they were watched, because the slowest of those few need not be the slowest of all.
    Started,
}

/// The columns by which the list can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmColumn {
    Share,
    Count,
    Rate,
    Peak,
    Below,
    Time,
}

impl Sortable for GemmColumn {
    const ALL: &'static [Self] = &[Self::Share, Self::Count, Self::Rate, Self::Peak, Self::Below, Self::Time];

    fn title(self) -> &'static str {
        match self {
            Self::Share => "share of GEMM time",
            Self::Count => "count",
            Self::Rate => "TFLOPS",
            Self::Peak => "% of peak",
            Self::Below => "slowest rank",
            Self::Time => "p99",
        }
    }

    fn large_first(self) -> bool {
        !matches!(self, Self::Rate | Self::Peak)
    }
}

impl Gemm {
    fn of(shape: GemmShape, ranks: &[(Rank, &RankView, &GemmTotals, Peaks)]) -> Self {
        let totals = || ranks.iter().map(|&(_, _, total, _)| total);
        let mut durations = Histogram::new();
        totals().for_each(|total| durations.merge(&total.durations));
        let watched = ranks.iter().filter(|(_, view, total, _)| view.gemms_timed(total).is_some()).count();
        let basis = if 2 * watched > ranks.len() { Basis::Watched } else { Basis::Started };
        let rate = |view: &RankView, total: &GemmTotals| {
            let (timed, time) = match basis {
                Basis::Watched => view.gemms_timed(total)?,
                Basis::Started => (total.timed, total.timed_for),
            };
            Tflops::from_work(shape.flops() * timed as f64, time)
        };
        let known = || {
            ranks.iter().filter_map(|(rank, view, total, peaks)| Some((*rank, rate(view, total)?.0, peaks)))
        };
        let shares = known().filter_map(|(_, rate, peaks)| {
            // Seconds at the peak, and at this rate.
            Some(peaks.seconds(&shape)? / (shape.flops() / (rate * 1e12)))
        });
        let of_peak = median(shares.collect());
        let mut rates: Vec<_> = known().map(|(rank, rate, _)| (rank, rate)).collect();
        rates.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let is_known = |rank| rates.iter().any(|(known, _)| *known == rank);
        let untimed = ranks.iter().map(|(rank, ..)| *rank).filter(|&rank| !is_known(rank)).collect();
        Self {
            shape,
            untimed,
            count: totals().map(|total| total.count).sum(),
            timed: totals().map(|total| total.timed).sum(),
            share: totals().map(estimated_time).sum(),
            scale: Scale::of(rates.iter().map(|&(_, rate)| rate).collect()),
            rates,
            basis,
            of_peak,
            durations,
        }
    }

    /// TFLOPS of the median rank.
    pub fn rate(&self) -> Option<f64> {
        self.scale.map(|scale| scale.median)
    }

    /// The slowest rank, and its share below the median.
    pub fn slowest(&self) -> Option<(Rank, f64)> {
        let &(rank, rate) = self.rates.first()?;
        Some((rank, -self.scale?.deviation(rate)))
    }

    /// Whether this rate is low enough to be marked as slow.
    pub fn is_slow(&self, rate: f64) -> bool {
        self.scale.is_some_and(|scale| scale.is_bad(rate))
    }

    fn figure(&self, column: GemmColumn) -> Option<f64> {
        match column {
            GemmColumn::Share => Some(self.share),
            GemmColumn::Count => Some(self.count as f64),
            GemmColumn::Rate => self.rate(),
            GemmColumn::Peak => self.of_peak,
            GemmColumn::Below => self.slowest().map(|(_, below)| below),
            GemmColumn::Time => self.durations.median().map(|time| time.0 as f64),
        }
    }
}

/// The time of all GEMMs of a shape on a rank, if the untimed ones took as long as the timed ones.
fn estimated_time(total: &GemmTotals) -> f64 {
    total.timed_for.0 as f64 * total.count as f64 / total.timed.max(1) as f64
}

impl Gemms {
    /// Updates the list once a second, because this goes through every shape of every rank; also when the
    /// first summary of a rank arrives.
    pub(crate) fn settle(&mut self, job: &Job, watched: &Watched, now: Moment) {
        self.heard = watched.with_summary(job);
        let making = (now.0 / 1_000_000_000, watched.since, self.heard);
        if self.made != Some(making) {
            self.made = Some(making);
            self.shapes = shapes(job, watched, self.peaks);
        }
        let order = self.order;
        self.shapes.sort_by(|one, other| {
            let figures = (one.figure(order.by), other.figure(order.by));
            order.compare(figures.0, figures.1).then_with(|| one.shape.cmp(&other.shape))
        });
    }

    pub fn shapes(&self) -> &[Gemm] {
        &self.shapes
    }

    /// The index of the selected shape: the first one, if none was chosen.
    pub fn at(&self) -> usize {
        let chosen = |shape| self.shapes.iter().position(|gemm| gemm.shape == shape);
        self.selected.and_then(chosen).unwrap_or(0)
    }

    pub fn selected(&self) -> Option<&Gemm> {
        self.shapes.get(self.at())
    }

    pub(crate) fn select(&mut self, index: usize) {
        self.selected = self.shapes.get(index).map(|gemm| gemm.shape);
    }
}

fn shapes(job: &Job, watched: &Watched, peaks: Peaks) -> Vec<Gemm> {
    let mut by_shape: BTreeMap<GemmShape, Vec<(Rank, &RankView, &GemmTotals, Peaks)>> = BTreeMap::new();
    for &rank in &watched.ranks {
        let Some(view) = job.rank(rank) else { continue };
        let peaks = view.summary().map_or(peaks, |summary| peaks.or_of(&summary.device));
        for total in view.gemms() {
            by_shape.entry(total.shape).or_default().push((rank, view, total, peaks));
        }
    }
    let mut shapes: Vec<_> = by_shape.into_iter().map(|(shape, ranks)| Gemm::of(shape, &ranks)).collect();
    let all: f64 = shapes.iter().map(|gemm| gemm.share).sum();
    for gemm in &mut shapes {
        gemm.share /= all.max(1.0);
    }
    shapes
}
