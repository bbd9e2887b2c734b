//! Each rank's operations in each step, from the end of the previous step.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{
    collective::Operation,
    frame::CapturedLabel,
    id::{CommunicatorId, Rank, Step},
    unit::Moment,
};

use super::{Meets, Refusal};
use crate::capture::{Capture, Clocks, Kind, Seen, Single, WholeStep, Work, ends_together};

/// One step of one rank. Times are pairs of start and end, in seconds since the end of the previous step.
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
    /// For each collective of a step, the ranks that it makes wait for each other.
    pub(super) meets: Vec<Meets>,
    pub(super) left_out: usize,
    /// The shortest step by each rank's host, without calls that wait for the GPU, in seconds.
    pub(super) host_steps: Vec<f64>,
}

/// A collective of a step, as it is on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    /// The number of the communicator among those of its rank, in the order of their first use in a step.
    communicator: usize,
    operation: Operation,
    bytes: u64,
}

/// The collectives of a step: their names, and on each rank their communicators.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sequence {
    names: Vec<Name>,
    communicators: Vec<Vec<CommunicatorId>>,
}

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
        // If the ranks launched different collectives in a step, it has no sequence.
        let sequences: Vec<Option<Sequence>> =
            all.iter().map(|(_, of_ranks)| Sequence::of(of_ranks)).collect();
        let Some(usual) = most_common(sequences.iter().flatten()) else {
            let what = "its ranks do not launch the same collectives";
            return Err(if all.is_empty() { Refusal::NoSteps } else { Refusal::NotSpmd(what.to_owned()) });
        };
        // Steps with other collectives, such as one step in ten that logs, are left out.
        if let Some(other) = usual.names.iter().map(|name| name.operation).find(|of| !ends_together(*of)) {
            return Err(Refusal::NotSpmd(format!("its steps have {other:?} operations")));
        }
        let meets = usual.meets(capture)?;
        let cutter = Cutter::of(capture, &ranks, &meets)?;
        let (mut numbers, mut cuts) = (Vec::new(), Vec::new());
        for (pair, known) in all.windows(2).zip(sequences.windows(2)) {
            let [(_, before), (number, of_ranks)] = pair else { continue };
            if known.iter().any(|sequence| sequence.as_ref() != Some(&usual)) {
                continue;
            }
            if let Some(made) = cutter.cut(before, of_ranks) {
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
        let meets = cutter.in_order_of_cuts(meets);
        Ok(Self { ranks, steps: numbers, cuts, meets, left_out, host_steps })
    }
}

impl Sequence {
    /// `None` if the ranks launched different collectives, or none.
    fn of(of_ranks: &[WholeStep<'_>]) -> Option<Self> {
        let (mut names, mut communicators) = (Vec::new(), Vec::new());
        for step in of_ranks {
            let (of_rank, ids) = on_rank(step);
            names.push(of_rank);
            communicators.push(ids);
        }
        let first = names.first()?;
        let are_equal = !first.is_empty() && names.iter().all(|of_rank| of_rank == first);
        are_equal.then(|| Self { names: names.swap_remove(0), communicators })
    }

    /// The ranks that wait for each other in each collective: those of one communicator.
    fn meets(&self, capture: &Capture) -> Result<Vec<Meets>, Refusal> {
        let of = |k: usize| {
            let mut members: BTreeMap<CommunicatorId, Vec<usize>> = BTreeMap::new();
            for (rank, ids) in self.communicators.iter().enumerate() {
                members.entry(ids[k]).or_default().push(rank);
            }
            let lacks = members.iter().any(|(id, members)| {
                capture.communicators.get(id).is_some_and(|known| known.size as usize != members.len())
            });
            if lacks {
                let what =
                    "ranks of one communicator do not launch its collectives at the same place of a step";
                return Err(Refusal::NotSpmd(what.to_owned()));
            }
            if members.len() == 1 {
                return Ok(Meets::All);
            }
            let mut numbers = vec![0; self.communicators.len()];
            for (number, members) in members.values().enumerate() {
                for &rank in members {
                    numbers[rank] = number;
                }
            }
            Ok(Meets::Sets(numbers))
        };
        (0..self.names.len()).map(of).collect()
    }
}

/// The names of one rank's collectives in a step, and their communicators.
fn on_rank(step: &WholeStep<'_>) -> (Vec<Name>, Vec<CommunicatorId>) {
    let mut seen: Vec<CommunicatorId> = Vec::new();
    let launched = launches(step).filter_map(|single| match *single.label {
        CapturedLabel::Collective { communicator, operation, bytes, .. }
        | CapturedLabel::Group { communicator, operation, bytes, .. } => {
            Some((communicator, operation, bytes))
        }
        _ => None,
    });
    launched
        .map(|(id, operation, bytes)| {
            let communicator = seen.iter().position(|known| *known == id).unwrap_or_else(|| {
                seen.push(id);
                seen.len() - 1
            });
            (Name { communicator, operation, bytes }, id)
        })
        .unzip()
}

/// Cuts the operations of ranks into steps.
struct Cutter {
    /// The collective with which a step ends, as its index in the sequence.
    last: usize,
    /// What to add to each rank's clock if no collective is of all ranks, in nanoseconds.
    offsets: Option<Vec<i64>>,
}

impl Cutter {
    fn of(capture: &Capture, ranks: &[Rank], meets: &[Meets]) -> Result<Self, Refusal> {
        if let Some(last) = meets.iter().rposition(|meets| *meets == Meets::All) {
            return Ok(Self { last, offsets: None });
        }
        let clocks = Clocks::of(capture);
        let offsets = ranks.iter().map(|rank| clocks.offset(&capture.ranks[rank].host)).collect();
        let what = "it has no collective of all ranks, and none that aligns the clocks of all hosts";
        let offsets: Option<Vec<i64>> = offsets;
        let offsets = offsets.ok_or_else(|| Refusal::NotSpmd(what.to_owned()))?;
        Ok(Self { last: meets.len() - 1, offsets: Some(offsets) })
    }

    /// The collectives in the order of a [`Cut`]: first those that were launched after the end of the previous
    /// step.
    fn in_order_of_cuts(&self, mut meets: Vec<Meets>) -> Vec<Meets> {
        meets.rotate_left(self.last + 1);
        meets
    }

    /// Cuts a step of all ranks, from the last collective of the step before it. `None` if steps are missing
    /// between them, or a time is unknown.
    fn cut(&self, before: &[WholeStep<'_>], step: &[WholeStep<'_>]) -> Option<Vec<Cut>> {
        let last = |step: &WholeStep<'_>| launches(step).nth(self.last).map(|single| single.at);
        let end = |step: &WholeStep<'_>| Some(launches(step).nth(self.last)?.on_gpu()?.1.0 as i64);
        let ends: Vec<i64> = before.iter().map(end).collect::<Option<_>>()?;
        // Without a collective of all ranks, the step begins for all of them when the first one begins it.
        let begins = match &self.offsets {
            None => ends,
            Some(offsets) => {
                let first =
                    ends.iter().zip(offsets).map(|(end, offset)| end.saturating_add(*offset)).min()?;
                offsets.iter().map(|offset| first.saturating_sub(*offset)).collect()
            }
        };
        let of_rank = |((before, step), begin): ((&WholeStep<'_>, &WholeStep<'_>), i64)| {
            if before.to != step.from {
                return None;
            }
            let (from, to) = (last(before)?, last(step)?);
            let behind = before.operations.iter().filter(|single| single.at > from);
            cut(behind.chain(step.operations.iter().filter(|single| single.at <= to)), begin)
        };
        before.iter().zip(step).zip(begins).map(of_rank).collect()
    }
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
        let (CapturedLabel::Collective { communicator, operation, .. }
        | CapturedLabel::Group { communicator, operation, .. }) = *single.label
        else {
            continue;
        };
        match operation {
            Operation::Send | Operation::Recv | Operation::SendRecv => {
                return refused("its ranks send to each other (a pipeline, or all-to-all by sends)");
            }
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

fn most_common<'a>(all: impl Iterator<Item = &'a Sequence>) -> Option<Sequence> {
    let mut counts: BTreeMap<&Sequence, usize> = BTreeMap::new();
    for sequence in all {
        *counts.entry(sequence).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(sequence, _)| sequence.clone())
}

/// Cuts one rank's operations of a step, which begins at `begin` by the rank's clock.
fn cut<'a>(operations: impl Iterator<Item = &'a Single>, begin: i64) -> Option<Cut> {
    let since = |at: Moment| (i128::from(at.0) - i128::from(begin)) as f64 / 1e9;
    let times = |single: &Single| single.on_gpu().map(|(from, to)| (since(from), since(to)));
    let mut new = Cut { compute: Vec::new(), collectives: Vec::new() };
    let mut compute: Option<(f64, f64)> = None;
    for single in operations {
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
