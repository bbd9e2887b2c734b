//! The time that a step loses to each cause. Causes overlap, because a slow rank on a slow host counts in
//! both, so the losses do not add up to the whole.

use serde::Serialize;
use xpu_wire::id::{HostName, Rank};

use super::{
    Cause, Kind, WhatIf,
    figures::{ACCOUNTS, LEAST_GAIN},
    hosts::HostFigures,
    sentence::STRAGGLES,
};

/// The time that one cause takes of each step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    pub cause: Cause,
    /// The ranks, for the cause `ranks`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Rank>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<usize>,
    /// Step time without it.
    pub repaired_ms: f64,
    pub lost_ms: f64,
}

impl WhatIf {
    /// The host that accounts for half of the loss, if no small group of ranks does.
    pub(super) fn slow_host(&self) -> Option<&HostFigures> {
        let first = self.host_figures.first().filter(|_| self.culprits.is_none());
        first.filter(|of| self.accounts(of.repaired_ms))
    }

    /// Whether the repair after which a step takes this long gains half of the loss.
    pub(super) fn accounts(&self, repaired_ms: f64) -> bool {
        let lost = self.step.simulated_ms - self.step.ideal_ms;
        self.step.simulated_ms - repaired_ms >= ACCOUNTS * lost
    }

    /// `all`, and the causes that take more than 1 % of a step.
    pub fn losses(&self) -> Vec<Loss> {
        let simulated = self.step.simulated_ms;
        let least = LEAST_GAIN * simulated;
        let of = |cause, repaired_ms: f64| Loss {
            cause,
            ranks: Vec::new(),
            host: None,
            stage: None,
            repaired_ms,
            lost_ms: (simulated - repaired_ms).max(0.0),
        };
        let mut all = vec![of(Cause::All, self.step.ideal_ms)];
        let ranks = match &self.culprits {
            Some(culprits) => {
                let is_known = culprits.ranks.len() == 1 || self.slowdown >= STRAGGLES;
                is_known.then(|| (culprits.ranks.clone(), culprits.repaired_ms))
            }
            None => self.workers.first().and_then(|worker| Some((vec![worker.rank], worker.repaired_ms?))),
        };
        let ranks = ranks.filter(|_| self.workers.len() > 1);
        let ranks = ranks.map(|(ranks, repaired)| Loss { ranks, ..of(Cause::Ranks, repaired) });
        all.extend(ranks.filter(|loss| loss.lost_ms > least));
        let host = self.slow_host();
        let host = host
            .map(|of_host| Loss { host: Some(of_host.host.clone()), ..of(Cause::Host, of_host.repaired_ms) });
        all.extend(host.filter(|loss| loss.lost_ms > least));
        let best = |one: &&super::StageFigures, other: &&super::StageFigures| {
            one.repaired_ms.total_cmp(&other.repaired_ms)
        };
        let stage = self.stage_figures.iter().min_by(best);
        let stage =
            stage.map(|stage| Loss { stage: Some(stage.stage), ..of(Cause::Stage, stage.repaired_ms) });
        all.extend(stage.filter(|loss| loss.lost_ms > least));
        let transfer = self.kinds.iter().find(|of| of.kind == Kind::Communication);
        let transfer = transfer.map(|kind| (kind.slowdown - 1.0) * self.step.ideal_ms);
        let transfer = transfer.map(|lost| of(Cause::Communication, simulated - lost));
        all.extend(transfer.filter(|loss| loss.lost_ms > least));
        all
    }
}
