//! A capture in progress: its completed steps, and their operations.

use std::collections::HashMap;

use xpu_wire::{
    frame::{
        CaptureAccount, CaptureEnd, CaptureOrder, CaptureWindow, CapturedLabel, StepMark, StepSource, Tracing,
    },
    id::{Sequence, Step},
    unit::{Moment, Nanoseconds},
};

use super::{Activity, KeptOperation, Past};
use crate::process::clock::monotonic;

/// Maximum number of operations kept of one capture.
pub(super) const OPERATIONS: usize = 64 << 10;

/// Maximum number of Python functions among them, so that they do not displace GPU operations.
const FUNCTIONS: u64 = (OPERATIONS / 2) as u64;

/// Maximum number of different labels among them.
const LABELS: usize = 16 << 10;

/// Maximum number of marks of steps kept: more than an order may have.
const MARKS: usize = CaptureOrder::STEPS as usize + 2;

#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) order: CaptureOrder,
    /// In monotonic nanoseconds, like all times here.
    pub(super) deadline: u64,
    pub(super) marks: Vec<(u64, u64)>,
    /// When the period ends, if a period is captured instead of steps.
    pub(super) until: Option<u64>,
    pub(super) source: Option<StepSource>,
    /// The last step has ended, and everything launched before its end was added.
    pub(super) closed: bool,
    pub(super) settled: bool,
    pub(super) operations: Vec<Kept>,
    pub(super) labels: HashMap<CapturedLabel, u32>,
    pub(super) dropped: u64,
    pub(super) untimed: u64,
    pub(super) error: Option<u64>,
    /// The steps up to this one have only sampled operations.
    pub(super) sampled: Option<u64>,
    pub(super) activity: Activity,
    /// Maximum number of operations that the capture may keep.
    pub(super) limit: usize,
    /// Number of Python functions among the operations, and of those that did not fit.
    pub(super) functions: u64,
    pub(super) lost_functions: u64,
    pub(super) functions_came: Tracing,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) at: u64,
    pub(super) label: u32,
    pub(super) thread: u32,
    pub(super) sequence: Option<Sequence>,
    pub(super) span: Span,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Span {
    Unknown,
    Host {
        took: u64,
    },
    /// It ran on the GPU at an unknown time.
    Timed {
        took: u64,
    },
    /// `begin` in monotonic nanoseconds.
    Gpu {
        stream: usize,
        begin: i64,
        took: u64,
    },
}

impl UnderWay {
    pub(super) fn new(order: CaptureOrder, deadline: u64) -> Self {
        Self {
            order,
            deadline,
            marks: Vec::new(),
            until: None,
            source: None,
            closed: false,
            settled: false,
            operations: Vec::new(),
            labels: HashMap::new(),
            dropped: 0,
            untimed: 0,
            error: None,
            sampled: None,
            activity: Activity::asked(order.activity),
            limit: OPERATIONS,
            functions: 0,
            lost_functions: 0,
            functions_came: Tracing::NotAsked,
        }
    }

    /// Makes the capture cover a period instead of steps: the period is its only step.
    pub(super) fn last_for(&mut self, now: u64, window: CaptureWindow) {
        let begin = now.saturating_add(window.at.since(Moment::now()).as_nanos() as u64);
        self.marks = vec![(0, begin)];
        self.until = Some(begin.saturating_add(window.length.0));
    }

    /// Ends the period at this time, if it has begun.
    pub(super) fn end_at(&mut self, at: u64) {
        if at > self.begin() {
            self.marks.push((1, at));
        }
    }

    /// Whether the capture has this order, apart from the limit.
    pub(super) fn is_of(&self, order: CaptureOrder) -> bool {
        CaptureOrder { limit: self.order.limit, ..order } == self.order
    }

    /// Lowers the capture's time limit to this.
    pub(super) fn lower_limit(&mut self, limit: Nanoseconds) {
        if limit < self.order.limit {
            self.order.limit = limit;
            self.deadline = self.deadline.min(monotonic().saturating_add(limit.0));
        }
    }

    /// When the first step began; until it begins, when the step before it ended.
    pub(super) fn begin(&self) -> u64 {
        self.marks.first().map_or(0, |&(_, at)| at)
    }

    /// When the last step ended, or the period ends; `u64::MAX` while that is not known.
    pub(super) fn end(&self) -> u64 {
        if let (Some(until), [_]) = (self.until, &self.marks[..]) {
            return until;
        }
        self.marks.last().filter(|_| self.closed).map_or(u64::MAX, |&(_, at)| at)
    }

    pub(super) fn mark(&mut self, completed: u64, at: u64, source: StepSource) {
        if self.closed {
            return;
        }
        self.source = Some(source);
        if completed < self.order.first.0 {
            self.marks.clear();
            (self.dropped, self.untimed, self.lost_functions) = (0, 0, 0);
        }
        if self.marks.len() < MARKS {
            self.marks.push((completed, at));
        }
        self.closed = completed >= self.order.last().0;
    }

    /// Moves launches before `at` to `past`. The kept operations are in the order in which they were added,
    /// not in time order.
    pub(super) fn leave_before(&mut self, at: u64, past: &mut Past) {
        let labels: HashMap<u32, CapturedLabel> =
            self.labels.drain().map(|(label, place)| (place, label)).collect();
        self.functions = 0;
        for Kept { at: launched, label, thread, sequence, span } in std::mem::take(&mut self.operations) {
            let Some(label) = labels.get(&label).cloned() else { continue };
            let single = KeptOperation { label, at: launched, sequence, held: None, timeable: false };
            if launched < at {
                past.keep(thread as usize, single, span);
            } else {
                self.keep(thread as usize, single, span);
            }
        }
    }

    pub(super) fn keep(&mut self, thread: usize, single: KeptOperation, span: Span) {
        let is_function = single.label.is_function();
        if is_function && self.functions >= FUNCTIONS {
            self.lost_functions += 1;
            return;
        }
        let fits = self.operations.len() < self.limit && self.operations.try_reserve(1).is_ok();
        let Some(label) = fits.then_some(single.label).and_then(|label| self.label(label)) else {
            self.dropped += 1;
            self.lost_functions += u64::from(is_function);
            return;
        };
        let kept = Kept { at: single.at, label, thread: thread as u32, sequence: single.sequence, span };
        self.operations.push(kept);
        self.functions += u64::from(is_function);
    }

    /// The label's index; `None` if there are too many labels.
    pub(super) fn label(&mut self, label: CapturedLabel) -> Option<u32> {
        let next = self.labels.len();
        if let Some(&known) = self.labels.get(&label) {
            return Some(known);
        }
        (next < LABELS).then(|| {
            self.labels.insert(label, next as u32);
            next as u32
        })
    }

    pub(super) fn account(
        &self,
        ended: CaptureEnd,
        moment: impl Fn(u64) -> xpu_wire::unit::Moment,
    ) -> CaptureAccount {
        let marks =
            self.marks.iter().map(|&(completed, at)| StepMark { completed: Step(completed), at: moment(at) });
        CaptureAccount {
            marks: marks.collect(),
            source: self.source,
            ended,
            operations: self.operations.len() as u64,
            dropped: self.dropped,
            untimed: self.untimed,
            clock_error: self.error.map(Nanoseconds),
            sampled: self.sampled.map(Step),
            functions: self.functions_came.clone(),
            ..CaptureAccount::default()
        }
    }
}
