//! Findings that came and went, with their times.

use std::{collections::VecDeque, time::Duration};

use xpu_shared::{
    finding::{Class, Finding, Kind},
    id::Rank,
    unit::Moment,
};

/// Entries kept; the oldest give way.
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
    Came,
    /// It is not so any more, after so long.
    Went(Duration),
}

#[derive(Debug)]
struct Present {
    since: Moment,
    finding: Finding,
}

/// What makes a finding the same from one second to the next, whatever its figures.
fn identity(finding: &Finding) -> (Kind, Class, &[Rank]) {
    (finding.kind, finding.class, &finding.ranks)
}

impl Log {
    /// Takes what is wrong now.
    pub(super) fn follow(&mut self, findings: &[Finding], now: Moment) {
        let is_there = |known: &Finding| findings.iter().any(|finding| identity(finding) == identity(known));
        for gone in self.present.extract_if(.., |present| !is_there(&present.finding)).collect::<Vec<_>>() {
            let what = What::Went(now.since(gone.since));
            self.push(Entry { at: now, finding: gone.finding, what });
        }
        for finding in findings {
            let known = |present: &&mut Present| identity(&present.finding) == identity(finding);
            if let Some(present) = self.present.iter_mut().find(known) {
                present.finding = finding.clone();
            } else {
                self.present.push(Present { since: now, finding: finding.clone() });
                self.push(Entry { at: now, finding: finding.clone(), what: What::Came });
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

    /// When it was seen first, by this machine's clock.
    pub fn since(&self, finding: &Finding) -> Option<Moment> {
        let known = |present: &&Present| identity(&present.finding) == identity(finding);
        self.present.iter().find(known).map(|present| present.since)
    }
}
