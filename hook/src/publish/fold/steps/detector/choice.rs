//! Chooses the launch of a period that is counted.

use std::collections::HashMap;

use xpu_wire::collective::Operation;

use super::{By, Counted, Detector, SECOND};
use crate::{
    observe::launches::{Kind, Launch, Marker},
    publish::fold::steps::period::{self, Member},
};

/// Threads are read one after another within this time, so the totals of one thread may be newer than those
/// of another.
const READ_WITHIN: u64 = SECOND / 100;

impl Detector {
    /// Whether the counted operation also occurs outside of steps, as in evaluations of a tensor-parallel
    /// model: its total then grew by more steps than the totals of all GEMMs.
    pub(super) fn counts_too_much(&mut self, pace: Option<u64>) -> bool {
        let Some(tracked) = self.tracked.filter(|tracked| tracked.by == By::Total) else { return false };
        let (Some(by_gemms), Some(by_total)) = self.by_gemms_and_total(&tracked.marker) else { return false };
        let Some(tracked) = &mut self.tracked else { return false };
        let Some(before) = tracked.compared else {
            tracked.compared = Some((by_gemms, by_total));
            return false;
        };
        if by_gemms == before.0 {
            // The program may be in the middle of work outside of steps.
            return false;
        }
        let is_surplus = by_total - before.1 > by_gemms - before.0 + 1 + steps_in_a_read(pace);
        if is_surplus && !tracked.is_suspect {
            // Only a second difference counts, because a thread may have been read late.
            tracked.is_suspect = true;
            return false;
        }
        (tracked.compared, tracked.is_suspect) = (Some((by_gemms, by_total)), false);
        is_surplus
    }

    /// The number of steps by the totals of the GEMMs, and by the total of the counted operation.
    pub(super) fn by_gemms_and_total(&self, marker: &Marker) -> (Option<u64>, Option<u64>) {
        (steps_by(&self.forms, &self.counts), steps_by(&[(marker.name, marker.count)], &self.counts))
    }

    /// The NCCL operation to count. It is on the widest communicator; a reduce-scatter is preferred, then the
    /// rarest in a step, then the largest. All ranks of the communicator choose the same one.
    pub(super) fn shared(&self, members: &[Member]) -> Option<Marker> {
        let size = |member: &&Member| self.counts.get(&member.launch.name).map_or(0, |counted| counted.size);
        let is_figure = |member: &&Member| member.launch.weight < period::FIGURE;
        let has_gemms = members.iter().any(|member| member.launch.kind == Kind::Gemm);
        let collectives = members.iter().filter(|member| {
            // A collective that sums a figure of each step may also occur in a log entry.
            member.launch.kind == Kind::Collective && !(has_gemms && is_figure(member))
        });
        let widest = collectives.filter(|member| size(member) > 1).max_by(|a, b| {
            let weight = |member: &Member| member.launch.weight;
            // A reduce-scatter occurs only for gradients, while an evaluation also gathers parameters.
            let reduces = |member: &&Member| {
                member.launch.form == Launch::collective(Operation::ReduceScatter, 0, size(member)).form
            };
            (size(a).cmp(&size(b)))
                .then(reduces(a).cmp(&reduces(b)))
                .then(b.count.cmp(&a.count))
                .then(weight(a).cmp(&weight(b)))
                .then(a.launch.name.cmp(&b.launch.name))
        })?;
        Some(Marker {
            name: widest.launch.name,
            is_form: false,
            count: widest.count,
            other: None,
            thread: None,
        })
    }

    /// The number of steps so far, by the GEMMs that occur equally often in every step; `None` if there are
    /// no such GEMMs.
    pub(super) fn steps_before(&self) -> Option<u64> {
        steps_by(&self.gemms, &self.counts)
    }
}

/// The smallest number of steps that follows from the totals of these names. Each name comes with its count
/// in a step.
pub(super) fn steps_by(names: &[(u32, u32)], counts: &HashMap<u32, Counted>) -> Option<u64> {
    names.iter().filter_map(|&(name, count)| Some(counts.get(&name)?.launches / u64::from(count))).min()
}

/// The number of steps by which the total of one thread may exceed that of another.
pub(super) fn steps_in_a_read(pace: Option<u64>) -> u64 {
    READ_WITHIN / pace.unwrap_or(SECOND).max(1)
}

/// The launch to count if there is no NCCL operation: the rarest in a step, together with a launch about half
/// a step away, which an evaluation may lack.
pub(super) fn own(members: &[Member]) -> Option<Marker> {
    let first = members.iter().min_by_key(|member| (member.count, member.offset))?;
    let away = |member: &&Member| member.offset.abs_diff(first.offset);
    let others = members.iter().filter(|member| member.launch.name != first.launch.name);
    let whole = members.iter().map(|member| member.offset).max().unwrap_or(0);
    let other = others.min_by_key(|member| away(member).abs_diff(whole / 2));
    let other = other.map(|member| member.launch.name);
    Some(Marker { name: first.launch.name, is_form: false, count: first.count, other, thread: None })
}
