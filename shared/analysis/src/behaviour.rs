//! Function-level behaviour of all workers: the share of its rank's critical path that each GPU operation,
//! CUDA call and Python function takes, and the ranks that differ from their peers.
//!
//! The method is that of `PerfTracker` (arXiv 2506.08528): a function becomes a small vector per worker, and
//! workers are compared by the distances of their vectors. docs/capture.md has the formulas.

mod abnormal;
mod critical_path;
mod distance;
mod function;
mod local;
mod profile;
mod role;
mod sentence;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;

pub use abnormal::{Abnormal, Why, abnormal};
pub use function::{Class, Function, Unit};
pub use local::{brief, functions};
use profile::Profile;
pub(crate) use sentence::amount;
use serde::Serialize;
use xpu_model::{figure::runs, job::median};
use xpu_wire::id::Rank;

use crate::capture::{Capture, Per};

/// The share of the critical path that a function may take if it is neither GPU compute nor communication. It
/// is `PerfTracker`'s limit.
const EXPECTED: f64 = 0.01;

/// Functions below this share of the critical path on every worker are left out.
pub const LEAST: f64 = 0.01;

/// Number of functions kept per worker, the costliest first. With the longest names, 100 vectors take less
/// than 30 KB.
pub const MOST_FUNCTIONS: usize = 100;

/// Number of sentences in a report.
const SENTENCES: usize = 8;

/// One function on one worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Vector {
    /// Index into [`Behaviour::functions`].
    pub function: usize,
    /// Share of the critical path, without the time that overlaps with a class listed before its own.
    pub share: f64,
    /// Same as `share`, including the time that overlaps.
    pub total: f64,
    /// Number of executions in the recorded steps; for a sampled function, number of readings.
    pub executions: u64,
    /// Mean and standard deviation of the rate while it executes, in the function's unit; `null` if the
    /// capture has no rate for it.
    pub rate: Option<f64>,
    pub variation: Option<f64>,
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
pub struct Worker {
    pub rank: Rank,
    /// Workers with the same number do the same work, and are compared.
    pub role: usize,
    /// Critical path of a step, or of a second of a window.
    pub path_ns: u64,
    /// Readings of its main thread.
    pub samples: u64,
    /// Whether all kernels were recorded. Otherwise, the gaps of the GPU are not known to be idle time.
    pub all_kernels: bool,
    /// In the order of the functions.
    pub vectors: Vec<Vector>,
}

/// `behaviour` of `xpu-top report --json`
#[derive(Clone, Debug, Serialize)]
pub struct Behaviour {
    pub per: Per,
    /// The function with the largest share over all workers first.
    pub functions: Vec<Function>,
    pub workers: Vec<Worker>,
    /// The costliest first.
    pub abnormal: Vec<Abnormal>,
}

/// A function over all workers that have it.
#[derive(Clone, Debug)]
pub struct FunctionRow<'a> {
    pub function: &'a Function,
    pub workers: usize,
    pub least_share: f64,
    pub median_share: f64,
    pub most_share: f64,
    pub most: Rank,
    pub median_rate: Option<f64>,
    pub abnormal: usize,
}

impl Behaviour {
    pub fn of(capture: &Capture) -> Self {
        let own = capture.ranks.keys().filter_map(|&rank| functions(capture, rank));
        let mut all: Vec<_> = own.chain(capture.functions.values().cloned()).collect();
        all.sort_by_key(|of| of.rank);
        all.dedup_by_key(|of| of.rank);
        let per = capture.per();
        let (functions, profiles) = profile::of(&all, per);
        let roles = role::of(&profiles, &functions);
        let kept = kept(&profiles, functions.len());
        let mut number = vec![None; functions.len()];
        for (new, &old) in kept.iter().enumerate() {
            number[old] = Some(new);
        }
        let workers: Vec<_> =
            profiles.iter().zip(roles).map(|(profile, role)| worker(profile, role, &number)).collect();
        let functions: Vec<_> = kept.iter().map(|&old| functions[old].finish()).collect();
        Self { abnormal: abnormal(&functions, &workers, per), per, functions, workers }
    }

    /// One sentence for each abnormal function, the costliest first; after the first few, the number of the
    /// others.
    pub fn sentences(&self) -> Vec<String> {
        let mut lines = self.roles();
        lines.extend(self.abnormal.iter().take(SENTENCES).map(|row| row.sentence.clone()));
        if let Some(more @ 1..) = self.abnormal.len().checked_sub(SENTENCES) {
            lines.push(format!("and {more} more functions are unusual: `--json` lists them (`abnormal`)"));
        }
        lines
    }

    /// Describes which workers are compared, if they have different roles.
    fn roles(&self) -> Vec<String> {
        let mut roles: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for worker in &self.workers {
            roles.entry(worker.role).or_default().push(worker.rank.0.into());
        }
        if roles.len() < 2 {
            return Vec::new();
        }
        let named: Vec<_> = roles.values().take(SENTENCES).map(|ranks| runs(ranks)).collect();
        let more = if roles.len() > SENTENCES { ", ..." } else { "" };
        vec![format!(
            "ranks have {} roles by the work they launch, and each is compared with its own role: {}{more}",
            roles.len(),
            named.join("; ")
        )]
    }

    /// In the order of the functions.
    pub fn rows(&self) -> Vec<FunctionRow<'_>> {
        let mut all: Vec<Vec<(Rank, &Vector)>> = vec![Vec::new(); self.functions.len()];
        for worker in &self.workers {
            for vector in &worker.vectors {
                all[vector.function].push((worker.rank, vector));
            }
        }
        self.functions
            .iter()
            .zip(all)
            .filter_map(|(function, vectors)| {
                let shares = || vectors.iter().map(|(_, vector)| vector.share);
                let (most, its) = vectors.iter().max_by(|a, b| a.1.share.total_cmp(&b.1.share))?;
                let named = self.abnormal.iter().filter(|row| row.is_of(function));
                Some(FunctionRow {
                    function,
                    workers: vectors.len(),
                    least_share: shares().fold(f64::MAX, f64::min),
                    median_share: median(shares().collect())?,
                    most_share: its.share,
                    most: *most,
                    median_rate: median(vectors.iter().filter_map(|(_, vector)| vector.rate).collect()),
                    abnormal: named.map(|row| row.ranks.len()).sum(),
                })
            })
            .collect()
    }
}

/// Functions that take enough on some worker, the largest share of all workers first.
fn kept(profiles: &[Profile], functions: usize) -> Vec<usize> {
    let mut shares: Vec<Vec<f64>> = vec![Vec::new(); functions];
    for profile in profiles {
        let mut its: Vec<_> = profile.shares().filter(|(_, share)| *share >= LEAST).collect();
        its.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (function, share) in its.into_iter().take(MOST_FUNCTIONS) {
            shares[function].push(share);
        }
    }
    let mut kept: Vec<_> = shares
        .into_iter()
        .enumerate()
        .filter_map(|(function, of)| Some((function, of.len() as f64 * median(of)?)))
        .collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    kept.into_iter().map(|(function, _)| function).collect()
}

fn worker(profile: &Profile, role: usize, number: &[Option<usize>]) -> Worker {
    let mut vectors: Vec<_> = profile
        .functions
        .iter()
        .filter_map(|(&function, spent)| {
            let (rate, variation) = spent.rate().unzip();
            let share = profile.share(spent);
            let (total, executions) = (profile.total(spent), spent.executions);
            Some(Vector { function: number[function]?, share, total, executions, rate, variation })
        })
        .collect();
    vectors.sort_by(|a, b| b.share.total_cmp(&a.share));
    vectors.truncate(MOST_FUNCTIONS);
    vectors.sort_by_key(|vector| vector.function);
    Worker {
        rank: profile.rank,
        role,
        path_ns: profile.path_ns,
        samples: profile.samples,
        all_kernels: profile.recorded.kernels,
        vectors,
    }
}
