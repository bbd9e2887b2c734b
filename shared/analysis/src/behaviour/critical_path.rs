//! The critical path of one worker. At each moment of its steps, the path consists of the work in the first
//! layer that runs.

use std::collections::{BTreeSet, HashMap};

/// Layers in the order in which the path goes through them. The GPU comes first because its time is the
/// scarcest; the host counts only while the GPU does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Compute,
    /// NCCL operations as the hook timed them.
    Operation,
    /// NCCL kernels that belong to no operation.
    Communication,
    Memory,
    /// CUDA calls that wait.
    Blocked,
    GarbageCollection,
    /// Readings of the main thread.
    Sampled,
    /// Functions, data loaders and spans, which may be nested.
    Traced,
}

impl Layer {
    const COUNT: usize = Self::Traced as usize + 1;
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub from: u64,
    pub to: u64,
    pub function: usize,
    pub layer: Layer,
}

/// Largest number of functions that share a moment; those that began last are kept. A GPU runs no more
/// kernels at a time.
const SHARERS: usize = 128;

/// Nanoseconds of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Time {
    pub critical: f64,
    /// Time of all its intervals, including time shared with others.
    pub total: f64,
    /// Begin and end of its time on the path.
    pub path: Option<(u64, u64)>,
}

impl Time {
    pub(super) fn add(&mut self, other: Self) {
        self.critical += other.critical;
        self.total += other.total;
        other.path.into_iter().for_each(|(begun, ended)| self.extend(begun, ended));
    }

    fn extend(&mut self, begun: u64, ended: u64) {
        let (first, last) = self.path.unwrap_or((begun, ended));
        self.path = Some((first.min(begun), last.max(ended)));
    }
}

/// The time of each function between two times. Functions of one layer that run at the same time share the
/// path equally. If they are nested, the innermost one gets all of it. Intervals are in the order of their
/// start.
pub(super) fn walk(intervals: &[Interval], from: u64, to: u64) -> HashMap<usize, Time> {
    let mut events = Vec::with_capacity(2 * intervals.len());
    let mut spent: HashMap<usize, Time> = HashMap::new();
    for (index, interval) in intervals.iter().enumerate() {
        let (begin, end) = (interval.from.max(from), interval.to.min(to));
        if begin < end {
            spent.entry(interval.function).or_default().total += (end - begin) as f64;
            events.push((begin, true, index));
            events.push((end, false, index));
        }
    }
    // At one moment, what ends is removed before what begins is added.
    events.sort_unstable();
    // In the order of their start.
    let mut active: [BTreeSet<usize>; Layer::COUNT] = Default::default();
    let mut since = from;
    for (at, begins, index) in events {
        if at > since {
            if let Some(layer) = active.iter().position(|running| !running.is_empty()) {
                let sharers = if layer == Layer::Traced as usize { 1 } else { SHARERS };
                let each = (at - since) as f64 / active[layer].len().min(sharers) as f64;
                for &one in active[layer].iter().rev().take(sharers) {
                    let its = spent.entry(intervals[one].function).or_default();
                    its.critical += each;
                    its.extend(since, at);
                }
            }
            since = at;
        }
        let running = &mut active[intervals[index].layer as usize];
        if begins {
            running.insert(index);
        } else {
            running.remove(&index);
        }
    }
    spent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(layer: Layer, function: usize, from: u64, to: u64) -> Interval {
        Interval { from, to, function, layer }
    }

    #[test]
    fn each_moment_belongs_to_the_first_layer_that_runs() {
        let spent = walk(
            &[
                at(Layer::Compute, 0, 10, 30),
                at(Layer::Operation, 1, 20, 50),
                at(Layer::Communication, 2, 22, 55),
                at(Layer::Memory, 3, 0, 60),
                at(Layer::Sampled, 4, 58, 200),
            ],
            5,
            100,
        );
        let time = [0, 1, 2, 3, 4].map(|function| (spent[&function].critical, spent[&function].total));
        assert_eq!(time, [(20.0, 20.0), (20.0, 30.0), (5.0, 33.0), (10.0, 55.0), (40.0, 42.0)]);
    }

    #[test]
    fn kernels_beside_each_other_share_and_of_nested_functions_the_innermost_has_it() {
        let spent = walk(
            &[
                at(Layer::Compute, 0, 0, 10),
                at(Layer::Compute, 1, 0, 10),
                at(Layer::Traced, 2, 10, 30),
                at(Layer::Traced, 3, 15, 20),
            ],
            0,
            30,
        );
        assert_eq!([0, 1, 2, 3].map(|function| spent[&function].critical), [5.0, 5.0, 15.0, 5.0]);
    }
}
