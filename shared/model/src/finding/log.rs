//! Findings that began and ended, with their times.

use std::{collections::VecDeque, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use xpu_wire::{id::Rank, unit::Moment};

use super::{Class, Finding, Kind};
use crate::figure;

/// Entries kept; the oldest are dropped.
const KEPT: usize = 256;

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
    since: Moment,
    finding: Finding,
    /// The finding when it cost most. At its end, most of its figures are from after the fault.
    costliest: Finding,
}

impl Present {
    fn update(&mut self, finding: &Finding) {
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
    /// When it was first and last found, in seconds since 1970.
    pub began_at: f64,
    pub ended_at: f64,
    /// The headline and the evidence when it cost most.
    pub headline: String,
    pub evidence: String,
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
            let what = What::Ended(now.since(gone.since));
            self.push(Entry { at: now, finding: gone.costliest, what });
        }
        for finding in findings {
            let known = |present: &&mut Present| identity(&present.finding) == identity(finding);
            if let Some(present) = self.present.iter_mut().find(known) {
                present.update(finding);
            } else {
                self.push(Entry { at: now, finding: finding.clone(), what: What::Began });
                let costliest = finding.clone();
                self.present.push(Present { since: now, finding: finding.clone(), costliest });
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
            })
        })
    }

    /// When it was first seen, by this machine's clock.
    pub fn since(&self, finding: &Finding) -> Option<Moment> {
        let known = |present: &&Present| identity(&present.finding) == identity(finding);
        self.present.iter().find(known).map(|present| present.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Confidence, Cost, Evidence, Severity, evidence::hang::Elsewhere, hang::Doing};

    /// When a fault has ended, the cost decreases until the finding ends too.
    #[test]
    fn an_ended_finding_has_the_figures_of_when_it_cost_most() {
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
        for (second, pct) in [(1, 10.0), (2, 30.0), (3, 12.0)] {
            log.follow(&[costs(pct, second as f64)], at(second));
        }
        log.follow(&[], at(4));
        let ended: Vec<_> = log.ended().collect();
        assert!(ended.len() == 1 && ended[0].evidence.contains("for 2 s"), "{ended:?}");
        assert_eq!((ended[0].began_at, ended[0].ended_at), (1.0, 4.0));
    }
}
