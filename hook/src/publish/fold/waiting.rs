//! Records whose events the GPU has not reached yet, and the order in which these are queried.

use std::{collections::VecDeque, ffi::c_int};

use crate::{
    gpu::timer::{Elapsed, TimerId},
    observe::{lane::Lane, observer::Observer, record::Record},
};

/// A record whose events the GPU has not reached yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// The number of its lane.
    pub(super) thread: usize,
    pub(super) lane: &'static Lane,
    pub(super) timer: TimerId,
    pub(super) record: Record,
}

impl Waiting {
    /// Notes in the ledger's record of NCCL calls whether the GPU has reached a collective.
    pub(super) fn note_progress(&self, observer: &Observer, result: Elapsed) {
        let Record::Collective { ticket, .. } = self.record else { return };
        let record = &observer.ledger().record;
        match result {
            Elapsed::NotYet if self.lane.timers.has_started(self.timer) => record.begun(ticket),
            Elapsed::NotYet => {}
            Elapsed::Took(_) => record.begun(ticket),
            Elapsed::Failed => record.not_queued(ticket),
        }
    }

    /// The queue of a record: operations of one thread on one stream finish in launch order.
    pub(super) fn queue(&self) -> (*const Lane, Option<c_int>, usize, bool) {
        let timers = &self.lane.timers;
        // A record of an empty pair comes before that of the operation that the pair follows. The operation
        // must not wait for the pair, so pairs have a separate queue.
        let is_gap = matches!(self.record, Record::Gap { .. });
        // The legacy stream has the same handle on all devices.
        (self.lane, timers.device(self.timer), timers.stream(self.timer), is_gap)
    }
}

/// Removes finished records. In each queue, no record behind the first unfinished one is queried.
pub(super) fn visit<T, Q: PartialEq>(
    waiting: &mut VecDeque<T>,
    queue: impl Fn(&T) -> Q,
    mut is_done: impl FnMut(&T) -> bool,
) {
    let mut unfinished: Vec<Q> = Vec::new();
    waiting.retain(|one| {
        let queue = queue(one);
        let behind = unfinished.contains(&queue);
        let stays = behind || !is_done(one);
        if stays && !behind {
            unfinished.push(queue);
        }
        stays
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_behind_the_first_incomplete_one_are_not_queried() {
        let mut waiting: VecDeque<_> = (0..40).map(|number| (number % 2, number)).collect();
        let mut asked = Vec::new();
        visit(
            &mut waiting,
            |one| one.0,
            |one| {
                asked.push(one.1);
                one.0 == 0 && one.1 < 6
            },
        );
        assert_eq!(asked, [0, 1, 2, 4, 6]);
        assert_eq!(waiting.len(), 37);
        assert!(waiting.iter().is_sorted_by_key(|one| one.1));
    }
}
