//! Figures over all ranks of a job, in few passes: with ten thousand ranks each pass is noticeable.

use std::{collections::BTreeSet, time::Duration};

use xpu_model::{
    finding::{self, Log, Lost},
    job::{Job, mean, median, processes},
    status,
};
use xpu_wire::{
    frame::Life,
    id::{HostName, Step},
    unit::{Moment, Nanoseconds},
};

use super::{Clock, Headline, JobView, Losses, Metric, Outlier, RankLayout, Row};
use crate::widget::scale::Scale;

impl JobView {
    /// Takes from each rank's report what every redraw needs.
    pub(super) fn read_reports(&mut self, job: &Job, clock: impl Fn(&HostName) -> Clock) {
        // Neighbouring ranks are mostly on the same host.
        let mut last: Option<(&HostName, Clock)> = None;
        let mut losses = Losses { frames: self.losses.frames, ..Losses::default() };
        (self.since_step, self.overhead) = (None, 0.0);
        for (row, (_, view)) in self.rows.iter_mut().zip(job.ranks()) {
            let host = view.host();
            let clock = last.filter(|(of, _)| *of == host).map_or_else(|| clock(host), |(_, clock)| clock);
            last = Some((host, clock));
            row.update_age(view, clock);
            let Some(digest) = view.latest() else { continue };
            if digest.step.is_some() {
                let since = clock.age(digest.step_at);
                self.since_step = Some(self.since_step.map_or(since, |least| least.min(since)));
            }
            losses.records += digest.dropped_records;
            losses.untimed += digest.untimed;
            self.overhead = self.overhead.max(f64::from(digest.overhead_ppm) / 1e6);
        }
        self.losses = losses;
        self.age = self.rows.iter().map(|row| row.age).min().unwrap_or_default();
    }

    pub(super) fn compute(&mut self, job: &Job, now: Moment, examination: Examination) {
        self.world_size = job.world_size();
        let laid_out_for = Some((self.rows.len(), self.world_size));
        if self.laid_out_for != laid_out_for {
            self.rank_layout = RankLayout::of(&self.rows, self.world_size);
            self.laid_out_for = laid_out_for;
        }
        let heard = || self.rows.iter().filter(|row| row.is_heard() || row.life == Life::Ended);
        (self.heard, self.hosts) = if self.is_over() {
            (job.processes().count(), job.hosts().len())
        } else {
            (processes(heard().map(|row| row.status.rank)), hosts(heard()))
        };
        self.examine(job, now, examination);
        let sums = Sums::of(self.current(), self.rows.len());
        self.steps = sums.steps;
        self.step_time = median(sums.step_times).map(|milliseconds| Nanoseconds((milliseconds * 1e6) as u64));
        self.usual_step = self.step_time.or(self.usual_step);
        let scales = Metric::ALL.iter().zip(sums.figures);
        let scales =
            scales.map(|(metric, values)| Scale::measured(values, metric.worse(), self.whole(*metric)));
        for (metric, scale) in scales.collect::<Vec<_>>().into_iter().enumerate() {
            self.scales[metric] = scale;
        }
        self.step_sign = self.current().filter_map(|row| row.status.step_source).max();
        self.step_clock = self.current().filter_map(|row| row.status.step_timed_by).max();
        self.optimizer = status::optimizer(job);
        self.tokens_per_s = status::sum(self.current().filter_map(|row| row.status.tokens_per_s));
        self.mfu = mean(self.current().filter_map(|row| row.status.mfu));
        self.partly_seen = job.partly_seen();
        self.ranks_off = status::ranks_off(job);
        self.blind = status::blind(job);
        self.turned_away = job.turned_away();
        self.take_headline();
        self.outlier = Outlier::among(self);
    }

    /// Computes the findings; with many ranks at most once a second, or when a rank joined or ended.
    fn examine(&mut self, job: &Job, now: Moment, examination: Examination) {
        let is_due = self.examined != Some(examination);
        if is_due {
            self.examined = Some(examination);
            self.findings = self.examiner.examine(job, now);
        }
        let is_over = self.is_over();
        for (row, (rank, view)) in self.rows.iter_mut().zip(job.ranks()) {
            row.place(view, finding::state(&self.findings, rank, view), is_over);
            row.named = None;
        }
        self.has_new_findings |= is_due;
        // The worst finding is the first one, so the list is applied in reverse: it must take effect last.
        for finding in self.findings.iter().rev() {
            for &rank in &finding.ranks {
                if let Ok(at) = self.rows.binary_search_by_key(&rank, |row| row.status.rank) {
                    self.rows[at].named = Some(finding.kind);
                }
            }
        }
    }

    /// Adds to new findings what the log knows of the time before, and computes what follows from that.
    pub(in crate::app) fn extend_findings(&mut self, job: &Job, log: Option<&Log>, now: Moment) {
        if !std::mem::take(&mut self.has_new_findings) {
            return;
        }
        if let Some(log) = log {
            log.extend(&mut self.findings, now, job.last_report());
        }
        if let Some(price) = self.price {
            price.apply(&mut self.findings);
        }
        self.lost = Lost::to(&self.findings);
        let live = || self.rows.iter().filter(|row| row.status.is_live()).map(|row| row.status.rank);
        let waited_pct = finding::waited_pct(&self.findings, live().count());
        self.bound = job.bound(live(), waited_pct);
        self.lacks_past_run = self.examiner.lacks_past_run(job);
    }

    /// While no figures are current, the header keeps the last ones, with their age.
    fn take_headline(&mut self) {
        let age = self.rows.iter().map(|row| row.status.figures_age_s).collect::<Option<Vec<_>>>();
        let age = age.and_then(|ages| ages.into_iter().reduce(f64::min)).map(Duration::from_secs_f64);
        let of_now = Headline {
            step_time: self.step_time,
            gemm: self.scale(Metric::Gemm).map(|scale| scale.median),
            bus: self.scale(Metric::Bus).map(|scale| scale.median),
            tokens_per_s: self.tokens_per_s,
            mfu: self.mfu,
            age,
        };
        let before = age.is_some() && !self.is_over();
        self.headline = if before { Headline { age, ..self.headline } } else { of_now };
    }
}

/// With at most this many ranks, findings are computed from all shown data; with more, from the state of this
/// second.
const FEW: usize = 128;

/// The state for which findings were computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Examination {
    second: u64,
    living: usize,
    /// The job's revision, if it has at most [`FEW`] ranks.
    revision: Option<u64>,
}

impl Examination {
    pub(super) fn of(job: &Job, now: Moment) -> Self {
        let revision = (job.ranks().len() < FEW).then(|| job.revision());
        Self { second: now.0 / 1_000_000_000, living: job.living(), revision }
    }
}

/// The number of hosts. Neighbouring ranks are mostly on the same host.
fn hosts<'a>(rows: impl Iterator<Item = &'a Row>) -> usize {
    let mut last = None;
    let others = rows.map(|row| &row.status.host).filter(|&host| last.replace(host) != Some(host));
    others.collect::<BTreeSet<_>>().len()
}

/// Sums over the rows whose figures count.
struct Sums {
    steps: Option<(Step, Step)>,
    step_times: Vec<f64>,
    /// The figures, by metric.
    figures: [Vec<f64>; Metric::ALL.len()],
}

impl Sums {
    fn of<'a>(rows: impl Iterator<Item = &'a Row>, at_most: usize) -> Self {
        let mut sums = Self {
            steps: None,
            step_times: Vec::with_capacity(at_most),
            figures: std::array::from_fn(|_| Vec::with_capacity(at_most)),
        };
        for row in rows {
            if let Some(step) = row.status.step_or_bound() {
                let (least, most) = sums.steps.unwrap_or((step, step));
                sums.steps = Some((least.min(step), most.max(step)));
            }
            sums.step_times.extend(row.status.step_ms_mean);
            for (metric, values) in Metric::ALL.into_iter().zip(&mut sums.figures) {
                values.extend(metric.of(row));
            }
        }
        sums
    }
}
