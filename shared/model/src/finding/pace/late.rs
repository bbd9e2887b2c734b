//! Ranks whose host launches too late. During long steps, the GPU of such a rank has nothing queued, while
//! the other GPUs have everything queued that their hosts launched meanwhile. Each digest covers its own rank
//! alone, so no clocks are compared, and no timings are needed.

use xpu_wire::id::Rank;

use super::super::{
    cohort::{FEW, usual_of_others},
    evidence::pace::LateLaunches,
};
use crate::job::{Ahead, Job, RankView, median};

/// Number of digests in the look-back, the half minute within which a slow rank must be named; and the
/// smallest number in which a condition counts as persistent.
const LOOKED_BACK: usize = 28;
const LEAST: usize = 3;

/// Number of digests that are needed if all late ranks are on one host: its digests are taken at the same
/// moment, so together they count once.
const LEAST_OF_A_HOST: usize = 8;

/// A digest is slow if its steps, at the usual step time, account for less than this share of its time.
const SLOW: f64 = 0.5;

/// Smallest number of collectives that the others have queued: the one that runs and one behind it. And the
/// largest share of their number for a late rank.
const QUEUED: f64 = 2.0;
const FEWER: f64 = 0.5;

/// Smallest difference between the queues: a digest may come just before or after a few launches, such as the
/// buckets of a step.
const APART: f64 = 4.0;

/// Share of its slow digests in which a late rank must have fewer queued: in a pause that all ranks make,
/// which rank is ahead is chance.
const MOSTLY: f64 = 0.75;

/// Largest share of digests in which the threads of a late rank are in a waiting call. A rank that waits at
/// all waits in most digests, except those in which it launches. Tuned.
const WAITS: f64 = 0.3;

/// The late ranks, and the median queue lengths during long steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Late {
    pub(super) ranks: Vec<Rank>,
    pub(super) queued: f64,
    pub(super) others_queued: f64,
}

impl Late {
    pub(super) fn late_launches(self) -> LateLaunches {
        LateLaunches { ranks: self.ranks, queued: self.queued, others_queued: self.others_queued }
    }
}

/// Results from a rank's slow digests.
struct Found {
    rank: Rank,
    digests: usize,
    /// Number of queued collectives that this share of the digests does not exceed: half, and [`MOSTLY`].
    queued: f64,
    mostly: f64,
    waits: f64,
}

/// `pace` is the usual step time, in seconds.
pub(super) fn ranks(job: &Job, pace: f64) -> Option<Late> {
    let living: Vec<_> = job.ranks().filter(|(_, view)| view.is_alive()).collect();
    // A rank that waits for a pipeline neighbour has launched nothing either.
    if living.iter().any(|(_, view)| view.part().is_some()) {
        return None;
    }
    let found: Vec<_> = living.iter().filter_map(|(rank, view)| find(*rank, view, pace)).collect();
    if found.len() < 2 || found.len() * 2 <= living.len() {
        return None;
    }
    let others =
        |of: Rank| usual_of_others(found.iter().filter(|one| one.rank != of).map(|one| one.queued).collect());
    let late: Vec<_> = found
        .iter()
        .filter_map(|one| Some((one, others(one.rank)?)))
        .filter(|(one, usual)| {
            *usual >= QUEUED
                && one.mostly < FEWER * usual
                && usual - one.queued >= APART
                && one.waits <= WAITS
        })
        .collect();
    let (first, others_queued) = *late.first()?;
    let of_one_host =
        |rank: Rank| job.rank(rank).map(RankView::host) == job.rank(first.rank).map(RankView::host);
    let here = living.iter().filter(|(rank, _)| of_one_host(*rank)).count();
    let is_one_host =
        late.len() > 1 && late.len() * 2 > here && late.iter().all(|(one, _)| of_one_host(one.rank));
    if is_one_host && here < living.len() && late.iter().any(|(one, _)| one.digests < LEAST_OF_A_HOST) {
        return None;
    }
    let ranks: Vec<_> = late.iter().map(|(one, _)| one.rank).collect();
    let queued = median(late.iter().map(|(one, _)| one.queued).collect())?;
    (ranks.len() <= (living.len() / FEW).max(1)).then_some(Late { ranks, queued, others_queued })
}

fn find(rank: Rank, view: &RankView, pace: f64) -> Option<Found> {
    let is_slow = |one: &&Ahead| f64::from(one.steps) * pace < SLOW * f64::from(one.passed);
    let slow: Vec<_> = view.ahead().take(LOOKED_BACK).filter(is_slow).collect();
    if slow.len() < LEAST {
        return None;
    }
    let waits = slow.iter().filter(|one| one.waits).count() as f64 / slow.len() as f64;
    let mut queued: Vec<_> = slow.iter().map(|one| f64::from(one.queued)).collect();
    queued.sort_by(f64::total_cmp);
    Some(Found {
        rank,
        digests: slow.len(),
        mostly: queued[(MOSTLY * (queued.len() - 1) as f64).ceil() as usize],
        queued: median(queued)?,
        waits,
    })
}
