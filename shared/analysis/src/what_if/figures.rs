//! Results of the simulations: by how much stragglers slow the job down; the kinds, stages and workers that
//! cause it; and what a repair would gain.

use serde::Serialize;
use xpu_wire::id::{Rank, Step};

use super::{
    Job, Kind,
    graph::Durations,
    hosts::{self, HostFigures},
    ideal::median,
    length, sentence,
};

/// `xpu-top what-if --json`. Slowdowns are step times over the ideal step time: 1.1 is 10 % longer.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    pub steps: Vec<Step>,
    /// Steps left out because their ranks' operations differ.
    pub steps_left_out: usize,
    pub stages: usize,
    pub data_parallel: usize,
    pub step: StepTimes,
    /// S: the simulated step time over the ideal one.
    pub slowdown: f64,
    /// 1 - 1/S: the share of the GPU-hours that stragglers cost.
    pub waste: f64,
    /// `M_W`: the share of the lost time that is gained if the slowest 3 % of the workers are ideal; `null`
    /// if no time is lost.
    pub m_w: Option<f64>,
    /// The slowest 3 %.
    pub slowest: Vec<Rank>,
    /// `M_S`: the same for the last stage; `null` without a pipeline.
    pub m_s: Option<f64>,
    /// Present for pipelines, whose compute has microbatches.
    pub sequence_length: Option<SequenceLength>,
    /// The costliest first.
    pub kinds: Vec<KindFigures>,
    /// The slowest first; empty without a pipeline.
    pub stage_figures: Vec<StageFigures>,
    /// The best repair first. Present for captures of several hosts with several ranks each.
    pub host_figures: Vec<HostFigures>,
    /// The smallest set of the slowest workers whose repair gains half of the lost time; `null` if it takes
    /// more than a few.
    pub culprits: Option<Culprits>,
    /// The slowest first. If the best repair gains more than 1 % of a step, its worker comes before all
    /// others.
    pub workers: Vec<Worker>,
    pub sentences: Vec<String>,
}

/// Means over the steps, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepTimes {
    pub measured_ms: f64,
    /// The simulated time does not include idle time in which an operation could already have started.
    pub simulated_ms: f64,
    pub ideal_ms: f64,
}

/// Whether batches of different lengths are the cause: then the same microbatches are slow forward and
/// backward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SequenceLength {
    /// Pearson's correlation of the forward and backward times of a worker's microbatches; the median over
    /// workers.
    pub correlation: f64,
    /// Standard deviation of a worker's forward times over their mean; the median over workers.
    pub variation: f64,
    pub is_likely: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct KindFigures {
    pub kind: Kind,
    /// `S_t`: the slowdown with these operations as they were, and all others ideal.
    pub slowdown: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct StageFigures {
    pub stage: usize,
    /// The slowdown with this stage as it was, and all others ideal.
    pub slowdown: f64,
    /// Step time if its operations took as long as those of the other stages.
    pub repaired_ms: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Worker {
    pub rank: Rank,
    pub stage: usize,
    pub data_parallel: usize,
    /// `S_w`: the smaller of the slowdowns of its stage and of its data-parallel rank.
    pub slowdown: f64,
    /// Step time if its operations took as long as those of the other ranks of its stage; only for the first
    /// workers.
    pub repaired_ms: Option<f64>,
}

/// Workers that are repaired together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Culprits {
    pub ranks: Vec<Rank>,
    /// Step time if their operations took as long as those of the other ranks of their stages.
    pub repaired_ms: f64,
}

/// Percentage of the workers in `M_W`.
const SLOWEST_PERCENT: usize = 3;

/// Number of workers whose repair is simulated.
const REPAIRED: usize = 16;

/// A part whose repair gains this share of the lost time counts as the cause, as in the paper.
pub(super) const ACCOUNTS: f64 = 0.5;

/// A repair must gain this share of a step to be reported.
pub(super) const LEAST_GAIN: f64 = 0.01;

/// Smallest lost share of a step that counts.
const LEAST_LOST: f64 = 1e-9;

impl WhatIf {
    pub fn of(job: &Job) -> Self {
        let ideal = job.ideal();
        let host = job.host_steps.iter().cloned().map(median).fold(0.0, f64::max);
        let time = |durations: &Durations| job.graph.mean_step(durations, job.shape).max(host);
        let (actual_s, ideal_s) = (time(&job.actual), time(&ideal));
        let lost = Some(actual_s - ideal_s).filter(|lost| *lost > LEAST_LOST);
        let over_ideal = |seconds: f64| if ideal_s > 0.0 { seconds / ideal_s } else { 1.0 };
        // These operations as they were, and all others ideal.
        let alone = |chosen: &dyn Fn(usize, usize) -> bool| {
            over_ideal(time(&job.replaced(&ideal, &job.actual, chosen)))
        };
        let gained = |chosen: &dyn Fn(usize, usize) -> bool| {
            let left = time(&job.replaced(&job.actual, &ideal, chosen));
            lost.map(|lost| (actual_s - left) / lost)
        };
        let mut workers = workers(job, &alone);
        let count = (workers.len() * SLOWEST_PERCENT).div_ceil(100);
        let slowest = &workers[..count];
        let is_slowest = |index: usize, place: usize| {
            let (stage, replica) = (job.stage(index), place % job.shape.replicas);
            slowest.iter().any(|worker| worker.stage == stage && worker.data_parallel == replica)
        };
        let is_last = |index: usize, _: usize| job.stage(index) + 1 == job.stages;
        let (m_w, slowest) = (gained(&is_slowest), slowest.iter().map(|worker| worker.rank).collect());
        let culprits = lost.and_then(|lost| culprits(job, &workers, 1e3 * (actual_s - ACCOUNTS * lost)));
        let host_figures = hosts::figures(job, &workers);
        best_first(&mut workers, 1e3 * (1.0 - LEAST_GAIN) * actual_s);
        let mut new = Self {
            steps: job.steps.clone(),
            steps_left_out: job.left_out,
            stages: job.stages,
            data_parallel: job.shape.replicas,
            step: StepTimes {
                measured_ms: 1e3 * super::graph::mean(&job.measured),
                simulated_ms: 1e3 * actual_s,
                ideal_ms: 1e3 * ideal_s,
            },
            slowdown: over_ideal(actual_s),
            waste: 1.0 - 1.0 / over_ideal(actual_s),
            m_w,
            m_s: gained(&is_last).filter(|_| job.stages > 1),
            slowest,
            culprits,
            sequence_length: length::length(job),
            kinds: kinds(job, &alone),
            stage_figures: stages(job, &alone),
            host_figures,
            workers,
            sentences: Vec::new(),
        };
        new.sentences = sentence::sentences(&new);
        new
    }
}

impl Job {
    fn stage(&self, index: usize) -> usize {
        self.graph.operations[index].stage
    }

    /// Step time with these durations, and with the hosts of all ranks but the repaired ones, by their stage
    /// and replica.
    fn repaired_ms(&self, durations: &Durations, is_repaired: &dyn Fn(usize, usize) -> bool) -> f64 {
        let of_stage = |(stage, steps): (usize, &Vec<f64>)| {
            let others = steps.iter().enumerate().filter(|(replica, _)| !is_repaired(stage, *replica));
            others.map(|(_, shortest)| *shortest).fold(0.0, f64::max)
        };
        let host = self.host_steps.iter().enumerate().map(of_stage).fold(0.0, f64::max);
        1e3 * self.graph.mean_step(durations, self.shape).max(host)
    }

    /// Step time if a stage took as long as the others.
    fn stage_repaired_ms(&self, stage: usize) -> f64 {
        let mut durations = self.actual.clone();
        let is_it = |index: usize, _: usize| self.stage(index) == stage;
        self.make_like(&mut durations, &is_it, &|index, place| !is_it(index, place));
        self.repaired_ms(&durations, &|of, _| of == stage)
    }
}

type Alone<'a> = &'a dyn Fn(&dyn Fn(usize, usize) -> bool) -> f64;

fn kinds(job: &Job, alone: Alone<'_>) -> Vec<KindFigures> {
    let there: std::collections::BTreeSet<_> =
        job.graph.operations.iter().map(|operation| operation.kind).collect();
    let mut all: Vec<_> = there
        .into_iter()
        .map(|kind| KindFigures {
            kind,
            slowdown: alone(&|index, _| job.graph.operations[index].kind == kind),
        })
        .collect();
    all.sort_by(|one, other| other.slowdown.total_cmp(&one.slowdown));
    all
}

fn stages(job: &Job, alone: Alone<'_>) -> Vec<StageFigures> {
    if job.stages < 2 {
        return Vec::new();
    }
    let mut all: Vec<_> = (0..job.stages)
        .map(|stage| StageFigures {
            stage,
            slowdown: alone(&|index, _| job.stage(index) == stage),
            repaired_ms: job.stage_repaired_ms(stage),
        })
        .collect();
    all.sort_by(|one, other| other.slowdown.total_cmp(&one.slowdown));
    all
}

/// Runs one simulation per stage and one per replica, because one for each pair would be too many.
fn workers(job: &Job, alone: Alone<'_>) -> Vec<Worker> {
    let replicas = job.shape.replicas;
    let of_replica: Vec<f64> =
        (0..replicas).map(|replica| alone(&|_, place| place % replicas == replica)).collect();
    let mut all = Vec::new();
    for stage in 0..job.stages {
        let of_stage = alone(&|index, _| job.stage(index) == stage);
        all.extend((0..replicas).map(|replica| Worker {
            rank: job.ranks[stage][replica],
            stage,
            data_parallel: replica,
            slowdown: of_stage.min(of_replica[replica]),
            repaired_ms: None,
        }));
    }
    all.sort_by(|one, other| other.slowdown.total_cmp(&one.slowdown).then_with(|| one.rank.cmp(&other.rank)));
    let repaired: Vec<_> =
        all.iter().take(REPAIRED).map(|worker| together_ms(job, std::slice::from_ref(worker))).collect();
    for (worker, repaired_ms) in all.iter_mut().zip(repaired) {
        worker.repaired_ms = Some(repaired_ms);
    }
    all
}

/// Step time if the operations of these workers took as long as those of the other ranks of their stages, or
/// of the other stages if all ranks of a stage are among them.
pub(super) fn together_ms(job: &Job, workers: &[Worker]) -> f64 {
    let replicas = job.shape.replicas;
    let mut are_repaired = vec![vec![false; replicas]; job.stages];
    for worker in workers {
        are_repaired[worker.stage][worker.data_parallel] = true;
    }
    let is_one = |stage: usize, place: usize| are_repaired[stage][place % replicas];
    let mut durations = job.actual.clone();
    let has_repaired = |stage: &usize| are_repaired[*stage].contains(&true);
    for of_stage in (0..job.stages).filter(has_repaired) {
        let chosen = |index: usize, place: usize| job.stage(index) == of_stage && is_one(of_stage, place);
        let is_whole = !are_repaired[of_stage].contains(&false);
        let others = |index: usize, place: usize| {
            let stage = job.stage(index);
            (is_whole || stage == of_stage) && !is_one(stage, place)
        };
        job.make_like(&mut durations, &chosen, &others);
    }
    // Only a job without stages has compute beside a collective that waits.
    job.uncrowd(&mut durations, &|replica| are_repaired[0][replica]);
    job.repaired_ms(&durations, &|stage, replica| are_repaired[stage][replica])
}

/// The smallest sufficient set of workers. A repair suffices if a step then takes at most `enough_ms`.
fn culprits(job: &Job, workers: &[Worker], enough_ms: f64) -> Option<Culprits> {
    // At most half of the others, so fewer than half of the workers; or one of two.
    let others = workers.len().saturating_sub(1);
    let most = (others / 2).max(1).min(others).min(REPAIRED);
    (1..=most).find_map(|count| {
        let repaired_ms = together_ms(job, &workers[..count]);
        let ranks = || workers[..count].iter().map(|worker| worker.rank).collect();
        (repaired_ms <= enough_ms).then(|| Culprits { ranks: ranks(), repaired_ms })
    })
}

/// Moves the worker with the best sufficient repair to the front. A worker's score is that of its stage or
/// data-parallel rank, but its repair concerns the worker alone.
pub(super) fn best_first(workers: &mut [Worker], enough_ms: f64) {
    let repaired = |worker: &Worker| worker.repaired_ms.filter(|repaired| *repaired < enough_ms);
    let with_place =
        workers.iter().enumerate().filter_map(|(place, worker)| Some((place, repaired(worker)?)));
    if let Some((place, _)) = with_place.min_by(|one, other| one.1.total_cmp(&other.1)) {
        workers[..=place].rotate_right(1);
    }
}
