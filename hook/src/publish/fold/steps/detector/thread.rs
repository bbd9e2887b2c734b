//! Which threads launch work, and whether they do the same work.

use std::collections::HashMap;

use crate::observe::launches::Kind;

/// Threads are alike if their numbers of launches of each kind differ by at most this fraction.
const DIFFERENT: f64 = 0.05;

/// The numbers of launches of a kind may also differ by this fraction of all launches of a thread.
const FEW: f64 = 0.005;

/// If the busiest thread has fewer launches, threads are not compared.
const ENOUGH: u64 = 500;

/// Threads that are alike must make at least this fraction of all launches; otherwise the launches of other
/// threads might end the steps.
const MOST: f64 = 0.9;

/// Maximum number of threads that are counted: more than a host has GPUs.
const COUNTED: usize = 64;

/// The number of launches of each thread, by kind.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<usize, [u64; 5]>);

impl Threads {
    pub(super) fn count(&mut self, thread: usize, kind: Kind) {
        if self.0.len() < COUNTED || self.0.contains_key(&thread) {
            self.0.entry(thread).or_default()[kind as usize] += 1;
        }
    }

    /// The first of the threads that launch the same work, if there are several such threads and they make
    /// almost all launches.
    pub(super) fn one_of_several_alike(&self) -> Option<usize> {
        let launches = |kinds: &[u64; 5]| kinds.iter().sum::<u64>();
        let (_, busiest) = self.0.iter().max_by_key(|(_, kinds)| launches(kinds))?;
        let most = launches(busiest);
        if most < ENOUGH {
            return None;
        }
        let is_like = |kinds: &[u64; 5]| kinds.iter().zip(busiest).all(|(a, b)| is_near(*a, *b, most));
        let alike = || self.0.iter().filter(|(_, kinds)| is_like(kinds));
        let theirs = alike().map(|(_, kinds)| launches(kinds)).sum::<u64>();
        let all = self.0.values().map(launches).sum::<u64>();
        let are_several = alike().count() > 1 && theirs as f64 >= MOST * all as f64;
        alike().map(|(&thread, _)| thread).min().filter(|_| are_several)
    }
}

fn is_near(a: u64, b: u64, all: u64) -> bool {
    let differ = a.abs_diff(b) as f64;
    differ <= FEW * all as f64 || differ <= DIFFERENT * a.max(b) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(of: &[[u64; 5]]) -> Threads {
        Threads(of.iter().enumerate().map(|(thread, kinds)| (thread, *kinds)).collect())
    }

    #[test]
    fn threads_are_alike_if_their_launches_are() {
        let one = [400, 100, 800, 50, 50];
        assert_eq!(threads(&[one, [395, 99, 790, 49, 50]]).one_of_several_alike(), Some(0));
        assert_eq!(threads(&[one]).one_of_several_alike(), None);
        let backward = [800, 100, 400, 50, 50];
        assert_eq!(threads(&[one, backward]).one_of_several_alike(), None);
        let without_collectives = [400, 0, 800, 50, 50];
        assert_eq!(threads(&[one, without_collectives]).one_of_several_alike(), None);
        let another = [0, 0, 400, 0, 0];
        assert_eq!(
            threads(&[one, one, another]).one_of_several_alike(),
            None,
            "what it launches may end a step"
        );
        assert_eq!(threads(&[[4, 1, 8, 0, 0]; 2]).one_of_several_alike(), None, "too early");
    }
}
