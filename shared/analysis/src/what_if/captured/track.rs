//! The steps of a capture that can be simulated, and what all of them have in common.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::id::{Rank, Step};

use super::{
    Refusal, align,
    cut::{Cut, Cutter},
    launch::Launch,
    launches::Name,
    link::{Link, links},
    stages::Stages,
    usual::Usual,
};
use crate::capture::{Capture, Kind, Single, WholeStep, ends_together};

pub(super) struct Tracks {
    pub(super) stages: Stages,
    pub(super) steps: Vec<Step>,
    /// The launches of each stage, in the order of its cuts.
    pub(super) names: Vec<Vec<Name>>,
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

    /// The launches of each rank.
    pub(super) fn of_ranks(&self) -> impl Iterator<Item = (Rank, &[Launch])> {
        self.ranks.iter().zip(&self.launches).map(|(of, launches)| (of.rank, &**launches))
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
        let Usual { stages, launches, in_steps } = Usual::of(capture, &all)?;
        // Steps with other collectives, such as one step in ten that logs, are left out.
        if let Some(other) = launches.collectives().find(|of| !ends_together(*of)) {
            return Err(stages.refused(&format!("its steps have {other:?} operations")));
        }
        let found = links(capture, &stages, &launches)?;
        let usual = all.iter().zip(&in_steps).filter(|(_, is_usual)| **is_usual);
        let offsets = || align::offsets(capture, &stages, usual.map(|(step, _)| step), &found);
        let cutter = Cutter::of(&stages, &launches, &found, offsets)?;
        let mut numbers = Vec::new();
        let mut cuts = vec![Vec::new(); stages.ranks.len()];
        for (pair, known) in all.windows(2).zip(in_steps.windows(2)) {
            let [before, step] = pair else { continue };
            if *known == [true, true]
                && let Some(made) = cutter.cut(before, step)
            {
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
        let (names, found) = cutter.in_order_of_cuts(launches.names, found)?;
        Ok(Self { stages, steps: numbers, names, cuts, links: found, left_out, host_steps })
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
    let (mut communicators, mut timed) = (BTreeMap::new(), 0);
    for single in steps.iter().flat_map(|step| step.operations) {
        timed += u64::from(single.on_gpu().is_some());
        if single.kind() == Kind::Graph {
            return Err(Refusal::Graphs);
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
        let what = "it has no collectives, so no rank waits for another";
        return Err(Refusal::NotSpmd(what.to_owned()));
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
