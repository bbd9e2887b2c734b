//! Each rank's operations in each step, from the end of the previous step.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{
    id::{Rank, Step},
    unit::Moment,
};

use super::{
    Refusal,
    launch::Launch,
    link::{Link, links},
    sequence::Sequence,
    stages::Stages,
};
use crate::capture::{Capture, Clocks, Kind, Seen, Single, WholeStep, Work, ends_together};

/// One step of one rank. Times are pairs of start and end, in seconds since the end of the previous step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cut {
    /// The time of the operations launched between the previous launch and this one; `None` if none was
    /// timed.
    pub(super) compute: Vec<Option<(f64, f64)>>,
    /// The end of each of these operations, in the order of their launch.
    pub(super) parts: Vec<Vec<f64>>,
    pub(super) launches: Vec<(f64, f64)>,
}

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
struct Whole<'a> {
    number: Step,
    ranks: Vec<WholeStep<'a>>,
    launches: Vec<Vec<Launch>>,
}

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
        by_number.retain(|_, of_ranks| of_ranks.len() == capture.ranks.len());
        let all: Vec<Whole<'_>> = by_number
            .into_iter()
            .map(|(number, ranks)| Whole { number, launches: ranks.iter().map(Launch::all).collect(), ranks })
            .collect();
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
        let cutter = Cutter::of(capture, &stages, &usual, &found)?;
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

/// Cuts the operations of ranks into steps.
struct Cutter<'a> {
    stages: &'a Stages,
    /// The launch with which a step of each stage ends, as its index in the sequence.
    last: Vec<usize>,
    /// What to add to each rank's clock if no collective is of all ranks, in nanoseconds. Stage by stage.
    offsets: Option<Vec<Vec<i64>>>,
}

impl<'a> Cutter<'a> {
    fn of(
        capture: &Capture,
        stages: &'a Stages,
        sequence: &Sequence,
        links: &[Link],
    ) -> Result<Self, Refusal> {
        let of_all = links.iter().filter(|link| link.is_of_all(stages)).max_by_key(|link| link.members[0]);
        if let Some(link) = of_all {
            return Ok(Self { stages, last: link.members.iter().map(|(_, k)| *k).collect(), offsets: None });
        }
        let clocks = Clocks::of(capture);
        let offset = |rank: &Rank| clocks.offset(&capture.ranks[rank].host);
        let offsets: Option<Vec<Vec<i64>>> =
            stages.ranks.iter().map(|ranks| ranks.iter().map(offset).collect()).collect();
        let what = "it has no collective of all ranks, and none that aligns the clocks of all hosts";
        let offsets = offsets.ok_or_else(|| Refusal::NotSpmd(what.to_owned()))?;
        let last = sequence.names.iter().map(|names| names.len() - 1).collect();
        Ok(Self { stages, last, offsets: Some(offsets) })
    }

    /// The launches in the order of a [`Cut`]: first those after the end of the previous step.
    fn in_order_of_cuts(
        &self,
        mut sequence: Sequence,
        mut links: Vec<Link>,
    ) -> Result<(Sequence, Vec<Link>), Refusal> {
        for link in &mut links {
            let is_behind = |(stage, k): &(usize, usize)| *k > self.last[*stage];
            if link.members.iter().any(is_behind) && !link.members.iter().all(is_behind) {
                let what =
                    "its ranks do not agree which operations come after the last collective of all ranks";
                return Err(Refusal::NotPipeline(what.to_owned()));
            }
            for (stage, k) in &mut link.members {
                let launches = sequence.names[*stage].len();
                *k = (*k + launches - self.last[*stage] - 1) % launches;
            }
        }
        for (names, last) in sequence.names.iter_mut().zip(&self.last) {
            names.rotate_left(last + 1);
        }
        Ok((sequence, links))
    }

    /// Cuts a step of all ranks, from the last launch of the step before it. `None` if steps are missing
    /// between them, or a time is unknown.
    fn cut(&self, before: &Whole<'_>, step: &Whole<'_>) -> Option<Vec<Vec<Cut>>> {
        let mut begins: Vec<Vec<i64>> = self.stages.ranks.iter().map(|ranks| vec![0; ranks.len()]).collect();
        for (of, launches) in before.ranks.iter().zip(&before.launches) {
            let (stage, replica) = self.stages.place(of.rank);
            let last = &of.operations[launches.get(self.last[stage])?.at];
            begins[stage][replica] = last.on_gpu()?.1.0 as i64;
        }
        if let Some(offsets) = &self.offsets {
            self.begin_together(&mut begins, offsets)?;
        }
        let mut cuts: Vec<Vec<Cut>> =
            self.stages.ranks.iter().map(|ranks| vec![Cut::default(); ranks.len()]).collect();
        for rank in 0..step.ranks.len() {
            let (of_before, of_step) = (&before.ranks[rank], &step.ranks[rank]);
            if of_before.to != of_step.from {
                return None;
            }
            let (stage, replica) = self.stages.place(of_step.rank);
            let last = |of: &Whole<'_>| Some(of.launches[rank].get(self.last[stage])?.at);
            let is_launch =
                |launches: &[Launch], at: usize| launches.binary_search_by_key(&at, |one| one.at).is_ok();
            let behind = of_before.operations.iter().enumerate().skip(last(before)? + 1);
            let behind = behind.map(|(at, single)| (single, is_launch(&before.launches[rank], at)));
            let own = of_step.operations.iter().enumerate().take(last(step)? + 1);
            let own = own.map(|(at, single)| (single, is_launch(&step.launches[rank], at)));
            cuts[stage][replica] = cut(behind.chain(own), begins[stage][replica])?;
        }
        Some(cuts)
    }

    /// Without a collective of all ranks, a step begins for all of them at the same time. Without stages, it is
    /// when the first rank begins it. The ranks of a pipeline end a step at different times, and wait for
    /// the first stage in the next, so it is when the last rank begins it.
    fn begin_together(&self, begins: &mut [Vec<i64>], offsets: &[Vec<i64>]) -> Option<()> {
        let ends = begins.iter().zip(offsets).flat_map(|(begins, offsets)| begins.iter().zip(offsets));
        let ends = ends.map(|(end, offset)| end.saturating_add(*offset));
        let at = if self.stages.is_pipeline() { ends.max() } else { ends.min() }?;
        for (begins, offsets) in begins.iter_mut().zip(offsets) {
            for (begin, offset) in begins.iter_mut().zip(offsets) {
                *begin = at.saturating_sub(*offset);
            }
        }
        Some(())
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

/// Cuts one rank's operations of a step, which begins at `begin` by the rank's clock. Each comes with whether
/// it is a launch that waits for other ranks.
fn cut<'a>(operations: impl Iterator<Item = (&'a Single, bool)>, begin: i64) -> Option<Cut> {
    let since = |at: Moment| (i128::from(at.0) - i128::from(begin)) as f64 / 1e9;
    let times = |single: &Single| single.on_gpu().map(|(from, to)| (since(from), since(to)));
    let mut new = Cut::default();
    let mut compute: Option<(f64, f64)> = None;
    let mut parts = Vec::new();
    for (single, is_launch) in operations {
        if is_launch {
            new.compute.push(compute.take());
            new.parts.push(std::mem::take(&mut parts));
            new.launches.push(times(single)?);
        } else if single.work(Seen::Operations) == Some(Work::Compute)
            && let Some((from, to)) = times(single)
        {
            compute = Some(compute.map_or((from, to), |known| (known.0.min(from), known.1.max(to))));
            parts.push(to);
        }
    }
    Some(new)
}
