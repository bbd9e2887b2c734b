//! Totals by shape or by collective, with limits on their number and on the durations that they hold.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    hash::Hash,
};

use xpu_wire::{histogram::Histogram, unit::Nanoseconds};

/// Maximum number of distinct shapes, and of distinct collectives, with totals. Later ones count as dropped.
const KEYS: usize = 8192;

/// Maximum number of durations kept one by one; more go into a histogram, which takes 20 KiB.
const ONE_BY_ONE: usize = 1024;

/// Maximum number of durations that all totals of one kind hold: 2 MiB. Later timings are only in the sums.
const HELD: usize = 256 << 10;

/// A limited number of totals by key.
#[derive(Debug)]
pub(super) struct Totals<K> {
    entries: HashMap<K, Total>,
    /// Keys that changed since they were last taken.
    unsent: VecDeque<K>,
    dropped: u64,
    /// Number of durations that all entries hold.
    held: usize,
}

impl<K> Default for Totals<K> {
    fn default() -> Self {
        Self { entries: HashMap::new(), unsent: VecDeque::new(), dropped: 0, held: 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) timed: u64,
    pub(super) timed_for: Nanoseconds,
    durations: Durations,
    /// Whether its key is in the queue `unsent`.
    changed: bool,
}

impl<K: Hash + Eq + Copy> Totals<K> {
    /// The total of a key, to be changed.
    fn entry(&mut self, key: K) -> Option<&mut Total> {
        let full = self.entries.len() >= KEYS;
        let total = match self.entries.entry(key) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(_) if full => return None,
            hash_map::Entry::Vacant(place) => place.insert(Total::default()),
        };
        if !std::mem::replace(&mut total.changed, true) {
            self.unsent.push_back(key);
        }
        Some(total)
    }

    pub(super) fn count(&mut self, key: K, count: u64) {
        match self.entry(key) {
            Some(total) => total.count += count,
            None => self.dropped += count,
        }
    }

    pub(super) fn time(&mut self, key: K, duration: Nanoseconds) {
        let fits = self.held < HELD;
        let Some(total) = self.entry(key) else { return };
        total.timed += 1;
        total.timed_for.0 += duration.0;
        if fits {
            let before = total.durations.held();
            total.durations.push(duration);
            let after = total.durations.held();
            self.held = self.held + after - before;
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    pub(super) fn holds(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn mark_all(&mut self) {
        for (&key, total) in &mut self.entries {
            if !std::mem::replace(&mut total.changed, true) {
                self.unsent.push_back(key);
            }
        }
    }

    pub(super) fn take<T>(&mut self, most: usize, make: impl Fn(&K, &Total, Histogram) -> T) -> Vec<T> {
        let taken = self.unsent.drain(..most.min(self.unsent.len()));
        taken
            .filter_map(|key| {
                let total = self.entries.get_mut(&key)?;
                total.changed = false;
                self.held -= total.durations.held();
                let durations = total.durations.take();
                Some(make(&key, total, durations))
            })
            .collect()
    }

    pub(super) fn has_more(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Number of operations whose key did not fit.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn memory(&self) -> usize {
        let held = self.entries.values().map(|total| total.durations.memory()).sum::<usize>();
        self.entries.capacity() * (size_of::<K>() + size_of::<Total>())
            + self.unsent.capacity() * size_of::<K>()
            + held
    }
}

/// Durations of one interval. A few are kept as they are; more go into a histogram.
#[derive(Debug, Default)]
pub(super) struct Durations {
    values: Vec<Nanoseconds>,
    folded: Option<Box<Histogram>>,
}

impl Durations {
    pub(super) fn push(&mut self, duration: Nanoseconds) {
        if self.values.len() == ONE_BY_ONE {
            let folded = self.folded.get_or_insert_default();
            self.values.drain(..).for_each(|value| folded.record(value));
        }
        self.values.push(duration);
    }

    pub(super) fn take(&mut self) -> Histogram {
        let mut histogram = self.folded.take().map_or_else(Histogram::new, |folded| *folded);
        // The memory is released too, because thousands of totals would keep capacity that they may never
        // need again.
        for value in std::mem::take(&mut self.values) {
            histogram.record(value);
        }
        histogram
    }

    /// The number of durations that would take the same memory.
    fn held(&self) -> usize {
        self.values.len()
            + if self.folded.is_some() { size_of::<Histogram>() / size_of::<Nanoseconds>() } else { 0 }
    }

    fn memory(&self) -> usize {
        self.values.capacity() * size_of::<Nanoseconds>()
            + if self.folded.is_some() { size_of::<Histogram>() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_durations_are_all_in_the_histogram() {
        let mut durations = Durations::default();
        for n in 0..5000 {
            durations.push(Nanoseconds(1000 + n));
        }
        assert_eq!(durations.take().count(), 5000);
        assert!(durations.take().is_empty());
    }

    #[test]
    fn only_changed_totals_are_sent_unless_all_are_requested() {
        let mut totals = Totals::default();
        totals.count("a", 1);
        totals.count("b", 2);
        let names = |totals: &mut Totals<&'static str>| totals.take(9, |&key, total, _| (key, total.count));
        assert_eq!(names(&mut totals), [("a", 1), ("b", 2)]);
        totals.count("b", 1);
        assert_eq!(names(&mut totals), [("b", 3)]);
        totals.count("a", 1);
        totals.mark_all();
        assert_eq!(names(&mut totals), [("a", 2), ("b", 3)]);
        assert_eq!(names(&mut totals), []);
    }

    #[test]
    fn more_totals_than_fit_into_a_message_take_turns() {
        let mut totals = Totals::default();
        let mut said = Vec::new();
        for _ in 0..3 {
            for key in ["a", "b", "c"] {
                totals.count(key, 1);
            }
            said.extend(totals.take(2, |&key, total, _| (key, total.count)));
        }
        assert_eq!(said, [("a", 1), ("b", 1), ("c", 2), ("a", 2), ("b", 3), ("a", 3)]);
    }

    #[test]
    fn shapes_beyond_the_limit_are_counted_as_dropped() {
        let mut totals = Totals::default();
        (0..KEYS + 5).for_each(|key| totals.count(key, 1));
        assert_eq!((totals.entries.len(), totals.dropped), (KEYS, 5));
    }

    #[test]
    fn durations_of_many_shapes_take_little_memory() {
        let mut totals = Totals::default();
        for round in 0..2000 {
            (0..1000).for_each(|key| totals.time(key, Nanoseconds(round)));
        }
        assert!(totals.memory() < 6 << 20, "{}", totals.memory());
        let timed: u64 = totals.take(1000, |_, total, _| total.timed).into_iter().sum();
        assert_eq!((timed, totals.held), (2_000_000, 0));
    }
}
