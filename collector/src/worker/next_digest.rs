//! A rank's published state: a digest each second, and the last digest again for new viewers.

use xpu_model::peak::Peaks;
use xpu_wire::{
    frame::{Advance, Blocked, BlockingCall, HookHealth, Progress, RankDigest},
    ledger::LedgerPage,
    unit::{Moment, Nanoseconds},
};

use super::Worker;
use crate::digest::{foremost, inside};

impl Worker {
    /// The digest of the events since the last digest; `None` without news.
    pub(crate) fn next_digest(&mut self, peaks: Peaks, now: Moment) -> Option<&RankDigest> {
        if !self.unsaid && !self.is_there() {
            return None;
        }
        self.unsaid = false;
        let ledger = self.ledger.as_ref().map(LedgerPage::ledger);
        self.held_memory.take(self.step.map(|(step, _)| step), self.latest.memory.held, ledger, now);
        let pending = std::mem::take(&mut self.pending);
        self.step_times.take(&pending.steps);
        let [step_p50, step_p99] = self.step_times.percentiles([50, 99]);
        let steps = self.latest.steps.as_ref();
        let (gemm_timed_flops, gemm_timed_for) = self.totals.timed();
        let in_graphs = self.totals.in_graphs();
        let communicators = foremost(&self.communicators);
        self.communicators.retain(|known| !known.closed);
        let HookHealth { enabled, dropped_records, untimed, budget_ppm, gemm_rate, collective_rate, .. } =
            self.latest.hook;
        let digest = RankDigest {
            rank: self.info.rank,
            world_size: self.info.world_size,
            pid: self.info.pid,
            life: self.life,
            heard: self.heard,
            step: self.step.map(|(step, _)| step),
            step_at: self.step.map(|(_, at)| at).unwrap_or_default(),
            step_median: pending.steps.median(),
            step_count: u32::try_from(pending.steps.count()).unwrap_or(u32::MAX),
            step_p50,
            step_p99,
            steps_timed_by: steps.map(|steps| steps.timed_by).unwrap_or_default(),
            step_source: steps.map(|steps| steps.source),
            optimizer: steps.map(|steps| text(&steps.optimizer)).unwrap_or_default(),
            work: steps.map(|steps| steps.work).unwrap_or_default(),
            gemm_timed_flops,
            gemm_timed_for,
            gemm_flops: self.totals.flops(),
            gemm_at_peak: self.totals.at_peak(&peaks.or_of(&self.latest.device)),
            graphs_for: in_graphs.time,
            graphs_flops: in_graphs.flops,
            samples: pending.samples_of(&communicators),
            communicators,
            inside: self
                .ledger
                .as_ref()
                .map(|page| inside(page.ledger().read().threads, now))
                .unwrap_or_default(),
            launches: self.latest.launches,
            dropped_records,
            untimed,
            overhead_ppm: pending.overhead_ppm().unwrap_or(self.digest.overhead_ppm),
            budget_ppm,
            gemm_rate,
            collective_rate,
            memory_held: self.latest.memory.held,
            memory_nccl: self.latest.memory.nccl,
            memory_growth: self.held_memory.growth(),
            blocked_for: Nanoseconds(self.latest.blocked.iter().map(|blocked| blocked.waited.0).sum()),
            blocked_calls: calls_that_wait(&self.latest.blocked),
            exposed_for: self.latest.exposed_for,
            device: self.device.clone(),
            enabled,
            blind: self.blind(),
        };
        let before = std::mem::replace(&mut self.digest, digest);
        self.times.take(&self.digest, &self.latest);
        let first = self.advance == Advance::default();
        if first || before.heard < self.heard {
            self.advance.take((!first).then_some(&before), &self.digest);
        }
        self.pace = self.advance.pace();
        if self.progress.back().is_none_or(|last| last.heard < self.heard) {
            self.progress.push_back(Progress::of(&self.digest));
        }
        if self.progress.len() > Progress::WINDOW {
            self.progress.pop_front();
        }
        if !self.digest.samples.is_empty() {
            self.reporting = Some(self.digest.clone());
        }
        Some(&self.digest)
    }

    fn blind(&self) -> Vec<String> {
        self.latest.hook.blind.iter().take(RankDigest::BLIND).map(|said| text(said)).collect()
    }

    /// Its totals at each digest of the last half minute, or since its first digest.
    pub(crate) fn earlier(&self) -> Vec<Progress> {
        self.progress.iter().copied().collect()
    }

    /// When it last made progress, according to the digests.
    pub(crate) fn advance(&self) -> &Advance {
        &self.advance
    }

    /// The last digest, with the rank's present [`Life`]. For a rank that has ended, this is completed from
    /// the last digest with timed collectives and steps, because the interval of an end is usually empty.
    pub(crate) fn said(&self) -> RankDigest {
        let mut said = RankDigest { life: self.life, ..self.digest.clone() };
        if !self.is_there()
            && let Some(reporting) = self.reporting.as_ref().filter(|_| said.samples.is_empty())
        {
            // Samples refer to communicators by index, so the list of communicators comes from the same
            // digest as the samples. Its counts come from the last digest.
            let newest = std::mem::replace(&mut said.communicators, reporting.communicators.clone());
            for state in &mut said.communicators {
                let same = newest.iter().find(|one| (one.id, one.rank) == (state.id, state.rank));
                if let Some(newer) = same {
                    state.clone_from(newer);
                }
            }
            said.samples.clone_from(&reporting.samples);
            if said.step_median.is_none() {
                (said.step_median, said.step_count) = (reporting.step_median, reporting.step_count);
            }
        }
        said
    }
}

/// A text for every viewer: shortened, and safe for a terminal.
fn text(said: &str) -> String {
    said.chars().filter(|c| !c.is_control()).take(RankDigest::LONGEST_BLIND).collect()
}

/// Number of calls that wait for the GPU. A launch into a full queue does not count.
fn calls_that_wait(blocked: &[Blocked]) -> u64 {
    blocked.iter().filter(|blocked| blocked.call != BlockingCall::Launch).map(|blocked| blocked.count).sum()
}
