//! Functions that differ from those of the worker's peers, or from what is expected, ranked by their cost.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;
use xpu_model::job::median;
use xpu_wire::id::Rank;

use super::{
    EXPECTED, Function, Unit, Vector, Worker, distance::Cohort, function::Class, sentence::sentence,
};
use crate::capture::Per;

/// Smallest cost of a reported difference, as a share of a step.
const WORTH: f64 = 0.01;

/// Number of executions of a function that a worker must have.
const EXECUTIONS: u64 = 3;

/// Number of standard errors by which a sampled share must exceed the share with which it is compared.
const ERRORS: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Workers of the same role spend less time in it.
    UnlikePeers,
    /// No function of this class is expected to take this much.
    UnlikeExpectation,
}

/// A function on the workers where it is abnormal.
#[derive(Clone, Debug, Serialize)]
pub struct Abnormal {
    pub class: Class,
    pub name: String,
    pub called_by: Option<String>,
    pub why: Why,
    pub ranks: Vec<Rank>,
    pub least_share: f64,
    pub most_share: f64,
    /// The median of the other workers of the role; `null` if no other worker has the function.
    pub peers_share: Option<f64>,
    /// The rate of the slowest of the ranks, and the median of the others.
    pub rate: Option<f64>,
    pub peers_rate: Option<f64>,
    pub unit: Option<Unit>,
    /// The largest distance to the peers.
    pub distance: f64,
    /// The cost per step or second, on the rank where it is largest.
    pub cost_ns: u64,
    pub sentence: String,
}

impl Abnormal {
    pub(super) fn is_of(&self, function: &Function) -> bool {
        (self.class, &self.name, &self.called_by) == (function.class, &function.name, &function.called_by)
    }
}

/// A function on one worker.
#[derive(Clone, Copy)]
struct Found<'a> {
    worker: &'a Worker,
    vector: Vector,
    /// Medians of its peers; `None` if it does not differ from them.
    peers_share: Option<f64>,
    peers_rate: Option<f64>,
    distance: f64,
    /// Time beyond that of its peers, on the path and in total; its whole time if it does not differ from
    /// them.
    cost: f64,
}

/// Compares all workers. The costliest comes first.
pub fn abnormal(functions: &[Function], workers: &[Worker], per: Per) -> Vec<Abnormal> {
    let mut roles: BTreeMap<usize, Vec<&Worker>> = BTreeMap::new();
    for worker in workers {
        roles.entry(worker.role).or_default().push(worker);
    }
    let mut rows = Vec::new();
    for workers in roles.values() {
        // For each function, the workers that have it.
        let mut having: Vec<Vec<(&Worker, Vector)>> = vec![Vec::new(); functions.len()];
        for worker in workers {
            for vector in &worker.vectors {
                if let Some(all) = having.get_mut(vector.function) {
                    all.push((worker, *vector));
                }
            }
        }
        for ((number, function), mut all) in functions.iter().enumerate().zip(having) {
            if all.is_empty() || function.waits {
                continue;
            }
            if !function.class.is_on_gpu() {
                complete(&mut all, workers, number);
            }
            let (unlike, rest) = unlike_peers(function, &all);
            let beyond: Vec<_> = rest.into_iter().filter(|found| is_beyond(function, found)).collect();
            rows.extend(row(function, Why::UnlikePeers, &unlike, per));
            rows.extend(row(function, Why::UnlikeExpectation, &beyond, per));
        }
    }
    rows.sort_by_key(|row| Reverse(row.cost_ns));
    rows
}

/// Adds the workers that lack a function of the host: they spend no time in it.
fn complete<'a>(all: &mut Vec<(&'a Worker, Vector)>, workers: &[&'a Worker], function: usize) {
    let none = Vector { function, share: 0.0, total: 0.0, executions: 0, rate: None, variation: None };
    let has: BTreeSet<_> = all.iter().map(|(worker, _)| worker.rank).collect();
    all.extend(workers.iter().filter(|worker| !has.contains(&worker.rank)).map(|&worker| (worker, none)));
    all.sort_by_key(|(worker, _)| worker.rank);
}

/// Workers that differ from their peers and lose time because of it, and the rest.
fn unlike_peers<'a>(function: &Function, all: &[(&'a Worker, Vector)]) -> (Vec<Found<'a>>, Vec<Found<'a>>) {
    let cohort = Cohort::new(all.iter().map(|(_, vector)| vector).collect());
    let found = cohort.apart().into_iter().enumerate().map(|(number, apart)| {
        let (worker, vector) = all[number];
        let of_peers = |part: fn(&Vector) -> Option<f64>| {
            apart.is_unlike.then(|| cohort.of_peers(number, part)).flatten()
        };
        let (peers_share, peers_rate) =
            (of_peers(|vector| Some(vector.share)), of_peers(|vector| vector.rate));
        let peers = peers_share.unwrap_or(0.0);
        // If less work runs concurrently with a function, or the rank waits less, more of the function is on
        // the path.
        let longer = vector.total - of_peers(|vector| Some(vector.total)).unwrap_or(0.0);
        let more = (vector.share - peers).min(longer);
        let cost = more * worker.path_ns as f64;
        let found = Found { worker, vector, peers_share, peers_rate, distance: apart.distance, cost };
        let is_clear = is_enough(function, &found, peers) && more >= WORTH;
        (found, apart.is_unlike && is_clear)
    });
    let (unlike, rest): (Vec<_>, Vec<_>) = found.partition(|(_, is_unlike)| *is_unlike);
    let plain = |all: Vec<(Found<'a>, bool)>| all.into_iter().map(|(found, _)| found).collect();
    (plain(unlike), plain(rest))
}

/// Whether a function takes more than any function of its class should.
fn is_beyond(function: &Function, found: &Found<'_>) -> bool {
    let has_expectation = match function.class {
        Class::Compute | Class::Communication => false,
        Class::Memory => true,
        // Kernels that were not recorded may run at the same time.
        Class::Runtime | Class::Python => found.worker.all_kernels,
    };
    has_expectation && found.vector.share - EXPECTED >= WORTH && is_enough(function, found, EXPECTED)
}

/// Whether there are enough executions; for a sampled function, enough readings to exceed a share.
fn is_enough(function: &Function, found: &Found<'_>, than: f64) -> bool {
    let Vector { share, executions, .. } = found.vector;
    if executions < EXECUTIONS {
        return false;
    }
    if !function.sampled {
        return true;
    }
    let samples = (found.worker.samples as f64).max(1.0);
    let error = (share.max(1.0 / samples) * (1.0 - share).max(0.0) / samples).sqrt();
    share - than > ERRORS * error
}

fn row(function: &Function, why: Why, found: &[Found<'_>], per: Per) -> Option<Abnormal> {
    let worst = found.iter().max_by(|a, b| a.cost.total_cmp(&b.cost))?;
    let cost = match why {
        Why::UnlikePeers => worst.cost,
        Why::UnlikeExpectation => found
            .iter()
            .map(|one| (one.vector.share - EXPECTED) * one.worker.path_ns as f64)
            .fold(0.0, f64::max),
    };
    let shares = || found.iter().map(|one| one.vector.share);
    let mut row = Abnormal {
        class: function.class,
        name: function.name.clone(),
        called_by: function.called_by.clone(),
        why,
        ranks: found.iter().map(|one| one.worker.rank).collect(),
        least_share: shares().fold(f64::MAX, f64::min),
        most_share: shares().fold(0.0, f64::max),
        peers_share: worst.peers_share.filter(|_| why == Why::UnlikePeers),
        rate: found.iter().filter_map(|one| one.vector.rate).min_by(f64::total_cmp),
        peers_rate: median(found.iter().filter_map(|one| one.peers_rate).collect()),
        unit: function.unit,
        distance: found.iter().map(|one| one.distance).fold(0.0, f64::max),
        cost_ns: cost as u64,
        sentence: String::new(),
    };
    row.sentence = sentence(&row, per);
    Some(row)
}
