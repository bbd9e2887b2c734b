//! Activity of the last ten to twenty seconds, for readers that need gauges over a window instead of
//! counters.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{histogram::Histogram, unit::Moment};

/// Length of one window; the previous window is included.
const WINDOW: Duration = Duration::from_secs(10);

/// Operations of one kind in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub durations: Histogram,
    /// The FLOPs or bytes of the operations.
    pub work: f64,
    /// All launches, timed or not.
    pub launched: u64,
}

impl Cell {
    pub(super) fn add(&mut self, other: &Self) {
        self.durations.merge(&other.durations);
        self.work += other.work;
        self.launched += other.launched;
    }
}

/// Activity by kind, up to a number of kinds. Kinds beyond that are only counted.
#[derive(Debug)]
pub(super) struct Recent<K> {
    most: usize,
    began: Moment,
    now: BTreeMap<K, Cell>,
    before: BTreeMap<K, Cell>,
    before_began: Moment,
    left_out: u64,
}

impl<K: Ord + Clone> Recent<K> {
    pub(super) fn new(most: usize, now: Moment) -> Self {
        Self {
            most,
            began: now,
            now: BTreeMap::new(),
            before: BTreeMap::new(),
            before_began: now,
            left_out: 0,
        }
    }

    pub(super) fn take(&mut self, kind: K, cell: &Cell, at: Moment) {
        if at.since(self.began) >= WINDOW {
            self.before = std::mem::take(&mut self.now);
            (self.before_began, self.began) = (self.began, at);
        }
        if self.now.len() >= self.most && !self.now.contains_key(&kind) {
            self.left_out += 1;
            return;
        }
        self.now.entry(kind).or_default().add(cell);
    }

    /// Kinds with their activity, most work first, and the seconds covered.
    pub(super) fn cells(&self, now: Moment) -> (Vec<(K, Cell)>, f64) {
        if now.since(self.began) >= 2 * WINDOW {
            // No activity was taken in that time.
            return (Vec::new(), 0.0);
        }
        let mut all = self.before.clone();
        for (kind, cell) in &self.now {
            all.entry(kind.clone()).or_default().add(cell);
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|(_, one), (_, other)| other.work.total_cmp(&one.work));
        (all, now.since(self.before_began).as_secs_f64())
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell { work: 1.0, launched: 2, ..Cell::default() }
    }

    #[test]
    fn two_windows_are_reported_and_older_ones_are_not() {
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let mut recent = Recent::new(1, at(0));
        for second in 0..35 {
            recent.take("a", &cell(), at(second));
        }
        recent.take("b", &cell(), at(35));
        let (cells, seconds) = recent.cells(at(35));
        assert_eq!((cells.len(), cells[0].1.launched, seconds), (1, 2 * 15, 15.0));
        assert_eq!(recent.left_out(), 1);
        assert!(recent.cells(at(60)).0.is_empty(), "nothing happens any more");
    }
}
