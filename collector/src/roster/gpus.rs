//! Processes that use several GPUs: each GPU is a rank of its own ([`Rank::of_gpu`]).
//!
//! The process is the worker of its first GPU. The workers of its other GPUs have figures and communicators
//! of their own, and get no orders.

use xpu_wire::{
    frame::{
        Body, CollectiveSample, Event, GpuSummary, HookHealth, MemoryTotals, RankInfo, Steps, Summary, Work,
    },
    id::Rank,
    unit::Moment,
};

use super::{Effect, Place, Roster, publish};
use crate::{address::Identity, worker::Worker};

impl Roster {
    /// Gives each GPU except the first its part of a summary. The part of the first GPU remains in the
    /// summary.
    pub(super) fn split_by_gpu(
        &mut self,
        info: &RankInfo,
        number: u64,
        summary: &mut Summary,
        now: Moment,
    ) -> Vec<Effect> {
        let mut gpus = std::mem::take(&mut summary.gpus);
        gpus.truncate(Rank::GPUS as usize);
        let rank_of = |gpu: &GpuSummary| info.rank.process().of_gpu(gpu.index);
        let ranks: Vec<_> = gpus.iter().map(rank_of).collect();
        self.forget_beside(info, |rank| !ranks.contains(&rank));
        let Some(own) = gpus.iter().position(|gpu| rank_of(gpu) == info.rank) else { return Vec::new() };
        let own = gpus.remove(own);
        let mut effects = Vec::new();
        for gpu in gpus {
            let place = Place { job: info.job.clone(), rank: rank_of(&gpu) };
            let part = beside(gpu, summary);
            let known = self.places.get(&place).is_some_and(|worker| worker.is_process_of(info));
            if !known {
                let is_taken = self.places.get(&place).is_some_and(|holder| !holder.has_left());
                if is_taken || !self.make_room(&place) {
                    continue;
                }
                let info = RankInfo { rank: place.rank, ..info.clone() };
                effects.push(publish(Body::Event(Event::Joined(info.clone()))));
                // No message comes from this identity: messages come from the process.
                let worker = Worker::beside(Identity(Vec::new()), info, number, now);
                self.places.insert(place.clone(), worker);
            }
            if let Some(worker) = self.places.get_mut(&place) {
                worker.summary(number, part, now);
                effects.extend(super::life_event(worker, xpu_wire::frame::Life::Alive, now));
                effects.push(Effect::Fresh(place.job, place.rank));
            }
        }
        keep_own(own, summary);
        effects
    }

    /// Drops the other GPUs of a process for which `is_gone`.
    pub(super) fn forget_beside(&mut self, info: &RankInfo, is_gone: impl Fn(Rank) -> bool) {
        self.places.retain(|place, worker| {
            let is_its = worker.is_beside() && place.job == info.job && worker.is_process_of(info);
            !(is_its && is_gone(place.rank))
        });
    }

    /// The places of the other GPUs of a process.
    pub(super) fn places_beside(&self, info: &RankInfo) -> Vec<Place> {
        let its = |(place, worker): &(&Place, &Worker)| {
            worker.is_beside() && place.job == info.job && worker.is_process_of(info)
        };
        self.places.iter().filter(its).map(|(place, _)| place.clone()).collect()
    }
}

/// The part of a GPU other than the first. It has no figures of the whole process.
fn beside(gpu: GpuSummary, of: &Summary) -> Summary {
    let HookHealth { enabled, budget_ppm, gemm_rate, collective_rate, .. } = of.hook;
    let mut part = Summary {
        interval: of.interval,
        steps: of.steps.clone().map(|steps| Steps { work: Work::default(), ..steps }),
        hook: HookHealth { enabled, budget_ppm, gemm_rate, collective_rate, ..HookHealth::default() },
        communicators: of.communicators.clone(),
        samples: of.samples.clone(),
        ..Summary::default()
    };
    keep_own(gpu, &mut part);
    part
}

/// Replaces the figures of the process by those of this GPU. Removes how long threads waited, which is unknown for
/// a single GPU.
fn keep_own(gpu: GpuSummary, summary: &mut Summary) {
    let GpuSummary { index: _, name, uuid, gemms, collectives, graphs, exposed_for, .. } = gpu;
    let GpuSummary { communicators, launches, memory_held: held, memory_peak: peak, .. } = gpu;
    let own = |at: u8| communicators.iter().position(|&known| known == at);
    let samples = summary.samples.iter().filter_map(|sample| {
        let communicator = u8::try_from(own(sample.communicator)?).ok()?;
        Some(CollectiveSample { communicator, ..*sample })
    });
    summary.samples = samples.collect();
    let states = communicators.iter().filter_map(|&at| summary.communicators.get(usize::from(at)).cloned());
    summary.communicators = states.collect();
    (summary.gemms, summary.collectives, summary.graphs) = (gemms, collectives, graphs);
    summary.launches = launches;
    summary.memory = MemoryTotals { held, peak, nccl: None, ..std::mem::take(&mut summary.memory) };
    (summary.blocked, summary.exposed_for) = (Vec::new(), exposed_for);
    (summary.device, summary.device_uuid) = (name, uuid);
}

#[cfg(test)]
#[path = "gpus_tests.rs"]
mod tests;
