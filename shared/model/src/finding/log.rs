//! Findings that began and ended, with their times.

mod present;

use std::{collections::VecDeque, fmt, time::Duration};

use present::Present;
use serde::{Deserialize, Serialize};
use xpu_wire::{id::Rank, unit::Moment};

use super::{Class, Finding, Kind, Money};
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

impl Entry {
    /// `, 0.30 GPU-hours lost`; empty for a finding that began, or whose cost is unknown.
    pub fn lost(&self) -> String {
        let cost = self.finding.cost.filter(|_| matches!(self.what, What::Ended(_)));
        cost.map_or_else(String::new, |cost| format!(", {:.2} GPU-hours lost", cost.gpu_hours))
    }
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

/// A finding that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedFinding {
    pub kind: Kind,
    pub class: Class,
    pub ranks: Vec<Rank>,
    /// When the fault began, and when it was no longer found, in seconds since 1970.
    pub began_at: f64,
    pub ended_at: f64,
    /// The headline and the evidence when it cost most.
    pub headline: String,
    pub evidence: String,
    /// GPU-hours lost; `None` if the cost was unknown.
    #[serde(default)]
    pub gpu_hours: Option<f64>,
    /// Their price, if one is set.
    #[serde(flatten, skip_deserializing)]
    pub money: Option<Money>,
}

impl EndedFinding {
    /// `0.30 GPU-hours (0.75 EUR) lost`; `None` if its cost was unknown.
    pub fn lost(&self) -> Option<String> {
        let money = self.money.map_or_else(String::new, |money| format!(" ({money})"));
        Some(format!("{:.2} GPU-hours{money} lost", self.gpu_hours?))
    }
}

/// The identity of a finding from one second to the next, whatever its figures.
fn identity(finding: &Finding) -> (Kind, Class, &[Rank]) {
    (finding.kind, finding.class, &finding.ranks)
}

/// Whether more is known of the same fault: what is known of a hang changes while it lasts, and the clock of a slow
/// GPU is read some seconds after its GEMMs.
fn is_another_view(before: &Finding, now: &Finding) -> bool {
    let is_same_fault = match now.kind {
        // Ends of several ranks are noticed one after another.
        Kind::Hang | Kind::Exited => true,
        Kind::SlowRank | Kind::Regression => {
            // A comparison with a past run may be beside a finding of this run.
            let are_past_runs = [before, now].map(|finding| finding.class == Class::PastRun);
            before.ranks == now.ranks && are_past_runs[0] == are_past_runs[1]
        }
        Kind::SlowLink | Kind::Device => false,
    };
    before.kind == now.kind && is_same_fault
}

impl Log {
    /// Updates the log with the present findings. `heard`: the newest report of the job, by the clock of its hosts.
    pub fn follow(&mut self, findings: &[Finding], now: Moment, heard: Moment) {
        let is_there = |known: &Finding| findings.iter().any(|finding| identity(finding) == identity(known));
        for finding in findings {
            let replaced =
                |known: &&mut Present| !is_there(&known.finding) && is_another_view(&known.finding, finding);
            let is_new = self.present(finding).is_none();
            if let Some(before) = self.present.iter_mut().find(replaced).filter(|_| is_new) {
                before.carry_over(finding, now, heard);
                self.push(Entry { at: now, finding: finding.clone(), what: What::Began });
            }
        }
        for gone in self.present.extract_if(.., |present| !is_there(&present.finding)).collect::<Vec<_>>() {
            let what = What::Ended(now.since(gone.began));
            self.push(Entry { at: now, finding: gone.in_total(), what });
        }
        for finding in findings {
            let known = |present: &&mut Present| identity(&present.finding) == identity(finding);
            if let Some(present) = self.present.iter_mut().find(known) {
                present.update(finding, now, heard);
            } else {
                let present = Present::new(finding, now, heard, self.last_end(finding));
                self.push(Entry { at: now, finding: finding.clone(), what: What::Began });
                self.present.push(present);
            }
        }
    }

    /// When a finding about some of these ranks, or about all, last ended: of the same kind, or another one about
    /// longer steps.
    fn last_end(&self, finding: &Finding) -> Moment {
        let slower = |kind| matches!(kind, Kind::SlowRank | Kind::Regression);
        let is_same = |entry: &&Entry| {
            let known = &entry.finding;
            let is_kind = known.kind == finding.kind || (slower(known.kind) && slower(finding.kind));
            let is_of_all = known.ranks.is_empty() || finding.ranks.is_empty();
            let alike = is_of_all || known.ranks.iter().any(|rank| finding.ranks.contains(rank));
            matches!(entry.what, What::Ended(_)) && is_kind && alike
        };
        self.entries().find(is_same).map_or_else(Moment::default, |entry| entry.at)
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
                money: None,
            })
        })
    }

    /// When it was first seen, by the clock of [`Self::follow`].
    pub fn since(&self, finding: &Finding) -> Option<Moment> {
        self.present(finding).map(|present| present.since)
    }

    /// Adds to these findings what is known of the time before: how long they have been seen, because a rule may
    /// look back less far, and the GPU-hours lost since they began.
    pub fn extend(&self, findings: &mut [Finding], now: Moment, heard: Moment) {
        for finding in findings {
            let before = || self.present.iter().find(|known| is_another_view(&known.finding, finding));
            let Some(known) = self.present(finding).or_else(before) else { continue };
            let gpu_hours = known.gpu_hours(finding, now, heard);
            if let (Some(cost), Some(gpu_hours)) = (&mut finding.cost, gpu_hours) {
                cost.gpu_hours = gpu_hours;
            }
            finding.since_s = finding.since_s.max(now.since(known.since).as_secs_f64());
        }
    }

    fn present(&self, finding: &Finding) -> Option<&Present> {
        self.present.iter().find(|present| identity(&present.finding) == identity(finding))
    }
}

#[cfg(test)]
mod tests;
