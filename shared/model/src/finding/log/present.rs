//! A finding that is present, and what it has cost since its fault began.

use std::time::Duration;

use xpu_wire::unit::Moment;

use crate::finding::{Cost, Finding};

/// The first costs of a finding are too low, because they are means over the time before the fault too. Meanwhile,
/// the newest is the best for the time since the fault began.
const SETTLES: Duration = Duration::from_secs(30);

/// The same in updates: in a history that was merged, each digest covers minutes.
const SETTLES_AFTER: u32 = 30;

#[derive(Debug)]
pub(super) struct Present {
    /// When it was first seen.
    pub(super) since: Moment,
    /// When the fault began, by the figures of `costliest`.
    pub(super) began: Moment,
    pub(super) finding: Finding,
    /// The finding when it cost most. At its end, most of its figures are from after the fault.
    costliest: Finding,
    /// When a finding about some of the same ranks had ended. What was lost before is not counted again.
    not_before: Moment,
    /// GPU-hours lost until `heard`; `None` while no cost is known.
    gpu_hours: Option<f64>,
    /// The newest report that is included, and the number of updates with a newer one than before.
    heard: Moment,
    updates: u32,
    /// Whether a larger delay has hidden it.
    was_hidden: bool,
}

impl Present {
    pub(super) fn new(finding: &Finding, now: Moment, heard: Moment, not_before: Moment) -> Self {
        let began = began(finding, now).max(not_before);
        Self {
            since: now,
            began,
            finding: finding.clone(),
            costliest: finding.clone(),
            not_before,
            gpu_hours: finding.cost.map(|cost| {
                if finding.stops_the_job() { cost.gpu_hours } else { lost_since(began, cost, now) }
            }),
            heard,
            updates: 0,
            was_hidden: is_hidden(finding),
        }
    }

    /// GPU-hours lost until the report at `heard`. The time since the last update is charged with the cost of then,
    /// so that the sum never decreases. Those of a job without progress follow from its duration alone.
    pub(super) fn gpu_hours(&self, finding: &Finding, now: Moment, heard: Moment) -> Option<f64> {
        if finding.stops_the_job() {
            return finding.cost.map(|cost| cost.gpu_hours);
        }
        let newest = || {
            let cost = finding.cost?;
            Some(lost_since(began(finding, now).max(self.not_before), cost, now))
        };
        let Some(before) = self.gpu_hours else { return newest() };
        let cost = self.finding.cost.filter(|_| self.finding.evidence.age_s().is_none());
        let sum = before + cost.map_or(0.0, |cost| cost.gpu_hours_in(heard.since(self.heard)));
        let is_new = now.since(self.since) < SETTLES || self.updates < SETTLES_AFTER;
        let was_seen = !self.was_hidden && !is_hidden(finding) && heard > self.heard;
        Some(newest().filter(|_| is_new && was_seen).map_or(sum, |newest| newest.max(sum)))
    }

    pub(super) fn update(&mut self, finding: &Finding, now: Moment, heard: Moment) {
        self.gpu_hours = self.gpu_hours(finding, now, heard).or(self.gpu_hours);
        let has_advanced = heard > self.heard;
        self.updates += u32::from(has_advanced);
        self.heard = self.heard.max(heard);
        self.was_hidden |= is_hidden(finding);
        // The least that it costs: the first figures are the least certain.
        let least = |finding: &Finding| finding.cost.map(|cost| cost.pct - cost.pct_error);
        if least(finding) > least(&self.costliest) {
            self.take_costliest(finding, now);
        } else if least(finding) == least(&self.costliest) {
            // Its begin stays, because that by the figures moves on with the clock once they are old.
            self.costliest = finding.clone();
        }
        self.finding = finding.clone();
    }

    /// Goes on as a finding that knows more of the same fault.
    pub(super) fn carry_over(&mut self, finding: &Finding, now: Moment, heard: Moment) {
        self.update(finding, now, heard);
        self.take_costliest(finding, now);
    }

    fn take_costliest(&mut self, finding: &Finding, now: Moment) {
        self.costliest = finding.clone();
        self.began = began(finding, now).max(self.not_before).min(self.since);
    }

    /// The finding when it cost most, with all that was lost.
    pub(super) fn in_total(self) -> Finding {
        let mut finding = self.costliest;
        if let (Some(cost), Some(gpu_hours)) = (&mut finding.cost, self.gpu_hours) {
            cost.gpu_hours = gpu_hours;
        }
        finding
    }
}

fn began(finding: &Finding, now: Moment) -> Moment {
    let lasted = Duration::from_secs_f64(finding.since_s.max(0.0)).as_nanos();
    Moment(now.0.saturating_sub(u64::try_from(lasted).unwrap_or(u64::MAX)))
}

/// GPU-hours lost since a moment that may be later than the begin of the finding.
fn lost_since(began: Moment, cost: Cost, now: Moment) -> f64 {
    cost.gpu_hours.min(cost.gpu_hours_in(now.since(began)))
}

fn is_hidden(finding: &Finding) -> bool {
    finding.cost.is_some_and(|cost| cost.behind.is_some())
}
