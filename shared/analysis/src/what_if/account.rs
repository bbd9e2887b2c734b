//! The GPU time that stragglers cost a job, from what-if estimates of a few steps each.
//!
//! Each step between two estimates counts as the mean of both. Only steps count, not time: a pause between
//! captures, or a job that hangs, adds nothing.

use std::collections::BTreeMap;

use serde::Serialize;
use xpu_model::finding::{Money, Price};
use xpu_wire::{
    frame::JobWhatIf,
    id::{HostName, JobName, Rank, Step},
    unit::Moment,
};

use super::{Cause, Loss, WhatIf};

/// The figures of one capture.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// Seconds since 1970.
    pub at: f64,
    pub first: Step,
    pub last: Step,
    /// Workers: one GPU each.
    pub ranks: usize,
    pub slowdown: f64,
    pub waste: f64,
    pub m_w: Option<f64>,
    pub m_s: Option<f64>,
    pub step: super::StepTimes,
    pub losses: Vec<Loss>,
    pub sentences: Vec<String>,
}

impl Estimate {
    /// `None` for figures without steps.
    pub fn of(figures: &WhatIf, at: Moment) -> Option<Self> {
        Some(Self {
            at: at.0 as f64 / 1e9,
            first: *figures.steps.first()?,
            last: *figures.steps.last()?,
            ranks: figures.workers.len(),
            slowdown: figures.slowdown,
            waste: figures.waste,
            m_w: figures.m_w,
            m_s: figures.m_s,
            step: figures.step,
            losses: figures.losses(),
            sentences: figures.sentences.clone(),
        })
    }

    /// GPU-hours of this many steps, per millisecond of a step.
    fn hours(&self, steps: f64) -> f64 {
        steps * self.ranks as f64 / 3.6e6
    }
}

/// The losses since the first estimate.
#[derive(Clone, Debug, Default)]
pub struct Account {
    last: Option<Estimate>,
    taken: u64,
    failed: u64,
    steps: u64,
    /// GPU-hours of all ranks in those steps.
    hours: f64,
    causes: BTreeMap<Cause, f64>,
    ranks: BTreeMap<Rank, f64>,
    hosts: BTreeMap<HostName, f64>,
}

impl Account {
    /// Adds the steps since the last estimate. For the first estimate, and if the job's step numbers
    /// restarted, adds only the steps of the estimate itself.
    pub fn add(&mut self, estimate: Estimate) {
        let before = self.last.take().filter(|before| estimate.last > before.last);
        let steps = match &before {
            Some(before) => estimate.last.0 - before.last.0,
            None => estimate.last.0 + 1 - estimate.first.0,
        };
        match before {
            Some(before) => {
                self.count(&before, steps as f64 / 2.0);
                self.count(&estimate, steps as f64 / 2.0);
            }
            None => self.count(&estimate, steps as f64),
        }
        self.steps += steps;
        self.taken += 1;
        self.last = Some(estimate);
    }

    /// Counts a capture that gave no estimate.
    pub fn fail(&mut self) {
        self.failed += 1;
    }

    fn count(&mut self, estimate: &Estimate, steps: f64) {
        let hours = estimate.hours(steps);
        self.hours += hours * estimate.step.simulated_ms;
        for Loss { cause, ranks, host, lost_ms, .. } in &estimate.losses {
            let lost = hours * lost_ms;
            *self.causes.entry(*cause).or_default() += lost;
            for rank in ranks {
                *self.ranks.entry(*rank).or_default() += lost / ranks.len() as f64;
            }
            if let Some(host) = host {
                *self.hosts.entry(host.clone()).or_default() += lost;
            }
        }
    }

    pub fn last(&self) -> Option<&Estimate> {
        self.last.as_ref()
    }

    /// The total loss; ranks are sorted by loss, the largest first.
    pub fn total(&self, price: Option<Price>) -> Total {
        let lost = |gpu_hours: f64| Lost { gpu_hours, money: price.map(|price| price.of(gpu_hours)) };
        let rank = |(rank, hours)| RankLost { rank, lost: lost(hours) };
        let host = |(host, hours)| HostLost { host, lost: lost(hours) };
        Total {
            estimates: self.taken,
            failed: self.failed,
            steps: self.steps,
            gpu_hours: self.hours,
            lost: self.causes.iter().map(|(&cause, &hours)| (cause, lost(hours))).collect(),
            ranks: costliest(&self.ranks).into_iter().map(rank).collect(),
            hosts: costliest(&self.hosts).into_iter().map(host).collect(),
        }
    }

    /// The total loss as a frame. `last` is the result of the last capture.
    pub fn frame(
        &self,
        job: JobName,
        since: Moment,
        at: Moment,
        last: Result<&Estimate, &String>,
    ) -> JobWhatIf {
        JobWhatIf {
            job,
            since,
            at,
            estimates: self.taken,
            failed: self.failed,
            why: last.err().cloned().unwrap_or_default(),
            steps: self.steps,
            gpu_hours: self.hours,
            lost: self.causes.iter().map(|(&cause, &hours)| (cause, hours)).collect(),
            ranks: costliest(&self.ranks),
            hosts: costliest(&self.hosts),
            sentences: last.map(|estimate| estimate.sentences.clone()).unwrap_or_default(),
        }
        .bounded()
    }
}

/// The largest losses, the largest first.
fn costliest<T: Clone + Ord>(hours: &BTreeMap<T, f64>) -> Vec<(T, f64)> {
    let mut all: Vec<_> = hours.iter().map(|(of, &hours)| (of.clone(), hours)).collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    all.truncate(JobWhatIf::MOST);
    all
}

/// GPU-hours, and their price if one is set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lost {
    pub gpu_hours: f64,
    #[serde(flatten)]
    pub money: Option<Money>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankLost {
    pub rank: Rank,
    #[serde(flatten)]
    pub lost: Lost,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostLost {
    pub host: HostName,
    #[serde(flatten)]
    pub lost: Lost,
}

/// The losses since the first estimate. Causes overlap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Total {
    pub estimates: u64,
    /// Number of captures that gave no estimate.
    pub failed: u64,
    /// Steps from the first estimate to the last.
    pub steps: u64,
    /// GPU-hours of all ranks in those steps, lost or not.
    pub gpu_hours: f64,
    pub lost: BTreeMap<Cause, Lost>,
    /// The loss by rank, the largest first; ranks that are slow together get equal parts of their loss.
    pub ranks: Vec<RankLost>,
    pub hosts: Vec<HostLost>,
}

#[cfg(test)]
mod tests;
