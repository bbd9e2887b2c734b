//! Ranks that do not get the CPU time they need: a possible cause of longer steps, or of a late rank.

use std::time::Duration;

use xpu_wire::id::Rank;

use super::{cohort::usual_of_others, evidence::pace::LacksCpu};
use crate::job::{CpuWait, Job, RankView};

/// Least share of the time spent waiting (the share from which a cost is `critical`), and least multiple of
/// the others' share.
const LEAST: f64 = 0.15;
const TIMES_THEIRS: f64 = 2.0;

/// Longest and shortest look-back, in seconds: the history that is kept, and the time of a few readings, one
/// a second.
const LONGEST: f64 = 28.0;
const SHORTEST: f64 = 4.0;

/// Living ranks that have waited for the CPU for this many seconds, each far longer than the others; or all
/// ranks, if most wait.
pub(super) fn ranks(job: &Job, since_s: f64) -> Option<LacksCpu> {
    let living = job.ranks().filter(|(_, view)| view.is_alive());
    let waits: Vec<(Rank, CpuWait)> = living.map(|(rank, view)| (rank, of(view, since_s))).collect();
    let long: Vec<_> = waits.iter().filter(|(_, wait)| wait.share() >= LEAST).collect();
    let is_most = long.len() * 2 > waits.len() && waits.len() > 2;
    let others = |of: Rank| {
        usual_of_others(waits.iter().filter(|(rank, _)| *rank != of).map(|(_, wait)| wait.share()).collect())
    };
    let is_apart = |(rank, wait): &(Rank, CpuWait)| {
        is_most || others(*rank).is_none_or(|usual| wait.share() > TIMES_THEIRS * usual)
    };
    let named: Vec<_> = long.into_iter().filter(|one| is_apart(one)).collect();
    let (worst, wait) = named.iter().max_by(|(_, a), (_, b)| a.share().total_cmp(&b.share()))?;
    let usual = others(*worst).filter(|_| !is_most);
    Some(lacking(named.iter().map(|(rank, _)| *rank).collect(), wait, usual))
}

/// Same as [`ranks`], for one rank compared with others.
pub(super) fn one(rank: Rank, view: &RankView, others: &[&RankView], since_s: f64) -> Option<LacksCpu> {
    let wait = of(view, since_s);
    let usual = usual_of_others(others.iter().map(|other| of(other, since_s).share()).collect());
    let is_apart = wait.share() >= LEAST && usual.is_none_or(|usual| wait.share() > TIMES_THEIRS * usual);
    is_apart.then(|| lacking(vec![rank], &wait, usual))
}

fn of(view: &RankView, since_s: f64) -> CpuWait {
    view.cpu_wait(Duration::from_secs_f64(since_s.clamp(SHORTEST, LONGEST)))
}

fn lacking(ranks: Vec<Rank>, wait: &CpuWait, others: Option<f64>) -> LacksCpu {
    LacksCpu {
        ranks,
        waited_pct: 100.0 * wait.waited,
        thread: wait.thread.clone(),
        throttled_pct: 100.0 * wait.throttled,
        stopped_pct: 100.0 * wait.stopped,
        others_pct: others.map(|share| 100.0 * share),
    }
}
