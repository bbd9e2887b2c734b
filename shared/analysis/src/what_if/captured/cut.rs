//! Each rank's operations in each step, from the end of the previous step.

use xpu_wire::unit::Moment;

use super::{
    Refusal,
    launch::Launch,
    launches::{LaunchIndex, Launches, Name, Named},
    link::Link,
    stages::Stages,
    track::Whole,
};
use crate::capture::{Seen, Single, Work};

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

/// Cuts the operations of ranks into steps.
pub(super) struct Cutter<'a> {
    stages: &'a Stages,
    /// The launch with which a step of each stage ends, as its index among them. `None` if steps end with
    /// their last timed operation.
    last: Option<Vec<usize>>,
    /// What to add to each rank's clock if no collective is of all ranks, in nanoseconds. Stage by stage.
    offsets: Option<Vec<Vec<i64>>>,
}

impl<'a> Cutter<'a> {
    /// `offsets` are only needed if no collective is of all ranks.
    pub(super) fn of(
        stages: &'a Stages,
        launches: &Launches,
        links: &[Link],
        offsets: impl FnOnce() -> Option<Vec<Vec<i64>>>,
    ) -> Result<Self, Refusal> {
        let of_all = links.iter().filter(|link| link.is_of_all(stages)).max_by_key(|link| link.members[0]);
        if let Some(link) = of_all {
            let last = Some(link.members.iter().map(|member| member.at).collect());
            return Ok(Self { stages, last, offsets: None });
        }
        let what = "it has no collective of all ranks, and none that aligns the clocks of all hosts";
        let offsets = offsets().ok_or_else(|| stages.refused(what))?;
        let last = launches.names.iter().map(|names| names.len() - 1).collect();
        // The first stage of a pipeline computes after its last message.
        let last = Some(last).filter(|_| !stages.is_pipeline());
        Ok(Self { stages, last, offsets: Some(offsets) })
    }

    /// The names of the launches in the order of a [`Cut`], first those after the end of the previous step,
    /// and the links between them.
    pub(super) fn in_order_of_cuts(
        &self,
        mut names: Vec<Vec<Name>>,
        mut links: Vec<Link>,
    ) -> Result<(Vec<Vec<Name>>, Vec<Link>), Refusal> {
        let Some(last) = &self.last else {
            let end = Name { communicator: 0, what: Named::End };
            for names in &mut names {
                names.push(end.clone());
            }
            return Ok((names, links));
        };
        for link in &mut links {
            let is_behind = |member: &LaunchIndex| member.at > last[member.stage];
            if link.members.iter().any(is_behind) && !link.members.iter().all(is_behind) {
                let what =
                    "its ranks do not agree which operations come after the last collective of all ranks";
                return Err(self.stages.refused(what));
            }
            for LaunchIndex { stage, at } in &mut link.members {
                let launches = names[*stage].len();
                *at = (*at + launches - last[*stage] - 1) % launches;
            }
        }
        for (names, last) in names.iter_mut().zip(last) {
            names.rotate_left(last + 1);
        }
        Ok((names, links))
    }

    /// Cuts a step of all ranks, from the end of the step before it. `None` if steps are missing between them,
    /// or a time is unknown.
    pub(super) fn cut(&self, before: &Whole<'_>, step: &Whole<'_>) -> Option<Vec<Vec<Cut>>> {
        let mut begins: Vec<Vec<i64>> = self.stages.ranks.iter().map(|ranks| vec![0; ranks.len()]).collect();
        for (at, of) in before.ranks.iter().enumerate() {
            let (stage, replica) = self.stages.place(of.rank);
            let end = match &self.last {
                Some(last) => of.operations[before.launches[at].get(last[stage])?.at].on_gpu()?.1,
                None => of.operations.iter().filter(|single| is_work(single)).filter_map(end).max()?,
            };
            begins[stage][replica] = end.0 as i64;
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
            // The number of operations up to the end of the step.
            let until = |of: &Whole<'_>| match &self.last {
                Some(last) => Some(of.launches[rank].get(last[stage])?.at + 1),
                None => Some(of.ranks[rank].operations.len()),
            };
            let is_launch =
                |launches: &[Launch], at: usize| launches.binary_search_by_key(&at, |one| one.at).is_ok();
            let behind = of_before.operations.iter().enumerate().skip(until(before)?);
            let behind = behind.map(|(at, single)| (single, is_launch(&before.launches[rank], at)));
            let own = of_step.operations.iter().enumerate().take(until(step)?);
            let own = own.map(|(at, single)| (single, is_launch(&step.launches[rank], at)));
            let mut new = Cutting::of(begins[stage][replica], behind.chain(own))?;
            if self.last.is_none() {
                new.end();
            }
            cuts[stage][replica] = new.cut;
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

/// A cut of which the operations are added in their order.
#[derive(Default)]
struct Cutting {
    cut: Cut,
    /// The compute since the last launch.
    compute: Option<(f64, f64)>,
    parts: Vec<f64>,
}

impl Cutting {
    /// One rank's operations of a step, which begins at `begin` by the rank's clock. Each comes with whether it
    /// is a launch that waits for other ranks.
    fn of<'a>(begin: i64, operations: impl Iterator<Item = (&'a Single, bool)>) -> Option<Self> {
        let since = |at: Moment| (i128::from(at.0) - i128::from(begin)) as f64 / 1e9;
        let times = |single: &Single| single.on_gpu().map(|(from, to)| (since(from), since(to)));
        let mut new = Self::default();
        for (single, is_launch) in operations {
            if is_launch {
                new.launch(times(single)?);
            } else if single.work(Seen::Operations) == Some(Work::Compute)
                && let Some((from, to)) = times(single)
            {
                let known = new.compute.unwrap_or((from, to));
                new.compute = Some((known.0.min(from), known.1.max(to)));
                new.parts.push(to);
            }
        }
        Some(new)
    }

    fn launch(&mut self, times: (f64, f64)) {
        self.cut.compute.push(self.compute.take());
        self.cut.parts.push(std::mem::take(&mut self.parts));
        self.cut.launches.push(times);
    }

    /// The end of the step, after its last operation.
    fn end(&mut self) {
        let launched = self.cut.launches.iter().map(|launch| launch.1);
        let last = launched.chain(self.compute.map(|(_, end)| end)).fold(0.0, f64::max);
        self.launch((last, last));
    }
}

/// Whether it counts as part of a step.
fn is_work(single: &Single) -> bool {
    matches!(single.work(Seen::Operations), Some(Work::Compute | Work::Communication))
}

fn end(single: &Single) -> Option<Moment> {
    single.on_gpu().map(|(_, end)| end)
}
