//! Each rank's operations in each step, from the last collective of one step to that of the next.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{
    collective::Operation,
    frame::CapturedLabel,
    id::{CommunicatorId, Rank, Step},
    unit::Moment,
};

use super::Refusal;
use crate::capture::{Capture, Kind, Seen, Single, WholeStep, Work};

/// One step of one rank. Times are pairs of start and end, in seconds since the rank left the last collective
/// of the previous step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cut {
    /// The time of the operations launched between the previous collective and this one; `None` if none was
    /// timed.
    pub(super) compute: Vec<Option<(f64, f64)>>,
    pub(super) collectives: Vec<(f64, f64)>,
}

pub(super) struct Tracks {
    pub(super) ranks: Vec<Rank>,
    pub(super) steps: Vec<Step>,
    /// Step by step, all ranks of each.
    pub(super) cuts: Vec<Cut>,
    pub(super) left_out: usize,
    /// The shortest step by each rank's host, without calls that wait for the GPU, in seconds.
    pub(super) host_steps: Vec<f64>,
}

/// The identity of a collective over all steps and ranks.
type Name = (CommunicatorId, Operation, u64);

/// Nothing is simulated if more than one in this many operations is untimed.
const UNTIMED: u64 = 4;

impl Tracks {
    pub(super) fn of(capture: &Capture) -> Result<Self, Refusal> {
        let steps: Vec<WholeStep<'_>> = capture.whole_steps().collect();
        if steps.is_empty() {
            return Err(Refusal::NoSteps);
        }
        check(capture, &steps)?;
        let mut by_number: BTreeMap<Step, Vec<WholeStep<'_>>> = BTreeMap::new();
        for step in steps {
            by_number.entry(step.step).or_default().push(step);
        }
        let ranks: Vec<Rank> = capture.ranks.keys().copied().collect();
        let all: Vec<_> =
            by_number.into_iter().filter(|(_, of_ranks)| of_ranks.len() == ranks.len()).collect();
        // If the ranks launched different collectives in a step, the step has no names.
        let names: Vec<Option<Vec<Name>>> = all.iter().map(|(_, of_ranks)| common_names(of_ranks)).collect();
        let Some(usual) = most_common(names.iter().flatten()) else {
            let what = "its ranks do not launch the same collectives (tensor or expert parallelism)";
            return Err(if all.is_empty() {
                Refusal::NoSteps
            } else {
                Refusal::NotDataParallel(what.to_owned())
            });
        };
        // Steps with other collectives, such as one step in ten that logs, are left out.
        if let Some(other) = usual.iter().map(|name| name.1).find(|operation| !meets_all(*operation)) {
            return Err(Refusal::NotDataParallel(format!("its steps have {other:?} operations")));
        }
        let (mut numbers, mut cuts) = (Vec::new(), Vec::new());
        for (pair, known) in all.windows(2).zip(names.windows(2)) {
            let [(_, before), (number, of_ranks)] = pair else { continue };
            if known.iter().any(|name| name.as_ref() != Some(&usual)) {
                continue;
            }
            let made: Option<Vec<Cut>> =
                before.iter().zip(of_ranks).map(|(before, step)| cut(before, step)).collect();
            if let Some(made) = made {
                cuts.extend(made);
                numbers.push(*number);
            }
        }
        if numbers.is_empty() {
            return Err(Refusal::NoSteps);
        }
        let left_out = all.len() - 1 - numbers.len();
        // A host that launches into a full queue waits too. The shortest step is one in which the queue was
        // not full.
        let host = |step: &WholeStep<'_>| {
            step.to.since(step.from).saturating_sub(Duration::from_nanos(step.blocked())).as_secs_f64()
        };
        let shortest =
            |rank: usize| all.iter().map(|(_, of_ranks)| host(&of_ranks[rank])).fold(f64::INFINITY, f64::min);
        let host_steps = (0..ranks.len()).map(shortest).collect();
        Ok(Self { ranks, steps: numbers, cuts, left_out, host_steps })
    }
}

/// Refuses operations that cannot be simulated, and names them.
fn check(capture: &Capture, steps: &[WholeStep<'_>]) -> Result<(), Refusal> {
    let refused = |what: &str| Err(Refusal::NotDataParallel(what.to_owned()));
    let (mut communicators, mut timed) = (BTreeMap::new(), 0);
    for single in steps.iter().flat_map(|step| step.operations) {
        timed += u64::from(single.on_gpu().is_some());
        if single.kind() == Kind::Graph {
            return refused("it has launches of CUDA graphs");
        }
        let (CapturedLabel::Collective { communicator, operation, .. }
        | CapturedLabel::Group { communicator, operation, .. }) = *single.label
        else {
            continue;
        };
        match operation {
            Operation::AllGather | Operation::ReduceScatter => {
                return refused("its ranks gather parameters or scatter gradients (FSDP, ZeRO)");
            }
            Operation::Send | Operation::Recv | Operation::SendRecv => {
                return refused("its ranks send to each other (a pipeline)");
            }
            Operation::AlltoAll => return refused("it has all-to-all collectives (experts)"),
            _ => {}
        }
        *communicators.entry(communicator).or_insert(0_u64) += 1;
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

/// Whether every rank waits for all others in it.
fn meets_all(operation: Operation) -> bool {
    matches!(operation, Operation::AllReduce | Operation::Fused)
}

/// Operations outside of groups. The members of a group are not timed; only the group is.
fn is_launch(single: &Single) -> bool {
    match &*single.label {
        CapturedLabel::Collective { .. } => single.collective_id().is_some() && single.on_gpu().is_some(),
        CapturedLabel::Group { .. } => single.collective_id().is_some(),
        _ => false,
    }
}

fn launches<'a>(step: &WholeStep<'a>) -> impl Iterator<Item = &'a Single> + use<'a> {
    step.operations.iter().filter(|single| is_launch(single))
}

fn common_names(of_ranks: &[WholeStep<'_>]) -> Option<Vec<Name>> {
    let names = |step: &WholeStep<'_>| -> Vec<Name> {
        launches(step)
            .filter_map(|single| match *single.label {
                CapturedLabel::Collective { communicator, operation, bytes, .. }
                | CapturedLabel::Group { communicator, operation, bytes, .. } => {
                    Some((communicator, operation, bytes))
                }
                _ => None,
            })
            .collect()
    };
    let first = names(of_ranks.first()?);
    (!first.is_empty() && of_ranks.iter().all(|step| names(step) == first)).then_some(first)
}

fn most_common<'a>(all: impl Iterator<Item = &'a Vec<Name>>) -> Option<Vec<Name>> {
    let mut counts: BTreeMap<&Vec<Name>, usize> = BTreeMap::new();
    for names in all {
        *counts.entry(names).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(names, _)| names.clone())
}

/// Cuts from the last collective of `before` to that of `step`.
fn cut(before: &WholeStep<'_>, step: &WholeStep<'_>) -> Option<Cut> {
    if before.to != step.from {
        return None;
    }
    let last = launches(before).last()?;
    let zero = last.on_gpu()?.1;
    let since = |at: Moment| (i128::from(at.0) - i128::from(zero.0)) as f64 / 1e9;
    let times = |single: &Single| single.on_gpu().map(|(from, to)| (since(from), since(to)));
    let mut new = Cut { compute: Vec::new(), collectives: Vec::new() };
    let mut compute: Option<(f64, f64)> = None;
    let behind_last = before.operations.iter().filter(|single| single.at > last.at);
    for single in behind_last.chain(step.operations) {
        if is_launch(single) {
            new.compute.push(compute.take());
            new.collectives.push(times(single)?);
        } else if single.work(Seen::Operations) == Some(Work::Compute)
            && let Some((from, to)) = times(single)
        {
            compute = Some(compute.map_or((from, to), |known| (known.0.min(from), known.1.max(to))));
        }
    }
    Some(new)
}
