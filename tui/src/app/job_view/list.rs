//! The listed ranks, and their order.

use xpu_client::filter::Filter;
use xpu_model::{job::Job, stack::Ranks};

use super::{Arrangement, Bundle, JobView};

/// The result of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filtered {
    /// The filter, as it was written.
    pub text: String,
    /// Number of matching ranks.
    pub shown: usize,
    /// Number of ranks for which it is unknown whether they match.
    pub unknown: usize,
}

impl JobView {
    /// Lists the ranks, or the worst rank of each group.
    pub(super) fn arrange(&mut self, job: &Job, wanted: &Arrangement) {
        self.judge = wanted.judge;
        let mut bundles = wanted.fold.bundles(job, &self.rows, wanted.groups.as_ref());
        let folded = !bundles.is_empty();
        for bundle in &mut bundles {
            bundle.rows.retain(|&row| !self.rows[row].aside);
        }
        bundles.retain(|bundle| !bundle.rows.is_empty());
        for bundle in &mut bundles {
            bundle.worst = self.worst_of(&bundle.rows).unwrap_or(bundle.worst);
        }
        self.order = if folded {
            wanted.sort.arrange(bundles.iter().map(|bundle| bundle.worst).collect(), &self.rows)
        } else {
            wanted.sort.order(&self.rows)
        };
        self.order.retain(|&row| !self.rows[row].aside);
        self.set_off = wanted.sort.set_off(&self.order, &self.rows);
        self.bundles = bundles;
    }

    /// The worst row: by state, then by findings that name it, then by the shown metric.
    fn worst_of(&self, rows: &[usize]) -> Option<usize> {
        let scale = self.scale(self.judge);
        let badness = |row: usize| {
            let known = scale.zip(self.judge.of(&self.rows[row]).filter(|_| self.rows[row].is_heard()));
            known.map_or(f64::NEG_INFINITY, |(scale, value)| scale.badness(value))
        };
        let worse = |one: usize, other: usize| {
            let states = self.rows[other].severity().cmp(&self.rows[one].severity());
            let named = self.rows[other].named.is_some().cmp(&self.rows[one].named.is_some());
            if states.then(named).then(badness(other).total_cmp(&badness(one))).is_gt() { other } else { one }
        };
        rows.iter().copied().reduce(worse)
    }

    /// A row's place in the list: its own, or that of its group.
    pub fn listed(&self, row: usize) -> Option<usize> {
        let shown = self.bundle_of(row).map_or(row, |bundle| bundle.worst);
        self.order.iter().position(|&listed| listed == shown)
    }

    /// The group of a row.
    pub fn bundle_of(&self, row: usize) -> Option<&Bundle> {
        self.bundles.iter().find(|bundle| bundle.rows.binary_search(&row).is_ok())
    }

    /// The matching ranks, while there is a filter.
    pub fn matching(&self) -> Option<Ranks> {
        self.filtered.as_ref()?;
        Some(self.rows.iter().filter(|row| !row.aside).map(|row| row.status.rank).collect())
    }

    /// Removes rows that do not match the filter.
    pub(super) fn apply_filter(&mut self, filter: Option<&Filter>) {
        let Some(filter) = filter else {
            self.rows.iter_mut().for_each(|row| row.aside = false);
            self.filtered = None;
            return;
        };
        let judge = filter.judge(self.current().map(|row| row.subject(&self.job)));
        let verdicts: Vec<_> = self.rows.iter().map(|row| judge.verdict(row.subject(&self.job))).collect();
        let count = |verdict| verdicts.iter().filter(|one| **one == verdict).count();
        self.filtered =
            Some(Filtered { text: filter.text().to_owned(), shown: count(Some(true)), unknown: count(None) });
        for (row, verdict) in self.rows.iter_mut().zip(verdicts) {
            row.aside = verdict != Some(true);
        }
    }
}
