//! One row per class: how many faults were named, how many names were wrong, and how long it took.

use crate::verdict::Verdict;

#[derive(Debug, Default)]
pub(crate) struct Row {
    pub name: &'static str,
    pub healthy: bool,
    verdicts: Vec<Verdict>,
}

const RECALL: f64 = 0.95;

/// How much the reported cost may differ from the injected one.
const COST: f64 = 0.15;

impl Row {
    pub(crate) fn new(name: &'static str, healthy: bool) -> Self {
        Self { name, healthy, verdicts: Vec::new() }
    }

    pub(crate) fn add(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
    }

    fn recall(&self) -> f64 {
        share(self.verdicts.iter().filter(|verdict| verdict.in_time).count(), self.verdicts.len())
    }

    /// Of the scenarios with a finding, the share that had only correct findings.
    fn precision(&self) -> f64 {
        let found =
            self.verdicts.iter().filter(|verdict| verdict.named.is_some() || !verdict.wrong.is_empty());
        let (right, wrong): (Vec<_>, Vec<_>) = found.partition(|verdict| verdict.wrong.is_empty());
        if right.is_empty() && wrong.is_empty() { 1.0 } else { share(right.len(), right.len() + wrong.len()) }
    }

    /// Of the scenarios whose fault was named, the share in which a late viewer also finds it.
    fn late(&self) -> String {
        let found: Vec<bool> = self.verdicts.iter().filter_map(|verdict| verdict.late).collect();
        if found.is_empty() {
            return "-".to_owned();
        }
        format!("{:.0}%", 100.0 * share(found.iter().filter(|found| **found).count(), found.len()))
    }

    /// Of those, the share in which it reports the same cause and begin, and by what share of the time since then
    /// the begins differ: the median and the highest of twenty.
    fn since(&self) -> String {
        let same: Vec<bool> = self.verdicts.iter().filter_map(Verdict::has_same_since).collect();
        let mut differ: Vec<f64> = self.verdicts.iter().filter_map(Verdict::since_differs_by).collect();
        if differ.is_empty() {
            return "-".to_owned();
        }
        differ.sort_by(f64::total_cmp);
        let at = |share: f64| 100.0 * differ[((differ.len() as f64 * share) as usize).min(differ.len() - 1)];
        let right = 100.0 * share(same.iter().filter(|same| **same).count(), same.len());
        format!("{right:.0}%, {:.0} / {:.0}%", at(0.5), at(0.95))
    }

    /// The median of reported over injected costs, and the share of ratios that are off by at most 15 %.
    fn costs(&self) -> String {
        let known = self.verdicts.iter().filter_map(|verdict| verdict.cost);
        let mut ratios: Vec<f64> = known
            .filter(|(_, injected)| *injected > 0.0)
            .map(|(reported, injected)| reported / injected)
            .collect();
        if ratios.is_empty() {
            return "-".to_owned();
        }
        ratios.sort_by(f64::total_cmp);
        let near = ratios.iter().filter(|ratio| (*ratio - 1.0).abs() <= COST).count();
        format!(
            "{:.2}, {:.0}% of {}",
            ratios[ratios.len() / 2],
            100.0 * share(near, ratios.len()),
            ratios.len()
        )
    }

    fn false_ones(&self) -> usize {
        self.verdicts.iter().filter(|verdict| !verdict.wrong.is_empty()).count()
    }

    pub(crate) fn is_good(&self) -> bool {
        if self.healthy { self.false_ones() == 0 } else { self.recall() >= RECALL }
    }

    pub(crate) fn head() {
        println!(
            "{:<40} {:>5} {:>9} {:>9} {:>7} {:>14} {:>15} {:>15} {:>23}",
            "class",
            "runs",
            "precision",
            "recall",
            "late",
            "since m. / p95",
            "s median / p95",
            "steps m. / p95",
            "cost, within 15 %"
        );
    }

    pub(crate) fn print(&self) {
        let runs = self.verdicts.len();
        let verdict = if self.is_good() { "" } else { "  MISSED" };
        if self.healthy {
            println!(
                "{:<40} {runs:>5} {:>9} {:>9}{verdict}",
                self.name,
                format!("{} false", self.false_ones()),
                "-"
            );
            return;
        }
        let of = |pick: fn(&(f64, f64)) -> f64| {
            let mut times: Vec<f64> =
                self.verdicts.iter().filter_map(|v| v.named.as_ref().map(pick)).collect();
            times.sort_by(f64::total_cmp);
            let at = |share: f64| {
                times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1)))
            };
            let word =
                |value: Option<&f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
            format!("{} / {}", word(at(0.5)), word(at(0.95)))
        };
        println!(
            "{:<40} {runs:>5} {:>8.1}% {:>8.1}% {:>7} {:>14} {:>15} {:>15} {:>23}{verdict}",
            self.name,
            100.0 * self.precision(),
            100.0 * self.recall(),
            self.late(),
            self.since(),
            of(|named| named.0),
            of(|named| named.1),
            self.costs(),
        );
    }
}

fn share(some: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { some as f64 / all as f64 }
}
