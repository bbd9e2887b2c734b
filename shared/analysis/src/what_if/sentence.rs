//! The figures as sentences.

use xpu_model::figure;
use xpu_wire::unit::Nanoseconds;

use super::{
    WhatIf, Worker,
    figures::{ACCOUNTS, Culprits, LEAST_GAIN},
};

/// A job with at least this slowdown counts as straggling, as in the paper.
pub(super) const STRAGGLES: f64 = 1.1;

/// Largest difference of the simulated step from the measured one without a note that the figures are rough,
/// as in the paper.
const OFF: f64 = 0.05;

pub(super) fn sentences(of: &WhatIf) -> Vec<String> {
    let mut all = vec![whole(of)];
    let (worker, stage) = (worker(of), stage(of));
    // The larger contribution comes first.
    if of.m_s > of.m_w {
        all.extend(stage.into_iter().chain(worker));
    } else {
        all.extend(worker.into_iter().chain(stage));
    }
    all.extend(sequence_length(of));
    let off = of.step.simulated_ms / of.step.measured_ms - 1.0;
    if off.abs() > OFF {
        all.push(format!(
            "The simulated step is {} off the measured one of {}: these figures are rough.",
            figure::percent(off.abs()),
            time(of.step.measured_ms)
        ));
    }
    all
}

fn whole(of: &WhatIf) -> String {
    let (more, waste) = (figure::percent(of.slowdown - 1.0), figure::percent(of.waste));
    let (simulated, ideal) = (time(of.step.simulated_ms), time(of.step.ideal_ms));
    let much = if of.slowdown < STRAGGLES {
        " That is little: a job counts as straggling from 10 % on."
    } else {
        ""
    };
    format!(
        "Stragglers make a step {more} longer than the ideal one: {simulated} instead of {ideal}. They waste {waste} of the GPU time.{much}"
    )
}

fn worker(of: &WhatIf) -> Vec<String> {
    if let Some(Culprits { ranks, repaired_ms }) = &of.culprits {
        let who = match &**ranks {
            [rank] => of.workers.iter().find(|worker| worker.rank == *rank).map(|worker| named(of, worker)),
            _ => None,
        };
        let who = who.unwrap_or_else(|| {
            format!("ranks {}", ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        });
        return repair(of, Some(*repaired_ms), &format!("{who} were as fast as the others"))
            .into_iter()
            .collect();
    }
    let Some(first) = of.workers.first().filter(|_| of.workers.len() > 1) else { return Vec::new() };
    let mut all: Vec<_> =
        repair(of, first.repaired_ms, &format!("{} were as fast as the others", named(of, first)))
            .into_iter()
            .collect();
    if let Some(host) = host(of) {
        return vec![host];
    }
    let is_a_stage = of.stage_figures.first().is_some_and(|stage| of.accounts(stage.repaired_ms));
    if of.slowdown >= STRAGGLES && !is_a_stage {
        all.push(
            "No small group of ranks accounts for half of the loss: look at stages, batches and kinds of operations."
                .to_owned(),
        );
    }
    all
}

fn host(of: &WhatIf) -> Option<String> {
    let host = of.slow_host()?;
    let who = format!("host {} ({} ranks) were as fast as the others", host.host, host.ranks);
    repair(of, Some(host.repaired_ms), &who)
}

fn named(of: &WhatIf, worker: &Worker) -> String {
    let Worker { rank, stage, data_parallel, .. } = worker;
    if of.stages > 1 {
        format!("rank {rank} (stage {stage}, data-parallel rank {data_parallel})")
    } else {
        format!("rank {rank}")
    }
}

fn stage(of: &WhatIf) -> Vec<String> {
    let is_last = of.m_s.is_some_and(|share| share >= ACCOUNTS);
    // The stage of a slow rank is slow too.
    let Some(first) = of.stage_figures.first().filter(|_| is_last || of.culprits.is_none()) else {
        return Vec::new();
    };
    let mut all: Vec<_> = repair(
        of,
        Some(first.repaired_ms),
        &format!("stage {} were as fast as the other stages", first.stage),
    )
    .into_iter()
    .collect();
    if let Some(share) = of.m_s.filter(|share| of.slowdown >= STRAGGLES && *share >= ACCOUNTS) {
        all.push(format!(
            "The last stage accounts for {} of the loss: give it fewer layers than the others.",
            part(share)
        ));
    }
    all
}

fn repair(of: &WhatIf, repaired_ms: Option<f64>, condition: &str) -> Option<String> {
    let simulated = of.step.simulated_ms;
    let repaired = repaired_ms.filter(|repaired| simulated - repaired > LEAST_GAIN * simulated)?;
    Some(format!("If {condition}, a step would take {} instead of {}.", time(repaired), time(simulated)))
}

fn sequence_length(of: &WhatIf) -> Option<String> {
    let length = of.sequence_length.filter(|length| length.is_likely && of.slowdown >= STRAGGLES)?;
    Some(format!(
        "Batches of different sequence lengths are a likely cause: the forward times of a rank vary by {}, and the same microbatches are slow backward (correlation {:.2}). Balance the batches.",
        figure::whole_percent(length.variation),
        length.correlation
    ))
}

/// A share as a percentage, bounded, because a repair may gain more than the ideal, or lengthen a step.
fn part(share: f64) -> String {
    if share >= 0.995 { "all".to_owned() } else { figure::whole_percent(share.max(0.0)) }
}

fn time(milliseconds: f64) -> String {
    figure::time(Nanoseconds((milliseconds * 1e6) as u64))
}
