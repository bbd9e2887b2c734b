//! The functions in which the time was spent, on all ranks together.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;
use xpu_wire::{frame::StackFrame, id::Rank};

use super::{
    RankSamples,
    place::{Key, key, line, shown},
};
use crate::capture::{Stack, report::share};

/// Smallest share of a listed function.
const LEAST: f64 = 0.01;

/// Number of paths listed per function.
const PATHS: usize = 3;

/// One function on all ranks.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionRow {
    pub function: String,
    pub file: String,
    pub line: u32,
    /// `main`, or Python's name of the thread without its numbers.
    pub thread: String,
    pub samples: u64,
    /// The share of time in the function itself, and the share including its callees.
    pub self_share: f64,
    pub total_share: f64,
    pub paths: Vec<Path>,
    /// The rank with the largest share, this share, and the median of all ranks.
    pub most: Rank,
    pub most_share: f64,
    pub median_share: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Path {
    pub share: f64,
    /// Outermost first.
    pub calls: Vec<String>,
}

#[derive(Default)]
struct Function<'a> {
    own: u64,
    total: u64,
    lines: Vec<u32>,
    ranks: BTreeMap<Rank, u64>,
    paths: BTreeMap<Vec<Key<'a>>, (u64, &'a [Arc<StackFrame>])>,
}

pub(super) fn functions(sampled: &[RankSamples<'_>]) -> Vec<FunctionRow> {
    let mut all: BTreeMap<(String, Key<'_>), Function<'_>> = BTreeMap::new();
    let mut readings: BTreeMap<Rank, u64> = BTreeMap::new();
    for &(rank, of, sampled) in sampled {
        for step in of.whole_steps(rank) {
            for (_, stack) in sampled.between(step.from, step.to) {
                *readings.entry(rank).or_default() += u64::from(stack.thread.main);
                let thread = role(stack);
                let mut seen = BTreeSet::new();
                for (depth, frame) in stack.frames.iter().enumerate().rev() {
                    // A function that calls itself counts once.
                    if !seen.insert(key(frame)) {
                        continue;
                    }
                    let function = all.entry((thread.clone(), key(frame))).or_default();
                    function.total += 1;
                    function.own += u64::from(depth + 1 == stack.frames.len());
                    function.lines.push(frame.line);
                    *function.ranks.entry(rank).or_default() += 1;
                    let path: Vec<_> = stack.frames[..depth].iter().map(|frame| key(frame)).collect();
                    function.paths.entry(path).or_insert((0, &stack.frames[..depth])).0 += 1;
                }
            }
        }
    }
    let readings_of_all: u64 = readings.values().sum();
    let of_all = |count: u64| share(count, readings_of_all).unwrap_or(0.0);
    let row = |((thread, (function, file)), of): ((String, Key<'_>), Function<'_>)| {
        let mut ranks: Vec<_> = readings
            .iter()
            .map(|(rank, &all)| (*rank, share(of.ranks.get(rank).copied().unwrap_or(0), all).unwrap_or(0.0)))
            .collect();
        ranks.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let (most, most_share) = *ranks.first()?;
        let mut paths: Vec<_> = of.paths.into_values().collect();
        paths.sort_by_key(|(count, _)| Reverse(*count));
        let path = |(count, frames): (u64, &[Arc<StackFrame>])| Path {
            share: of_all(count),
            calls: frames.iter().map(|frame| shown(&frame.function, &frame.file, frame.line)).collect(),
        };
        Some(FunctionRow {
            function: function.to_owned(),
            file: file.to_owned(),
            line: line(of.lines.iter().copied()),
            thread,
            samples: of.total,
            self_share: of_all(of.own),
            total_share: of_all(of.total),
            paths: paths.into_iter().take(PATHS).map(path).collect(),
            most,
            most_share,
            median_share: ranks[ranks.len() / 2].1,
        })
    };
    let mut rows: Vec<_> = all.into_iter().filter_map(row).filter(|row| row.total_share >= LEAST).collect();
    rows.sort_by(|a, b| b.self_share.total_cmp(&a.self_share).then(b.total_share.total_cmp(&a.total_share)));
    rows
}

/// Threads of one kind have the same name except for numbers.
pub(crate) fn role(stack: &Stack) -> String {
    if stack.thread.main {
        return "main".to_owned();
    }
    let mut name = String::new();
    for letter in stack.thread.name.chars() {
        match letter {
            '0'..='9' if name.ends_with('*') => {}
            '0'..='9' => name.push('*'),
            letter => name.push(letter),
        }
    }
    if name.is_empty() { "thread".to_owned() } else { name }
}
