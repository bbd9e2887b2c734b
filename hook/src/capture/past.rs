//! The last steps as observed without a capture: the sampled operations, and every collective. They are
//! always kept, so that a triggered capture can begin before its trigger.

use std::collections::VecDeque;

use super::{KeptOperation, Span, UnderWay};
use crate::python::functions;

/// Maximum number of operations kept: half a megabyte.
const OPERATIONS: usize = 4096;

/// Maximum number of steps kept.
const STEPS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Past {
    operations: VecDeque<Operation>,
    /// Completed steps: their numbers, and when they ended.
    marks: VecDeque<(u64, u64)>,
    /// The latest launch time of a dropped operation.
    lost: u64,
}

#[derive(Clone, Debug)]
struct Operation {
    single: KeptOperation,
    thread: u32,
    span: Span,
}

impl Past {
    pub(super) fn keep(&mut self, thread: usize, single: KeptOperation, span: Span) {
        if single.label.is_function() && !functions::are_always_recorded() {
            // Functions are not expected in the steps before a capture, and must not displace other
            // operations.
            return;
        }
        if self.operations.len() >= OPERATIONS
            && let Some(oldest) = self.operations.pop_front()
        {
            self.lost = self.lost.max(oldest.single.at);
        }
        if self.operations.try_reserve(1).is_ok() {
            self.operations.push_back(Operation { single, thread: thread as u32, span });
        } else {
            self.lost = self.lost.max(single.at);
        }
    }

    pub(super) fn mark(&mut self, completed: u64, at: u64) {
        // If the source renumbers steps or goes back, all marks are dropped.
        if self.marks.back().is_some_and(|&(before, _)| completed <= before) {
            self.marks.clear();
        }
        if self.marks.len() >= STEPS {
            self.marks.pop_front();
        }
        self.marks.push_back((completed, at));
    }

    /// Adds to a capture the ordered number of steps before its first one, if they are complete here, and the
    /// launches in a step that never ended. In a hang, the operations also stay here for another request,
    /// because no new ones replace them.
    pub(super) fn join(&mut self, capture: &mut UnderWay) {
        let Some(&(first, begin)) = capture.marks.first() else { return };
        if capture.until.is_some() || capture.order.before == 0 && capture.closed {
            return;
        }
        let from = first.saturating_sub(u64::from(capture.order.before));
        let steps = self.marks.iter().copied().filter(|&(completed, at)| {
            completed >= from && completed < first && at < begin && at > self.lost
        });
        let mut marks: Vec<_> = steps.collect();
        let since = marks.first().map_or(begin, |&(_, at)| at);
        marks.append(&mut capture.marks);
        capture.marks = marks;
        capture.sampled = Some(first);
        let operations =
            if capture.closed { std::mem::take(&mut self.operations) } else { self.operations.clone() };
        for Operation { single, thread, span } in operations {
            // In a step that never ended, launches before the request are added too.
            if (since..capture.end()).contains(&single.at) {
                capture.keep(thread as usize, single, span);
            }
        }
    }

    /// Marks steps that ended earlier as incomplete here: a capture recorded and sent their operations.
    pub(super) fn forget_before(&mut self, at: u64) {
        self.lost = self.lost.max(at);
    }

    pub(super) fn memory(&self) -> usize {
        self.operations.capacity() * size_of::<Operation>() + self.marks.capacity() * size_of::<(u64, u64)>()
    }
}
