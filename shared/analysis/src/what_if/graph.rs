//! Operations of one step, their dependencies, and the simulation of a timeline from their durations.
//!
//! The graph describes one step of one data-parallel replica. All replicas and steps share it: each operation
//! has a row of durations, one for each replica in each step, and a whole row is computed at once.

use std::collections::{BTreeMap, VecDeque};

use super::{Kind, Refusal};

/// An operation, as an index into [`Graph::operations`].
pub(crate) type Index = usize;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) stage: usize,
    /// Operations of one class do the same work: the ideal of one is the mean or median of all.
    pub(crate) class: usize,
    /// The number of the microbatch of a forward or backward, among those of its stage.
    pub(crate) number: usize,
    /// Its part of the work of its class: a forward may be divided by collectives.
    pub(crate) share: f64,
}

/// Operations that end together, once the last of them has begun and the transfer is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) members: Vec<Index>,
    pub(crate) meets: Meets,
}

/// The replicas whose members of a group end together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meets {
    /// Each replica for itself.
    Itself,
    All,
    /// Replicas with the same number; one number for each replica.
    Sets(Vec<usize>),
}

impl Meets {
    /// Replaces each replica's time of one step by the latest of the replicas that it meets.
    pub(crate) fn wait_for_the_last(&self, times: &mut [f64]) {
        match self {
            Self::Itself => {}
            Self::All => times.fill(times.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            Self::Sets(numbers) => {
                let sets = numbers.iter().max().map_or(0, |highest| highest + 1);
                let mut last = vec![f64::NEG_INFINITY; sets];
                for (&number, &time) in numbers.iter().zip(&*times) {
                    last[number] = last[number].max(time);
                }
                for (&number, time) in numbers.iter().zip(times) {
                    *time = last[number];
                }
            }
        }
    }

    /// For each replica, which of the replicas that it meets has the latest of these times.
    pub(crate) fn last(&self, times: &[f64]) -> Vec<usize> {
        match self {
            Self::Itself => (0..times.len()).collect(),
            Self::All => {
                let later = |one: usize, other: usize| if times[other] > times[one] { other } else { one };
                vec![(0..times.len()).reduce(later).unwrap_or(0); times.len()]
            }
            Self::Sets(numbers) => {
                let mut last: BTreeMap<usize, usize> = BTreeMap::new();
                for (replica, &number) in numbers.iter().enumerate() {
                    let known = last.entry(number).or_insert(replica);
                    if times[replica] > times[*known] {
                        *known = replica;
                    }
                }
                numbers.iter().map(|number| last[number]).collect()
            }
        }
    }
}

/// The number of replicas and of steps. A row has one place for each replica in each step, ordered by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) replicas: usize,
    pub(crate) steps: usize,
}

impl Shape {
    pub(crate) fn row(self) -> usize {
        self.replicas * self.steps
    }

    pub(crate) fn place(self, step: usize, replica: usize) -> usize {
        step * self.replicas + replica
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub(crate) operations: Vec<Operation>,
    /// The dependencies of each operation.
    after: Vec<Vec<Index>>,
    /// Groups and single operations in topological order.
    order: Vec<Unit>,
}

#[derive(Clone, Debug)]
enum Unit {
    Single(Index),
    Group(Group),
}

/// The duration of each operation in each place, in seconds, row by row in the order of the operations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Durations {
    /// Time of the operation before its group's transfer; its whole time if it has no group.
    pub(crate) own: Vec<f64>,
    /// A group's duration, from the start of its last member to its end.
    pub(crate) transfer: Vec<f64>,
}

impl Durations {
    pub(crate) fn zero(operations: usize, shape: Shape) -> Self {
        let cells = operations * shape.row();
        Self { own: vec![0.0; cells], transfer: vec![0.0; cells] }
    }
}

impl Graph {
    /// Refuses a graph with circular dependencies.
    pub(crate) fn new(
        operations: Vec<Operation>,
        after: Vec<Vec<Index>>,
        groups: Vec<Group>,
    ) -> Result<Self, Refusal> {
        let order = order(&after, groups)?;
        Ok(Self { operations, after, order })
    }

    #[cfg(test)]
    pub(crate) fn dependencies(&self) -> usize {
        self.after.iter().map(Vec::len).sum()
    }

    /// The time of each step: from its start to the end of its last operation.
    pub(crate) fn simulate(&self, durations: &Durations, shape: Shape) -> Vec<f64> {
        let row = shape.row();
        let mut ends = vec![0.0_f64; self.operations.len() * row];
        let mut begin = vec![0.0_f64; row];
        for unit in &self.order {
            let (members, meets) = match unit {
                Unit::Single(index) => (std::slice::from_ref(index), &Meets::Itself),
                Unit::Group(group) => (&*group.members, &group.meets),
            };
            begin.fill(f64::NEG_INFINITY);
            for &index in members {
                for (place, begin) in begin.iter_mut().enumerate() {
                    let waited = self.after[index].iter().map(|&before| ends[before * row + place]);
                    *begin = begin.max(waited.fold(0.0, f64::max) + durations.own[index * row + place]);
                }
            }
            begin.chunks_mut(shape.replicas).for_each(|step| meets.wait_for_the_last(step));
            for &index in members {
                for (place, begin) in begin.iter().enumerate() {
                    let cell = index * row + place;
                    ends[cell] = begin + durations.transfer[cell];
                }
            }
        }
        let mut steps = vec![0.0_f64; shape.steps];
        for ends in ends.chunks(row) {
            for (step, ends) in steps.iter_mut().zip(ends.chunks(shape.replicas)) {
                *step = ends.iter().copied().fold(*step, f64::max);
            }
        }
        steps
    }

    /// The mean of the times of all steps.
    pub(crate) fn mean_step(&self, durations: &Durations, shape: Shape) -> f64 {
        mean(&self.simulate(durations, shape))
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The topological order. A group is ready when all dependencies of its members are done.
fn order(after: &[Vec<Index>], groups: Vec<Group>) -> Result<Vec<Unit>, Refusal> {
    let mut unit_of: Vec<usize> = vec![usize::MAX; after.len()];
    let mut units: Vec<Unit> = Vec::new();
    for group in groups {
        for &index in &group.members {
            unit_of[index] = units.len();
        }
        units.push(Unit::Group(group));
    }
    for (index, unit) in unit_of.iter_mut().enumerate().filter(|(_, unit)| **unit == usize::MAX) {
        *unit = units.len();
        units.push(Unit::Single(index));
    }
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); units.len()];
    let mut awaited = vec![0_usize; units.len()];
    for (index, before) in after.iter().enumerate() {
        for &before in before {
            followers[unit_of[before]].push(unit_of[index]);
            awaited[unit_of[index]] += 1;
        }
    }
    let mut ready: VecDeque<usize> = (0..units.len()).filter(|&unit| awaited[unit] == 0).collect();
    let mut order = Vec::with_capacity(units.len());
    while let Some(unit) = ready.pop_front() {
        order.push(units[unit].clone());
        for &follower in &followers[unit] {
            awaited[follower] -= 1;
            if awaited[follower] == 0 {
                ready.push_back(follower);
            }
        }
    }
    if order.len() < units.len() { Err(Refusal::Circle) } else { Ok(order) }
}
