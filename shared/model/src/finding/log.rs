//! Findings that began and ended, with their times.

use std::{collections::VecDeque, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use xpu_wire::{id::Rank, unit::Moment};

use super::{Class, Finding, Kind};
use crate::figure;

/// Entries kept; the oldest are dropped.
const KEPT: usize = 256;

/// The first costs of a finding are too low, because they are means over the time before the fault too. Meanwhile,
/// the newest is the best for the time since the fault began.
const SETTLES: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    present: Vec<Present>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub at: Moment,
    pub finding: Finding,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Began,
    /// It ended, after this duration.
    Ended(Duration),
}

/// `began`, `ended after 45 s`
impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began => write!(f, "began"),
            Self::Ended(after) => write!(f, "ended after {}", figure::age(*after)),
        }
    }
}

#[derive(Debug)]
struct Present {
    /// When it was first seen.
    since: Moment,
    finding: Finding,
    /// The finding when it cost most. At its end, most of its figures are from after the fault.
    costliest: Finding,
    /// GPU-hours lost until `updated`; `None` while no cost is known.
    gpu_hours: Option<f64>,
    updated: Moment,
}

impl Present {
    fn new(finding: &Finding, now: Moment) -> Self {
        Self {
            since: now,
            finding: finding.clone(),
            costliest: finding.clone(),
            gpu_hours: finding.cost.map(|cost| cost.gpu_hours),
            updated: now,
        }
    }

    /// When the fault began, by the last figures: before it was first seen.
    fn began(&self) -> Moment {
        let lasted = Duration::from_secs_f64(self.finding.since_s.max(0.0)).as_nanos() as u64;
        self.since.min(Moment(self.updated.0.saturating_sub(lasted)))
    }

    /// GPU-hours lost until `now`, if the finding costs this now. Those of a job without progress follow from its
    /// duration alone.
    fn gpu_hours(&self, finding: &Finding, now: Moment) -> Option<f64> {
        let cost = finding.cost?;
        let Some(before) = self.gpu_hours.filter(|_| !finding.stops_the_job()) else {
            return Some(cost.gpu_hours);
        };
        let sum = before + cost.gpu_hours_in(now.since(self.updated));
        Some(if now.since(self.since) < SETTLES { sum.max(cost.gpu_hours) } else { sum })
    }

    fn update(&mut self, finding: &Finding, now: Moment) {
        self.gpu_hours = self.gpu_hours(finding, now).or(self.gpu_hours);
        self.updated = now;
        // The least that it costs: the first figures are the least certain.
        let least = |finding: &Finding| finding.cost.map_or(0.0, |cost| cost.pct - cost.pct_error);
        if least(finding) >= least(&self.costliest) {
            self.costliest = finding.clone();
        }
        self.finding = finding.clone();
    }
}

/// A finding that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedFinding {
    pub kind: Kind,
    pub class: Class,
    pub ranks: Vec<Rank>,
    /// When the fault began, and when it was last found, in seconds since 1970.
    pub began_at: f64,
    pub ended_at: f64,
    /// The headline and the evidence when it cost most.
    pub headline: String,
    pub evidence: String,
    /// GPU-hours lost, if the cost was known.
    #[serde(default)]
    pub gpu_hours: Option<f64>,
}

/// The identity of a finding from one second to the next, whatever its figures.
fn identity(finding: &Finding) -> (Kind, Class, &[Rank]) {
    (finding.kind, finding.class, &finding.ranks)
}

impl Log {
    /// Updates the log with the present findings.
    pub fn follow(&mut self, findings: &[Finding], now: Moment) {
        let is_there = |known: &Finding| findings.iter().any(|finding| identity(finding) == identity(known));
        // What is known of a hang changes while it lasts. The next hang begins seconds after the end of one.
        let hang = findings.iter().find(|finding| finding.kind == Kind::Hang);
        let before = self.present.iter_mut().find(|known| known.finding.kind == Kind::Hang);
        if let (Some(hang), Some(before)) = (hang, before)
            && !is_there(&before.finding)
        {
            before.finding = hang.clone();
            before.costliest = hang.clone();
            self.push(Entry { at: now, finding: hang.clone(), what: What::Began });
        }
        for gone in self.present.extract_if(.., |present| !is_there(&present.finding)).collect::<Vec<_>>() {
            let what = What::Ended(now.since(gone.began()));
            let mut finding = gone.costliest;
            if let (Some(cost), Some(gpu_hours)) = (&mut finding.cost, gone.gpu_hours) {
                cost.gpu_hours = gpu_hours;
            }
            self.push(Entry { at: now, finding, what });
        }
        for finding in findings {
            let known = |present: &&mut Present| identity(&present.finding) == identity(finding);
            if let Some(present) = self.present.iter_mut().find(known) {
                present.update(finding, now);
            } else {
                self.push(Entry { at: now, finding: finding.clone(), what: What::Began });
                self.present.push(Present::new(finding, now));
            }
        }
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// Ended findings, newest first.
    pub fn ended(&self) -> impl Iterator<Item = EndedFinding> {
        self.entries().filter_map(|Entry { at, finding, what }| {
            let What::Ended(after) = what else { return None };
            let Finding { kind, class, ref ranks, .. } = *finding;
            let ended_at = at.0 as f64 / 1e9;
            let began_at = ended_at - after.as_secs_f64();
            Some(EndedFinding {
                kind,
                class,
                ranks: ranks.clone(),
                began_at,
                ended_at,
                headline: finding.headline(None),
                evidence: finding.evidence.to_string(),
                gpu_hours: finding.cost.map(|cost| cost.gpu_hours),
            })
        })
    }

    /// When it was first seen, by the clock of [`Self::follow`].
    pub fn since(&self, finding: &Finding) -> Option<Moment> {
        self.present(finding).map(|present| present.since)
    }

    /// Replaces the GPU-hours of the present findings by those added up since each was first seen. A cost that
    /// changes applies from then on only.
    pub fn add_up_gpu_hours(&self, present: &mut [Finding], now: Moment) {
        for finding in present {
            let gpu_hours = self.present(finding).and_then(|known| known.gpu_hours(finding, now));
            if let (Some(cost), Some(gpu_hours)) = (&mut finding.cost, gpu_hours) {
                cost.gpu_hours = gpu_hours;
            }
        }
    }

    fn present(&self, finding: &Finding) -> Option<&Present> {
        self.present.iter().find(|present| identity(&present.finding) == identity(finding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Confidence, Cost, Evidence, Severity, evidence::hang::Elsewhere, hang::Doing};

    /// When a fault has ended, the cost decreases until the finding ends too. What was lost does not.
    #[test]
    fn an_ended_finding_has_the_figures_of_when_it_cost_most_and_all_that_was_lost() {
        let costs = |pct: f64, hung_s: f64| Finding {
            kind: Kind::SlowRank,
            class: Class::Host,
            ranks: vec![Rank(1)],
            confidence: Confidence::Likely,
            severity: Severity::Slow,
            since_s: hung_s,
            evidence: Evidence::Elsewhere(Elsewhere {
                seen: 2,
                world: 4,
                first: Rank(0),
                doing: Doing::Outside,
                hung_s,
            }),
            advice: String::new(),
            collective: None,
            cost: Some(Cost::of(pct / 100.0, 0.0, None, 2, hung_s)),
        };
        let at = |second: u64| Moment(second * 1_000_000_000);
        let mut log = Log::default();
        let (mut gpu_seconds, mut before) = (0.0, 0);
        for (second, pct) in [(1, 8.0), (11, 10.0), (41, 30.0), (81, 12.0)] {
            log.follow(&[costs(pct, second as f64)], at(second));
            // Two GPUs. The share at 11 applies to the time since the fault began, later ones to their own.
            let since = if second == 11 { 0 } else { before };
            gpu_seconds =
                gpu_seconds * f64::from(u8::from(since > 0)) + 2.0 * pct / 100.0 * (second - since) as f64;
            before = second;
            let mut present = [costs(pct, second as f64)];
            log.add_up_gpu_hours(&mut present, at(second));
            let gpu_hours = present[0].cost.unwrap().gpu_hours;
            assert!((gpu_hours * 3600.0 - gpu_seconds).abs() < 1e-9, "{gpu_hours} {gpu_seconds}");
        }
        log.follow(&[], at(82));
        let ended: Vec<_> = log.ended().collect();
        assert!(ended.len() == 1 && ended[0].evidence.contains("for 41 s"), "{ended:?}");
        // It was first found at 1, and had lasted for a second then.
        assert_eq!((ended[0].began_at, ended[0].ended_at), (0.0, 82.0));
        assert!((ended[0].gpu_hours.unwrap() * 3600.0 - gpu_seconds).abs() < 1e-9, "{ended:?}");
    }
}
