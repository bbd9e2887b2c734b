//! Steps that have taken longer since another process uses the GPU of a rank. Its begin is known, so that a
//! smaller increase is significant than that of steps which become longer at an unknown time.

use xpu_wire::{id::Rank, unit::Moment};

use super::{
    super::{
        Class, Confidence, Evidence, Finding, Kind, Severity, evidence::pace::Regression, slow::REPORTED,
    },
    Growth, asked,
};
use crate::job::{Job, RankView};

/// Ranks whose neighbours began within this many seconds of each other are reported together: they belong to
/// one program.
const TOGETHER_S: f64 = 10.0;

/// The ranks whose GPUs others use, with the longer steps of the job since then. [`Evidence::Shared`] adds the
/// processes.
pub(in crate::finding) fn on_gpu(job: &Job) -> Option<Finding> {
    let shared: Vec<_> =
        job.ranks().filter_map(|(rank, view)| Some((rank, view, used_since(view)?))).collect();
    let &(_, first, began) =
        shared.iter().max_by(|(_, one, _), (_, other, _)| busy(one).total_cmp(&busy(other)))?;
    let ago = |at: Moment| first.last_report().since(at).as_secs_f64();
    let views: Vec<_> = asked(job).into_iter().map(|(_, view)| view).collect();
    let growth = Growth::since(&views, ago(began))?;
    let share = growth.share();
    // It takes no more than the time for which it uses the GPU. Steps may have become longer at the same time
    // for another reason.
    let is_clear = share - growth.error > REPORTED && growth.matters() && busy(first) >= 100.0 * share;
    let is_of_it = |&&(_, view, at): &&(Rank, &RankView, Moment)| {
        busy(view) > 0.0 && (ago(at) - ago(began)).abs() < TOGETHER_S
    };
    is_clear.then(|| Finding {
        kind: Kind::SlowRank,
        class: Class::Compute,
        ranks: shared.iter().filter(is_of_it).map(|&(rank, ..)| rank).collect(),
        confidence: Confidence::Guess,
        since_s: growth.since_s,
        evidence: Evidence::Regression(Regression {
            before_ms: growth.before * 1e3,
            after_ms: growth.after * 1e3,
            is_mean: false,
            since_s: growth.since_s,
            work_pct: growth.work.map(|more| 100.0 * more),
            rate_pct: growth.rate.map(|more| -100.0 * more),
            is_compute: false,
            slower: None,
            clocks: None,
            late: None,
            lacks_cpu: None,
        }),
        advice: String::new(),
        collective: None,
        severity: Severity::Slow,
        cost: Some(growth.cost(job.gpus())),
    })
}

/// When the first of the other processes on its GPU began.
fn used_since(view: &RankView) -> Option<Moment> {
    view.neighbours().iter().map(|process| process.since).min()
}

/// Percent of the time for which other processes use its GPU.
fn busy(view: &RankView) -> f64 {
    view.neighbours().iter().filter_map(|process| process.busy).map(f64::from).sum()
}
