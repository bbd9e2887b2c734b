//! Which threads launch, and whether they do the same.

use std::collections::HashMap;

use crate::launches::Kind;

/// Threads are alike if their numbers of launches of each kind differ by no more than this part.
const DIFFERENT: f64 = 0.05;

/// Fewer launches of a kind may differ.
const FEW: u64 = 100;

/// Threads that are alike must have this part of all launches: what others launch may end the steps.
const MOST: f64 = 0.9;

/// Threads that are counted: more than a host has GPUs.
const COUNTED: usize = 64;

/// Launches of each thread, by kind.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<usize, [u64; 5]>);

impl Threads {
    pub(super) fn count(&mut self, thread: usize, kind: Kind) {
        if self.0.len() < COUNTED || self.0.contains_key(&thread) {
            self.0.entry(thread).or_default()[kind as usize] += 1;
        }
    }

    /// The first of the threads that launch the same, if there are several, and they launch almost everything.
    pub(super) fn one_of_several_alike(&self) -> Option<usize> {
        let launches = |kinds: &[u64; 5]| kinds.iter().sum::<u64>();
        let (_, busiest) = self.0.iter().max_by_key(|(_, kinds)| launches(kinds))?;
        let alike =
            || self.0.iter().filter(|(_, kinds)| kinds.iter().zip(busiest).all(|(a, b)| is_near(*a, *b)));
        let theirs = alike().map(|(_, kinds)| launches(kinds)).sum::<u64>();
        let all = self.0.values().map(launches).sum::<u64>();
        let are_several = alike().count() > 1 && theirs as f64 >= MOST * all as f64;
        alike().map(|(&thread, _)| thread).min().filter(|_| are_several)
    }
}

fn is_near(a: u64, b: u64) -> bool {
    let most = a.max(b);
    most < FEW || a.abs_diff(b) as f64 <= DIFFERENT * most as f64
}
