//! Captured steps: while a capture runs, every operation is timed and kept one by one.
//!
//! The hook's thread runs this, and sees the end of a step a few milliseconds late. So everything is timed
//! from shortly before the first step, and earlier operations are dropped. A capture of a period is one step
//! here, whose begin and end are known.

mod activity;
mod base;
pub mod cupti;
mod cuts;
mod kept_operation;
mod parts;
mod past;
mod streams;
mod under_way;

use std::{
    collections::VecDeque,
    ffi::c_int,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use activity::Activity;
use base::Bases;
use kept_operation::KeptOperation;
use xpu_wire::{
    frame::{CaptureEnd, CaptureOrder, CaptureOutcome, CaptureWindow, CapturedLabel, StepSource},
    id::Step,
    unit::{Moment, Nanoseconds},
};

use crate::{
    gpu::timer::TimerId,
    observe::{lane::Lane, observer::Observer, record::Record},
    process::{clock::monotonic, switch},
    publish::rate,
    python::functions::Functions,
};
pub(crate) use parts::Part;
use past::Past;
use under_way::{Kept, Span, UnderWay};

/// Everything is timed from this much time before the first step, and from at least this number of steps
/// before it.
const BEFORE: u64 = 300_000_000;
const STEPS_BEFORE: u64 = 2;

/// After the last step, threads inside a traced function get this much time to return, or the duration of a
/// step if that is shorter.
const LEFT_AFTER: u64 = 2_000_000_000;

/// The longest time that a capture may take, whatever was ordered.
const LONGEST: Duration = Duration::from_hours(1);

/// The longest time for which everything is timed: the longest period that may be requested, plus a minute.
const LONGEST_TIMED: Duration = CaptureWindow::LONGEST.saturating_add(Duration::from_mins(1));

/// Whether everything is timed now.
static ON: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed)
}

fn switch_on(on: bool) {
    if ON.swap(on, Relaxed) != on {
        rate::time_all(on);
    }
}

/// Stops the capture in a forked child, where nothing would ever end it.
pub(crate) fn forget() {
    switch_on(false);
    cupti::forget();
}

#[derive(Debug, Default)]
pub(crate) struct Capture {
    under_way: Option<Box<UnderWay>>,
    /// Finished parts that were not sent yet.
    sending: VecDeque<Part>,
    bases: Bases,
    pub(crate) functions: Functions,
    past: Past,
    /// The number of the last completed step, and when it ended.
    last: Option<(u64, u64)>,
    pace: Option<u64>,
}

impl Capture {
    /// Whether the hook's thread must run often.
    pub(crate) fn is_active(&self) -> bool {
        self.under_way.is_some() || !self.sending.is_empty()
    }

    /// Takes an order, and returns its outcome. `counted` is the number of completed steps, if known.
    pub(crate) fn order(
        &mut self,
        order: CaptureOrder,
        window: Option<CaptureWindow>,
        counted: u64,
    ) -> (CaptureOutcome, Step) {
        let order = CaptureOrder { limit: order.limit.min(LONGEST.into()), ..order };
        let completed = self.last.map_or(0, |(completed, _)| completed).max(counted);
        let outcome = self.outcome(order, window, completed);
        if outcome == CaptureOutcome::Agreed {
            match self.under_way.as_deref_mut().filter(|under_way| under_way.is_of(order)) {
                Some(under_way) => under_way.lower_limit(order.limit),
                None => self.begin(order, window),
            }
        }
        (outcome, Step(completed))
    }

    fn is_on(&self, order: CaptureOrder) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| under_way.is_of(order))
    }

    fn outcome(&self, order: CaptureOrder, window: Option<CaptureWindow>, completed: u64) -> CaptureOutcome {
        let another = |under_way: &UnderWay| under_way.order.number != order.number;
        if !switch::is_on() {
            CaptureOutcome::Off
        } else if self.is_on(order) {
            // The order was repeated: the answer may have been lost.
            CaptureOutcome::Agreed
        } else if !self.sending.is_empty() || self.under_way.as_deref().is_some_and(another) {
            CaptureOutcome::Busy
        } else if let Some(window) = window {
            let fits = window.at > Moment::now() && window.length <= CaptureWindow::LONGEST.into();
            if fits { CaptureOutcome::Agreed } else { CaptureOutcome::TooLate }
        } else if self.last.is_none() {
            CaptureOutcome::NoSteps
        } else if order.steps == 0 || order.steps > CaptureOrder::STEPS || completed + 1 >= order.first.0 {
            CaptureOutcome::TooLate
        } else {
            CaptureOutcome::Agreed
        }
    }

    fn begin(&mut self, order: CaptureOrder, window: Option<CaptureWindow>) {
        self.bases.forget();
        let now = monotonic();
        let mut under_way = UnderWay::new(order, now + order.limit.0);
        match window {
            Some(window) => under_way.last_for(now, window),
            None => under_way.marks.extend(self.last),
        }
        self.under_way = Some(Box::new(under_way));
        self.look_ahead();
    }

    /// Drops the capture with this number.
    pub(crate) fn cancel(&mut self, number: u64) {
        if let Some(under_way) = self.under_way.take_if(|under_way| under_way.order.number == number) {
            switch_on(false);
            under_way.activity.cancel();
            self.functions.end();
        }
    }

    /// Takes the end of a step.
    pub(crate) fn mark(&mut self, completed: u64, at: u64, source: StepSource) {
        if let Some((before, then)) = self.last
            && completed > before
        {
            self.pace = Some(at.saturating_sub(then) / (completed - before));
        }
        self.last = Some((completed, at));
        self.past.mark(completed, at);
        let Some(under_way) = &mut self.under_way else { return };
        if under_way.until.is_some() {
            return;
        }
        if completed < under_way.order.first.0 {
            under_way.leave_before(at, &mut self.past);
        }
        under_way.mark(completed, at, source);
        if under_way.closed {
            switch_on(false);
        } else {
            self.look_ahead();
        }
    }

    /// Times everything when the first step is near.
    fn look_ahead(&mut self) {
        let Some(under_way) = &mut self.under_way else { return };
        let completed = self.last.map_or(0, |(completed, _)| completed);
        let left = under_way.order.first.0.saturating_sub(1).saturating_sub(completed);
        let is_near = if under_way.until.is_some() {
            under_way.begin().saturating_sub(monotonic()) <= BEFORE
        } else {
            left <= STEPS_BEFORE || self.pace.is_none_or(|pace| pace.saturating_mul(left) <= BEFORE)
        };
        if is_near {
            if !is_on() {
                under_way.lower_limit(LONGEST_TIMED.into());
            }
            switch_on(true);
            under_way.activity.begin();
            if under_way.order.functions {
                self.functions.begin();
            }
        }
    }

    /// Adds a recorded operation of the thread of lane number `thread`. An operation with a timer is added
    /// again once the timer was read.
    pub(crate) fn launched(&mut self, observer: &Observer, thread: usize, record: &Record) {
        if record.timer().is_some() {
            return;
        }
        let Some(single) = KeptOperation::of(record, observer) else { return };
        let span = single.held.map_or(Span::Unknown, |took| Span::Host { took });
        if self.is_past(single.at) {
            self.past.keep(thread, single, span);
        } else if let Some(under_way) = self.under_way.as_deref_mut()
            // A function is recorded when it returns, perhaps long after the step.
            && (!under_way.settled || single.label.is_function())
        {
            let untimed = single.held.is_none() && single.timeable && single.at >= under_way.begin();
            under_way.untimed += u64::from(untimed);
            under_way.keep(thread, single, span);
        }
    }

    /// Adds the time of an operation on the current device.
    pub(crate) fn timed(
        &mut self,
        observer: &Observer,
        thread: usize,
        lane: &Lane,
        timer: TimerId,
        record: &Record,
        took: Nanoseconds,
    ) {
        let Some(single) = KeptOperation::of(record, observer) else { return };
        if self.is_past(single.at) {
            return self.past.keep(thread, single, Span::Timed { took: took.0 });
        }
        let Some(under_way) = self.under_way.as_deref_mut() else { return };
        let device = lane.timers.device(timer);
        let span = device.and_then(|device| self.bases.begin_of(device, &lane.timers, timer)).map(
            |(begin, error)| {
                under_way.error = under_way.error.max(Some(error));
                Span::Gpu { stream: lane.timers.stream(timer), begin, took: took.0 }
            },
        );
        under_way.untimed += u64::from(span.is_none());
        under_way.keep(thread, single, span.unwrap_or(Span::Unknown));
    }

    /// Whether an operation launched at that time is outside of the captured steps.
    fn is_past(&self, at: u64) -> bool {
        self.under_way.as_deref().is_none_or(|under_way| !(under_way.begin()..under_way.end()).contains(&at))
    }

    /// Ends the capture if it is complete. Called once a turn, after all operations launched before the turn
    /// were added. `waiting` has the launch times of operations that the GPU has not completed.
    pub(crate) fn settle(&mut self, device: Option<c_int>, waiting: impl Iterator<Item = u64>) {
        self.functions.look();
        self.look_at_clock();
        let Some(under_way) = self.under_way.as_deref_mut() else { return };
        if let Some(device) = device.filter(|_| ON.load(Relaxed)) {
            // A base takes some time, so it is determined before the first step if possible.
            self.bases.make(device);
        }
        let end = under_way.end();
        let left = LEFT_AFTER.min(self.pace.unwrap_or(LEFT_AFTER));
        let are_left = !under_way.order.functions || monotonic().saturating_sub(end) >= left;
        let whole = under_way.closed
            && under_way.settled
            && are_left
            && waiting.min().is_none_or(|first| first >= end)
            && under_way.activity.is_whole(end, self.pace);
        // By the next turn, all operations that other threads launched before the mark have been added.
        under_way.settled = under_way.closed;
        if whole {
            self.finish(CaptureEnd::Done);
        } else if monotonic() > under_way.deadline {
            self.finish(CaptureEnd::TimeUp);
        }
    }

    /// Begins and ends a capture of a period by the clock.
    fn look_at_clock(&mut self) {
        let Some(until) = self.under_way.as_ref().filter(|one| !one.closed).and_then(|one| one.until) else {
            return;
        };
        self.look_ahead();
        let Some(under_way) = self.under_way.as_deref_mut().filter(|_| monotonic() >= until) else { return };
        under_way.end_at(until);
        under_way.closed = true;
        switch_on(false);
    }

    /// Ends the capture, and makes parts of its data so far.
    pub(crate) fn finish(&mut self, ended: CaptureEnd) {
        let Some(mut under_way) = self.under_way.take() else { return };
        switch_on(false);
        if under_way.until.is_some() && !under_way.closed {
            // A capture of a period that ends early is still complete.
            under_way.end_at(monotonic());
        }
        let begin = under_way.begin();
        // CUPTI's records are added before the past, because CUPTI did not record the steps before the first.
        let activity = activity::add_to(&mut under_way, ended);
        let recorded = under_way.marks.get(1..).and_then(<[_]>::last).map(|&(_, at)| at);
        self.past.join(&mut under_way);
        if under_way.order.functions {
            let (records, lost) = (under_way.functions, under_way.lost_functions);
            under_way.functions_came = self.functions.outcome(begin, records, lost);
        }
        // Functions are recorded beyond the last step, so that threads inside a call get some time to return.
        self.functions.end();
        if let Some(at) = recorded {
            self.past.forget_before(at);
        }
        self.sending = parts::of(*under_way, ended, activity);
    }

    /// The next part to send. If it cannot be sent, [`Self::not_sent`] takes it back.
    pub(crate) fn next_part(&mut self) -> Option<Part> {
        self.sending.pop_front()
    }

    pub(crate) fn not_sent(&mut self, part: Part) {
        self.sending.push_front(part);
    }

    /// Approximate number of bytes held.
    pub(crate) fn memory(&self) -> usize {
        let kept = self.under_way.as_ref().map_or(0, |under_way| {
            under_way.operations.capacity() * size_of::<Kept>()
                + under_way.labels.capacity() * size_of::<(CapturedLabel, u32)>()
        });
        kept + cupti::memory() + self.past.memory() + self.sending.iter().map(Part::memory).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
