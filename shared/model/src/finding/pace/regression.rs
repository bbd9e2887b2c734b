//! The finding that steps take longer, and what changed with them: the GEMMs of all ranks or of a part, or the
//! host of a rank.

use xpu_wire::id::Rank;

use super::{
    super::{
        Class, Clocks, Confidence, Evidence, Finding, Kind, Severity, cpu_wait, device,
        evidence::{
            cost::LATE_HOST,
            pace::{Regression, SlowerPart},
        },
        slow::{SLOW, STEADY},
    },
    Growth, Measure, change,
    late::{self, Late},
};
use crate::job::{Job, RankView, median};

/// Number of ranks whose GEMMs must not have become slower, besides a quarter of all, so that the others are named.
const FEWEST_STEADY: usize = 3;

/// The ranks whose GEMMs became slower with the steps, if those of enough others did not, and by how much. One or two
/// ranks whose GEMMs did not become slower may themselves be the cause: an NCCL kernel that waits for them takes SMs
/// from the GEMMs of the others.
fn slower_part(asked: &[(Rank, &RankView)], growth: &Growth) -> Option<(Vec<Rank>, f64)> {
    let known = asked.iter().filter_map(|&(rank, view)| Some((rank, change(view, growth.measure)?.rate?)));
    let (slower, others): (Vec<(Rank, f64)>, Vec<_>) = known.partition(|(_, rate)| 1.0 + rate < SLOW);
    let steady = others.iter().filter(|(_, rate)| 1.0 + rate > STEADY).count();
    let is_clear = (slower.len() + steady) * 10 >= asked.len() * 9;
    if slower.len() < 2 || steady < FEWEST_STEADY.max(asked.len() / 4) || !is_clear {
        return None;
    }
    let rate = median(slower.iter().map(|(_, rate)| *rate).collect())?;
    Some((slower.into_iter().map(|(rank, _)| rank).collect(), rate))
}

pub(super) fn regression(job: &Job, asked: &[(Rank, &RankView)], growth: &Growth) -> Finding {
    let &Growth { measure, before, after, since_s, work, .. } = growth;
    let longer = growth.longer();
    let explains = |rate: f64| rate < -0.5 * longer / (1.0 + longer);
    let part = slower_part(asked, growth).filter(|(_, rate)| explains(*rate));
    let rate = part.as_ref().map(|(_, rate)| *rate).or(growth.rate);
    let slower = rate.is_some_and(explains);
    let clocks = match rate.filter(|_| slower && part.is_none()) {
        Some(rate) => Clocks::of_all(job).or_no_cause_at(1.0 + rate),
        None => Clocks::Unknown,
    };
    let part = part.map(|(ranks, _)| {
        let pct = 100.0 * ranks.len() as f64 / asked.len() as f64;
        let are_all_examined = asked.len() == job.ranks().filter(|(_, view)| view.is_alive()).count();
        SlowerPart { ranks: if are_all_examined { ranks } else { Vec::new() }, pct }
    });
    let lacks_cpu = cpu_wait::ranks(job, since_s).filter(|_| !slower);
    // A rank that lacks CPU time launches late because of that.
    let late = late::ranks(job, before).filter(|_| !slower && lacks_cpu.is_none());
    let ranks = lacks_cpu
        .as_ref()
        .map(|lacks| &lacks.ranks)
        .or_else(|| late.as_ref().map(|late| &late.ranks))
        .or_else(|| part.as_ref().map(|part| &part.ranks).filter(|ranks| !ranks.is_empty()))
        .cloned();
    let advice = if let Some(lacks) = &lacks_cpu {
        lacks.advice()
    } else if late.is_some() {
        LATE_HOST
    } else if part.is_some() {
        "something slows these GPUs: look at power caps, cooling and clocks of their hosts, and at what else runs on them (nvidia-smi)"
    } else if slower && job.ranks().len() == 1 && matches!(clocks, Clocks::Held(_)) {
        clocks.advice()
    } else if slower && job.ranks().all(|(_, view)| device::is_unheld(view)) {
        "something slows all GPUs alike, but their clocks are not held down: look at what else runs on them (nvidia-smi), and at changes of the program: shapes, precision, libraries"
    } else if slower {
        "something slows all GPUs alike: look at power caps, cooling and clocks of the hosts, and at what else runs on them"
    } else {
        "look at what changed then: data, evaluation, logging, the network, the file system; no single rank is late"
    };
    Finding {
        kind: if ranks.is_some() { Kind::SlowRank } else { Kind::Regression },
        class: match (&ranks, slower) {
            (_, true) if matches!(clocks, Clocks::Held(_)) => Class::Clocks,
            (_, true) => Class::Compute,
            (Some(_), false) => Class::Host,
            (None, false) => Class::Step,
        },
        ranks: ranks.unwrap_or_default(),
        // Longer sequences, whose FLOPs are unknown, may be the reason.
        confidence: if work.is_some() { Confidence::Likely } else { Confidence::Guess },
        since_s,
        evidence: Evidence::Regression(Regression {
            before_ms: before * 1e3,
            after_ms: after * 1e3,
            is_mean: measure == Measure::Mean,
            since_s,
            work_pct: work.map(|more| 100.0 * more),
            rate_pct: rate.map(|more| -100.0 * more),
            is_compute: slower,
            slower: part,
            clocks: if let Clocks::Held(held) = clocks { Some(held) } else { None },
            late: late.map(Late::late_launches),
            lacks_cpu,
        }),
        advice: advice.to_owned(),
        collective: None,
        severity: Severity::Slow,
        cost: Some(growth.cost(job.ranks().len())),
    }
}
