//! Measures the baseline of a run while it lasts.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{
    id::{HostName, Pid, Rank},
    unit::{Moment, Nanoseconds},
};

use super::{
    Baseline, Gpu, Normal,
    runs::{began, gpu},
};
use crate::job::{Job, RankView, median};

/// Number of first steps, which compile and warm up, and the time after which half-minute figures no longer
/// include them.
const FIRST: u64 = 10;
const WARM: Duration = Duration::from_secs(30);

/// Time without progress after which a rank has no current figures.
const MOVES: Duration = Duration::from_secs(5);

/// Readings kept per rank. When they are full, every second one is dropped, and the interval doubles.
const READINGS: usize = 256;

/// Readings needed for a baseline.
const LEAST: usize = 3;

/// Figures of one reading; NaN for an unknown one.
const FIGURES: usize = 7;

#[derive(Debug, Default)]
pub struct Measure {
    ranks: BTreeMap<Rank, Readings>,
}

#[derive(Debug)]
struct Readings {
    pid: Pid,
    host: HostName,
    /// When its first steps were done, and when it was last read.
    warm: Option<Moment>,
    first: Moment,
    last: Moment,
    all: Vec<[f32; FIGURES]>,
    /// One reading in this many is kept.
    every: u32,
    skipped: u32,
}

impl Measure {
    /// Reads all ranks, every few seconds.
    pub fn take(&mut self, job: &Job) {
        for (rank, view) in job.ranks().filter(|(_, view)| view.is_alive()) {
            let new = || Readings::new(view);
            let readings = self.ranks.entry(rank).or_insert_with(new);
            if readings.pid != view.pid() {
                *readings = new();
            }
            readings.take(job, view);
        }
    }

    /// The baseline so far; `None` while too little is known.
    pub fn baseline(&self, job: &Job, gpu_name: &str) -> Option<Baseline> {
        let ranks: Vec<_> = self.ranks.iter().filter_map(|(&rank, all)| all.normal(rank)).collect();
        let gpu = Gpu { name: gpu_name.to_owned(), ..gpu(job) };
        let (job, world_size, began) = (job.name().clone(), job.world_size(), began(job)?);
        (!ranks.is_empty()).then_some(Baseline { job, world_size, began, gpu, ranks })
    }
}

impl Readings {
    fn new(view: &RankView) -> Self {
        let (pid, host) = (view.pid(), view.host().clone());
        let never = Moment::default();
        Self { pid, host, warm: None, first: never, last: never, all: Vec::new(), every: 1, skipped: 0 }
    }

    fn take(&mut self, job: &Job, view: &RankView) {
        let is_begun = view.step().is_some_and(|step| step.0 >= FIRST);
        let heard = view.last_report();
        if !is_begun || view.stalled_for() > MOVES || heard <= self.last {
            return;
        }
        let warm = *self.warm.get_or_insert(heard);
        if heard.since(warm) < WARM {
            return;
        }
        if self.all.is_empty() {
            self.first = heard;
        }
        self.last = heard;
        self.skipped += 1;
        if self.skipped < self.every {
            return;
        }
        self.skipped = 0;
        let ms = |time: Option<Nanoseconds>| time.map(Nanoseconds::milliseconds);
        let (bus, _) = job.bus_and_skew(view);
        let figures = [
            ms(view.step_time()),
            ms(view.step_p50()),
            ms(view.step_p99()),
            work(view),
            view.gemm_rate().map(|rate| rate.0),
            bus.map(|rate| rate.0),
            view.straggler_delay().map(|delay| 100.0 * delay.cost),
        ];
        self.all.push(figures.map(|figure| figure.map_or(f32::NAN, |figure| figure as f32)));
        if self.all.len() == READINGS {
            let mut at = 0;
            self.all.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.every *= 2;
        }
    }

    fn normal(&self, rank: Rank) -> Option<Normal> {
        if self.all.len() < LEAST {
            return None;
        }
        let values = |figure: usize| -> Vec<f64> {
            let all = self.all.iter().map(|reading| f64::from(reading[figure]));
            all.filter(|value| value.is_finite()).collect()
        };
        let middle = |figure| median(values(figure));
        let mean = middle(0);
        let off = mean.map(|mean| values(0).into_iter().map(|value| (value - mean).abs()).collect());
        Some(Normal {
            rank,
            host: self.host.clone(),
            measured_s: self.last.since(self.first).as_secs_f64() + WARM.as_secs_f64(),
            step_ms_mean: mean,
            step_ms_spread: off.and_then(median).map(|spread| 1.4826 * spread),
            step_ms_p50: middle(1),
            step_ms_p99: middle(2),
            step_tflop: middle(3),
            gemm_tflops: middle(4),
            bus_gb_s: middle(5),
            cost_pct: middle(6),
        })
    }
}

/// FLOPs of a step, in TFLOP, over the last half minute.
pub(crate) fn work(view: &RankView) -> Option<f64> {
    let latest = || view.pace_samples().rev().take(WARM.as_secs() as usize);
    let sum =
        |of: fn(&crate::job::PaceSample) -> f32| latest().map(|sample| f64::from(of(sample))).sum::<f64>();
    let (work, steps) = (sum(|sample| sample.work), sum(|sample| sample.steps));
    (steps > 0.0 && work > 0.0).then(|| work / steps)
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;

    use super::*;
    use crate::job::Jobs;

    #[test]
    fn a_run_is_measured_from_its_steady_state_on_in_bounded_memory() {
        let simulation = Simulation::new(1, 1, 2);
        let (mut jobs, mut measure) = (Jobs::default(), Measure::default());
        simulation.snapshots(0).iter().for_each(|frame| jobs.fold(frame));
        for second in 1..4000 {
            simulation.digests(second).iter().for_each(|frame| jobs.fold(frame));
            let job = jobs.foremost().unwrap();
            if second.is_multiple_of(5) {
                measure.take(job);
                let known = measure.baseline(job, "H200");
                assert_eq!(known.is_some(), second >= 45, "second {second}");
            }
        }
        let normal = measure.baseline(jobs.foremost().unwrap(), "H200").unwrap();
        assert_eq!((normal.ranks.len(), normal.world_size, normal.gpu.name.as_str()), (2, 2, "H200"));
        assert!(measure.ranks.values().all(|readings| readings.all.len() < READINGS));
        let rank = &normal.ranks[1];
        // Nine steps a second.
        assert!((rank.step_ms_mean.unwrap() - 1000.0 / 9.0).abs() < 1.0, "{rank:?}");
        assert!((rank.step_ms_p50.unwrap() - 1000.0 / 9.0).abs() < 1.0, "{rank:?}");
        assert!(
            (rank.gemm_tflops.unwrap() / 640.0 - 1.0).abs() < 0.05 && rank.bus_gb_s.is_some(),
            "{rank:?}"
        );
    }
}
