//! Step times of a job over the last hour: one point per second with a completed step.

use std::collections::VecDeque;

use serde::Serialize;
use xpu_wire::{
    id::{JobName, Rank, Step},
    unit::Moment,
};

use crate::{
    change_point::{ChangePoint, changes},
    job::{Job, median},
};

/// An hour of seconds.
const REMEMBERED: usize = 3_600;

/// One second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub at: Moment,
    /// The step of the rank with the most steps.
    pub step: Step,
    /// The step time in milliseconds, of the median rank and of the slowest.
    #[serde(rename = "median_ms")]
    pub median: f32,
    #[serde(rename = "worst_ms")]
    pub worst: f32,
    pub rank: Rank,
}

#[derive(Debug, Default)]
pub struct StepTimes {
    job: JobName,
    points: VecDeque<Point>,
    looked: u64,
}

impl StepTimes {
    /// Adds the present step times, once a second, if the job made progress.
    pub fn follow(&mut self, job: &Job, now: Moment) {
        if self.job != *job.name() {
            *self = Self { job: job.name().clone(), ..Self::default() };
        }
        if std::mem::replace(&mut self.looked, now.0 / 1_000_000_000) == now.0 / 1_000_000_000 {
            return;
        }
        let living = || job.ranks().filter(|(_, view)| view.is_alive());
        let Some(step) = living().filter_map(|(_, view)| view.step()).max() else { return };
        if self.points.back().is_some_and(|last| last.step == step) {
            return;
        }
        let paces = || {
            living().filter_map(|(rank, view)| {
                view.pace_samples().last().map(|sample| (rank, sample.span / sample.steps * 1e3))
            })
        };
        let worst = paces().max_by(|(_, one), (_, other)| one.total_cmp(other));
        let middle = median(paces().map(|(_, pace)| f64::from(pace)).collect());
        if let (Some((rank, worst)), Some(median)) = (worst, middle) {
            if self.points.len() == REMEMBERED {
                self.points.pop_front();
            }
            self.points.push_back(Point { at: now, step, median: median as f32, worst, rank });
        }
    }

    /// Oldest first.
    pub fn points(&self) -> impl ExactSizeIterator<Item = &Point> + DoubleEndedIterator {
        self.points.iter()
    }

    /// Where steps became permanently longer or shorter, and the first point of each.
    pub fn changes(&self) -> Vec<(Point, ChangePoint)> {
        let medians: Vec<_> = self.points.iter().map(|point| f64::from(point.median)).collect();
        let known = changes(&medians).into_iter();
        known.filter_map(|change| Some((*self.points.get(change.at)?, change))).collect()
    }
}
