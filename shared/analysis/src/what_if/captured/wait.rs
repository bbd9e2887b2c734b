//! The dependencies within a stage, which captures do not contain. An operation depends on another if it never
//! began before the other's end, on any rank in any step.

use std::collections::BTreeSet;

use super::{RESOLUTION, cut::Cut, launches::Name};

/// What the compute before a launch, and the launch, wait for, besides the compute before.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// Launches for which the compute waits.
    pub(super) compute: Vec<usize>,
    /// The launch before which the compute is for which the launch waits.
    pub(super) launch_for_compute: Option<usize>,
    /// Launches for which the launch waits.
    pub(super) launch: Vec<usize>,
}

/// For each launch of a stage.
pub(super) fn waits(names: &[Name], cuts: &[Cut]) -> Vec<Waits> {
    let queues: Vec<Option<usize>> = names.iter().map(queue).collect();
    let count = queues.iter().collect::<BTreeSet<_>>().len();
    // Of each queue the latest; earlier ones ended before.
    let latest = |k: usize, is_before: &dyn Fn(usize) -> bool| {
        let mut found = BTreeSet::new();
        let mut all = Vec::new();
        for j in (0..k).rev() {
            if found.len() == count {
                break;
            }
            if !found.contains(&queues[j]) && is_before(j) {
                found.insert(queues[j]);
                all.push(j);
            }
        }
        all
    };
    let of = |k: usize| {
        let is_before = |j: usize| {
            let mut known = cuts.iter().filter_map(|cut| Some((cut.launches[j].1, cut.compute[k]?.0)));
            known.all(|(end, begin)| end <= begin + RESOLUTION)
        };
        let begins_after = |end: &dyn Fn(&Cut) -> Option<f64>| {
            cuts.iter().all(|cut| end(cut).is_none_or(|end| end <= cut.launches[k].0 + RESOLUTION))
        };
        // Often nothing is timed between two launches.
        let has_compute = cuts.iter().any(|cut| cut.compute[k].is_some());
        Waits {
            compute: if has_compute { latest(k, &is_before) } else { Vec::new() },
            launch_for_compute: (0..=k).rev().find(|&i| begins_after(&|cut| cut.compute[i].map(|of| of.1))),
            launch: latest(k, &|j| begins_after(&|cut| Some(cut.launches[j].1))),
        }
    };
    (0..names.len()).map(of).collect()
}

/// Launches of one queue follow one another: all collectives, and the messages of each communicator.
fn queue(name: &Name) -> Option<usize> {
    (!name.messages().is_empty()).then_some(name.communicator)
}

#[cfg(test)]
mod tests {
    use xpu_wire::collective::Operation;

    use super::*;
    use crate::what_if::captured::launches::{Hop, Named};

    #[test]
    fn compute_waits_for_the_messages_of_each_communicator() {
        let messages = |communicator, is_send| Name {
            communicator,
            what: Named::Messages(vec![Hop { is_send, is_next: true }]),
        };
        let reduction =
            Name { communicator: 2, what: Named::Collective { operation: Operation::AllReduce, bytes: 8 } };
        let names = [messages(0, false), messages(1, true), reduction];
        // The receive is launched first and ends last.
        let cut = Cut {
            compute: vec![None, None, Some((5.0, 9.0))],
            parts: vec![Vec::new(), Vec::new(), vec![9.0]],
            launches: vec![(0.0, 5.0), (0.0, 1.0), (9.0, 10.0)],
        };
        let all = waits(&names, &[cut]);
        assert_eq!((&all[2].compute[..], &all[2].launch[..]), (&[1, 0][..], &[1, 0][..]));
        assert_eq!((&all[1].launch[..], all[2].launch_for_compute), (&[][..], Some(2)));
    }
}
