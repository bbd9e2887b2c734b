//! Roles: workers that launch the same work are peers. Stages of a pipeline have different roles.

use std::collections::{BTreeSet, HashMap};

use xpu_model::job::median;

use super::{
    function::{Class, Known},
    profile::{Profile, Recorded},
};

/// Two workers are peers if their launched work is at least this similar.
const SIMILAR: f64 = 0.9;

/// Largest number of roles. A job with more different workers has none, because each worker has shapes of its
/// own.
const MOST_ROLES: usize = 64;

/// For each function, by number: launches per step times the function's typical duration over all workers. A
/// slow GPU therefore launches the same as its peers.
type Launched = Vec<(usize, f64)>;

/// The role of each worker. If all workers launch different work, workers with the same kinds of data share
/// one role.
pub(super) fn of(profiles: &[Profile], functions: &[Known]) -> Vec<usize> {
    let mut durations: HashMap<usize, Vec<f64>> = HashMap::new();
    for profile in profiles {
        for (&function, spent) in &profile.functions {
            if functions[function].key.class() == Class::Compute {
                durations.entry(function).or_default().extend(spent.mean_ns());
            }
        }
    }
    let typical: HashMap<_, _> =
        durations.into_iter().filter_map(|(function, all)| Some((function, median(all)?))).collect();
    let launched = |profile: &Profile| -> Launched {
        let each = profile.functions.iter();
        each.filter_map(|(function, spent)| {
            Some((*function, typical.get(function)? * spent.executions as f64 / profile.steps as f64))
        })
        .collect()
    };
    let all: Vec<_> = profiles.iter().map(|profile| (profile.recorded, launched(profile))).collect();
    alike(&all, |one, other| similarity(one, other) >= SIMILAR).unwrap_or_else(|| by_records(&all))
}

/// Numbers of the groups of similar workers; `None` if there are too many groups.
fn alike(all: &[(Recorded, Launched)], is_like: impl Fn(&Launched, &Launched) -> bool) -> Option<Vec<usize>> {
    let mut firsts: Vec<&(Recorded, Launched)> = Vec::new();
    let mut roles = Vec::with_capacity(all.len());
    for one in all {
        let known = firsts.iter().position(|first| first.0 == one.0 && is_like(&first.1, &one.1));
        roles.push(known.unwrap_or_else(|| {
            firsts.push(one);
            firsts.len() - 1
        }));
        if firsts.len() > MOST_ROLES.min(all.len() / 2).max(1) {
            return None;
        }
    }
    Some(roles)
}

fn by_records(all: &[(Recorded, Launched)]) -> Vec<usize> {
    let kinds: BTreeSet<_> = all.iter().map(|(recorded, _)| *recorded).collect();
    let kinds: Vec<_> = kinds.into_iter().collect();
    all.iter().map(|(recorded, _)| kinds.partition_point(|kind| kind < recorded)).collect()
}

/// The work that both launch, as a share of the work that either launches; 1 if neither launches anything.
fn similarity(one: &Launched, other: &Launched) -> f64 {
    let (mut a, mut b) = (one.iter().peekable(), other.iter().peekable());
    let (mut both, mut any) = (0.0, 0.0);
    loop {
        match (a.peek(), b.peek()) {
            (Some(&&(left, mine)), Some(&&(right, theirs))) if left == right => {
                both += mine.min(theirs);
                any += mine.max(theirs);
                a.next();
                b.next();
            }
            (Some(&&(left, mine)), right) if right.is_none_or(|right| left < right.0) => {
                any += mine;
                a.next();
            }
            (_, Some(&&(_, theirs))) => {
                any += theirs;
                b.next();
            }
            _ => break,
        }
    }
    if any > 0.0 { both / any } else { 1.0 }
}
