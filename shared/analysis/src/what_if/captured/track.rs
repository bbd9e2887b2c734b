//! The steps of a capture that can be simulated, and what all of them have in common.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::id::{Rank, Step};

use super::{
    Refusal, align,
    cut::{Cut, Cutter},
    launch::Launch,
    link::{Link, links},
    sequence::Sequence,
    stages::Stages,
};
use crate::capture::{Capture, Kind, Single, WholeStep, ends_together};

pub(super) struct Tracks {
    pub(super) stages: Stages,
    pub(super) steps: Vec<Step>,
    /// The launches of each stage, in the order of its cuts.
    pub(super) sequence: Sequence,
    /// For each stage, step by step, all replicas of each.
    pub(super) cuts: Vec<Vec<Cut>>,
    /// The launches that end together.
    pub(super) links: Vec<Link>,
    pub(super) left_out: usize,
    /// The shortest step by each rank's host, without calls that wait for the GPU, in seconds. Stage by stage.
    pub(super) host_steps: Vec<Vec<f64>>,
}

/// Nothing is simulated if more than one in this many operations is untimed.
const UNTIMED: u64 = 4;

/// A step of all ranks, in their order.
pub(super) struct Whole<'a> {
    number: Step,
    pub(super) ranks: Vec<WholeStep<'a>>,
    pub(super) launches: Vec<Vec<Launch>>,
}

impl<'a> Whole<'a> {
    fn of(number: Step, of_ranks: BTreeMap<Rank, WholeStep<'a>>) -> Self {
        let ranks: Vec<WholeStep<'a>> = of_ranks.into_values().collect();
        Self { number, launches: ranks.iter().map(Launch::all).collect(), ranks }
    }

    /// The k-th launch of a rank.
    pub(super) fn launch(&self, rank: Rank, k: usize) -> Option<&'a Single> {
        let at = self.ranks.binary_search_by_key(&rank, |of| of.rank).ok()?;
        self.ranks[at].operations.get(self.launches[at].get(k)?.at)
    }
}

impl Tracks {
    pub(super) fn of(capture: &Capture) -> Result<Self, Refusal> {
        let steps: Vec<WholeStep<'_>> = capture.whole_steps().collect();
        if steps.is_empty() {
            return Err(Refusal::NoSteps);
        }
        check(capture, &steps)?;
        let mut by_number: BTreeMap<Step, BTreeMap<Rank, WholeStep<'_>>> = BTreeMap::new();
        for step in steps {
            by_number.entry(step.step).or_default().insert(step.rank, step);
        }
        by_number.retain(|_, of_ranks| of_ranks.len() == capture.ranks.len());
        let all: Vec<Whole<'_>> =
            by_number.into_iter().map(|(number, of_ranks)| Whole::of(number, of_ranks)).collect();
        if all.is_empty() {
            return Err(Refusal::NoSteps);
        }
        let launches: Vec<(Rank, &[Launch])> = all
            .iter()
            .flat_map(|step| {
                step.ranks.iter().zip(&step.launches).map(|(of, launches)| (of.rank, &**launches))
            })
            .collect();
        let stages = Stages::of(capture, &launches)?;
        // If the ranks of a stage launched different collectives in a step, it has no sequence.
        let of = |step: &Whole<'_>| {
            let by_rank = step.ranks.iter().zip(&step.launches).map(|(of, launches)| (of.rank, &**launches));
            Sequence::of(capture, &stages, by_rank)
        };
        let sequences = all.iter().map(of).collect::<Result<Vec<Option<Sequence>>, _>>()?;
        let Some(usual) = most_common(sequences.iter().flatten()) else {
            return Err(if stages.is_pipeline() {
                Refusal::NotPipeline("the ranks of a stage do not launch the same operations".to_owned())
            } else {
                Refusal::NotSpmd("its ranks do not launch the same collectives".to_owned())
            });
        };
        // Steps with other collectives, such as one step in ten that logs, are left out.
        if let Some(other) = usual.collectives().find(|of| !ends_together(*of)) {
            return Err(Refusal::NotSpmd(format!("its steps have {other:?} operations")));
        }
        let found = links(capture, &stages, &usual)?;
        let are_usual = all.iter().zip(&sequences).filter(|(_, known)| known.as_ref() == Some(&usual));
        let offsets = || align::offsets(capture, &stages, are_usual.map(|(step, _)| step), &found);
        let cutter = Cutter::of(&stages, &usual, &found, offsets)?;
        let mut numbers = Vec::new();
        let mut cuts = vec![Vec::new(); stages.ranks.len()];
        for (pair, known) in all.windows(2).zip(sequences.windows(2)) {
            let [before, step] = pair else { continue };
            if known.iter().any(|sequence| sequence.as_ref() != Some(&usual)) {
                continue;
            }
            if let Some(made) = cutter.cut(before, step) {
                for (of_stage, made) in cuts.iter_mut().zip(made) {
                    of_stage.extend(made);
                }
                numbers.push(step.number);
            }
        }
        if numbers.is_empty() {
            return Err(Refusal::NoSteps);
        }
        let left_out = all.len() - 1 - numbers.len();
        let host_steps = host_steps(&all, &stages);
        let (sequence, found) = cutter.in_order_of_cuts(usual, found)?;
        Ok(Self { stages, steps: numbers, sequence, cuts, links: found, left_out, host_steps })
    }
}

/// A host that launches into a full queue waits too. The shortest step is one in which the queue was not full.
fn host_steps(all: &[Whole<'_>], stages: &Stages) -> Vec<Vec<f64>> {
    let mut shortest: Vec<Vec<f64>> =
        stages.ranks.iter().map(|ranks| vec![f64::INFINITY; ranks.len()]).collect();
    for step in all.iter().flat_map(|step| &step.ranks) {
        let took =
            step.to.since(step.from).saturating_sub(Duration::from_nanos(step.blocked())).as_secs_f64();
        let (stage, replica) = stages.place(step.rank);
        shortest[stage][replica] = shortest[stage][replica].min(took);
    }
    shortest
}

/// Refuses operations that cannot be simulated, and names them.
fn check(capture: &Capture, steps: &[WholeStep<'_>]) -> Result<(), Refusal> {
    let refused = |what: &str| Err(Refusal::NotSpmd(what.to_owned()));
    let (mut communicators, mut timed) = (BTreeMap::new(), 0);
    for single in steps.iter().flat_map(|step| step.operations) {
        timed += u64::from(single.on_gpu().is_some());
        if single.kind() == Kind::Graph {
            return refused("it has launches of CUDA graphs");
        }
        if let Some(communicator) = Launch::communicator_of(single) {
            *communicators.entry(communicator).or_insert(0_u64) += 1;
        }
    }
    let untimed = capture.ranks.values().map(|rank| rank.account.untimed).fold(0, u64::saturating_add);
    if untimed > 0 && untimed.saturating_mul(UNTIMED) > untimed.saturating_add(timed) {
        return Err(Refusal::Untimed { untimed, all: untimed.saturating_add(timed) });
    }
    if communicators.is_empty() {
        return refused("it has no collectives, so no rank waits for another");
    }
    let there = capture.ranks.len();
    let largest = communicators
        .keys()
        .filter_map(|id| capture.communicators.get(id))
        .map(|known| known.size as usize)
        .max();
    let all = largest.unwrap_or(there).max(capture.world_size.unwrap_or(0) as usize);
    if all > there { Err(Refusal::RanksMissing { there, all }) } else { Ok(()) }
}

fn most_common<'a>(all: impl Iterator<Item = &'a Sequence>) -> Option<Sequence> {
    let mut counts: BTreeMap<&Sequence, usize> = BTreeMap::new();
    for sequence in all {
        *counts.entry(sequence).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(sequence, _)| sequence.clone())
}
