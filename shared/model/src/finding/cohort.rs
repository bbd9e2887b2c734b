//! Ranks that do the same work. Only these can be compared, for example ranks of the same pipeline stage.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use xpu_wire::id::{CommunicatorId, Rank};

use super::rank_profile::{Mix, RankProfile};
use crate::job::{Job, RankView, median};

/// Means of the ranks of one cohort differ by at most this share. It is less than the difference between
/// unequal layers and stages, and more than the difference caused by steps that digests cut in two.
pub(super) const ALIKE: f64 = 0.05;

/// Number of digests that count as current: two outliers do not move the median of this many.
pub(super) const RECENT: usize = 5;

/// Number of current digests in which a condition must hold to be reported: most of them.
pub(super) const PERSISTENT: usize = 3;

/// Number of digests that are examined for arrival skew if it affects few collectives of a step and few are
/// timed: half of the time within which a slow rank must be named.
pub(super) const LONG: usize = 3 * RECENT;

/// Number of ranks from which the median is the reference. With fewer, one slow rank moves the median, so the
/// least conspicuous rank is the reference.
pub(super) const MANY: usize = 4;

/// Single ranks are named only if at most one rank in this many is concerned. The median of all ranks is then 0.32
/// spreads from that of the others (the 62.5th percentile of a normal distribution), so it remains their reference.
pub(super) const FEW: usize = 5;

/// Number of standard errors within which a value lies 19 times out of 20.
pub(super) const WIDTH: f64 = 2.0;

/// Number of usual spreads from which a value counts as different from the others: among normal values, a
/// difference of four occurs once in 8,000 by chance.
pub(super) const SPREADS: f64 = 4.0;

/// The usual spread of values with these deviations: the median deviation, scaled to the standard deviation
/// of normal values. A few outliers do not change it.
pub(super) fn spread(deviations: impl Iterator<Item = f64>) -> f64 {
    1.4826 * median(deviations.map(f64::abs).collect()).unwrap_or(0.0)
}

/// The usual value of the other ranks.
pub(super) fn usual_of_others(others: Vec<f64>) -> Option<f64> {
    least_or_middle(others.len() + 1, others)
}

/// The usual value of all ranks.
pub(super) fn usual_of_all(all: Vec<f64>) -> Option<f64> {
    least_or_middle(all.len(), all)
}

fn least_or_middle(ranks: usize, known: Vec<f64>) -> Option<f64> {
    if ranks < MANY { known.into_iter().min_by(f64::total_cmp) } else { median(known) }
}

/// One rank, and the profile of its digests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub rank: Rank,
    pub view: &'a RankView,
    profile: &'a RankProfile,
}

impl Deref for Member<'_> {
    type Target = RankProfile;

    fn deref(&self) -> &RankProfile {
        self.profile
    }
}

/// Ranks grouped by their work, as far as digests show it.
pub(super) fn of<'a>(
    ranks: impl Iterator<Item = (Rank, &'a RankView, &'a RankProfile)>,
) -> Vec<Vec<Member<'a>>> {
    let counting = ranks.filter(|(.., profile)| profile.counts);
    let members: Vec<_> = counting.map(|(rank, view, profile)| Member { rank, view, profile }).collect();
    // There are few distinct sizes. Their indices are sorted instead, because they are close together in
    // memory.
    let sizes: BTreeSet<&[u32]> = members.iter().map(|member| &member.profile.mix.sizes[..]).collect();
    let sizes: Vec<_> = sizes.into_iter().collect();
    let place = |member: &Member<'a>| sizes.binary_search(&&member.profile.mix.sizes[..]).unwrap_or_default();
    let mut known: Vec<_> =
        members.into_iter().map(|member| (place(&member), member.profile.mix.gemm_flops, member)).collect();
    known.sort_by(|(a, gemm, _), (b, other, _)| a.cmp(b).then(gemm.total_cmp(other)));
    let groups = split(known, |(a, gemm, _), (b, other, _)| a == b && are_alike(*gemm, *other, ALIKE));
    let cohorts = groups.into_iter().flat_map(|group| {
        let mut group: Vec<_> =
            group.into_iter().map(|(.., member)| (member.profile.mix.gemms_per_collective, member)).collect();
        group.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let blur = |one: &Member<'a>, other: &Member<'a>| one.profile.mix.blur.max(other.profile.mix.blur);
        split(group, |(a, one), (b, other)| are_alike(*a, *b, blur(one, other)))
    });
    cohorts.map(|cohort| cohort.into_iter().map(|(_, member)| member).collect()).collect()
}

/// The ranks that do the same work as this one, including itself.
pub fn peers(job: &Job, rank: Rank) -> Vec<Rank> {
    let Some(this) = job.rank(rank) else { return Vec::new() };
    let (mix, part) = (Mix::of(this), this.part());
    let alike = |view: &RankView| {
        let other = Mix::of(view);
        view.part() == part
            && other.sizes == mix.sizes
            && are_alike(other.gemm_flops, mix.gemm_flops, ALIKE)
            && are_alike(other.gemms_per_collective, mix.gemms_per_collective, mix.blur.max(other.blur))
    };
    job.ranks().filter(|&(other, view)| other == rank || alike(view)).map(|(other, _)| other).collect()
}

/// The ranks of a cohort by part, as far as communicators show it: if ranks send to each other, those of one
/// stage form a part.
pub(super) fn parts<'a>(cohort: &'a [Member<'a>]) -> Vec<Vec<&'a Member<'a>>> {
    let mut parts: BTreeMap<Option<CommunicatorId>, Vec<_>> = BTreeMap::new();
    for member in cohort {
        parts.entry(member.part).or_default().push(member);
    }
    parts.into_values().collect()
}

fn are_alike(a: f64, b: f64, within: f64) -> bool {
    (a - b).abs() <= within * a.abs().max(b.abs())
}

/// Cuts a sorted list where two neighbours differ.
fn split<T>(sorted: Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for one in sorted {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| same(last, &one)) => group.push(one),
            _ => groups.push(vec![one]),
        }
    }
    groups
}
