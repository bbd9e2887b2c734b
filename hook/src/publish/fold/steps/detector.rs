//! Detects steps that the program does not mark. First the period is searched for in all launches; then one
//! launch of the period is counted.
//!
//! If a step has NCCL operations, the counted launch is an operation of the widest communicator, and the step
//! number comes from the operation's total since the start. That total is the same on all ranks. So all ranks
//! use the same step numbers, although they find the period at different times.
//!
//! A process with several GPUs may have a thread for each, and all have the same steps (JAX). Their launches
//! mix in any order, so the period of a single thread is searched for.

mod choice;
mod thread;
mod tracked;

use std::collections::HashMap;

use choice::{own, steps_in_a_read};
use thread::Threads;
use tracked::{By, Tracked};
use xpu_wire::gemm::GemmShape;

use super::{
    log::Log,
    period::{self, Period},
};
use crate::{
    observe::launches::{self, Kind, Launch, Marker},
    process::clock::cpu_time,
};

/// Maximum number of launches of several threads that wait to be sorted by time.
const WAITING: usize = 65_536;

/// Maximum number of names whose launches are counted from the start.
const COUNTED: usize = 8192;

const SECOND: u64 = 1_000_000_000;

/// A search without a result ends after this many launches, or after this much time.
const LAUNCHES: u64 = 1_000_000;
const SEARCHED: u64 = 600 * SECOND;

/// The pause after a search without a result; it doubles each time. It is at least 50 us for each reported
/// launch. Reporting a launch takes a thread 50 ns, so reporting takes at most a thousandth of the time.
const REST: u64 = 30 * SECOND;
const REST_FOR_EACH: u64 = 50_000;
const LONGEST_REST: u64 = 600 * SECOND;

/// The time until a known period is searched for again, to check it; the interval quadruples each time.
const FIRST_CHECK: u64 = 15 * SECOND;

/// The interval between two searches of the log. It is also at least this multiple of the CPU time of one
/// search.
const LOOK_AFTER: u64 = 2 * SECOND;
const LOOKS_ONE_IN: u64 = 50;

/// Another period replaces a known one only after this many repetitions, because for a while a part of a step
/// may seem to repeat as regularly as the step.
const TO_REPLACE: usize = 40;

/// A period is dropped after this many consecutive searches that do not find it.
const FAILED_SEARCHES: u32 = 2;

#[derive(Debug)]
pub(super) struct Detector {
    /// Launches since the last [`Self::settle`], each with its thread; they are not in order.
    waiting: Vec<(usize, Launch)>,
    logs: Logs,
    threads: Threads,
    /// One of several threads with the same steps, and the launches of that thread.
    alone: Option<(usize, Logs)>,
    counts: HashMap<u32, Counted>,
    /// The thread of each name and form, during a search.
    origins: HashMap<u32, usize>,
    phase: Phase,
    tracked: Option<Tracked>,
    /// The names of the period's GEMMs, each with its count in the period. If the thread of the counted
    /// launch has GEMMs, only its own: threads are read one after another, so the totals of others may be
    /// older.
    gemms: Vec<(u32, u32)>,
    /// The same for their forms, which stay the same when sizes change.
    forms: Vec<(u32, u32)>,
    doubts: u32,
    /// Whether only a forward pass repeats.
    only_answers: bool,
    /// The clock that measures searches, in nanoseconds. It shows CPU time, so that searches do not become
    /// rarer on a busy machine.
    clock: fn() -> u64,
}

/// The log by names with sizes, and the log by names without.
#[derive(Debug, Default)]
struct Logs([Log; 2]);

impl Logs {
    /// Logs that do not have the first launches.
    fn cut() -> Self {
        Self([Log::cut(), Log::cut()])
    }

    fn keep(&mut self, launch: Launch) {
        let form = Launch { name: launch.form, ..launch };
        let [strict, loose] = &mut self.0;
        if !strict.push(launch) || !loose.push(form) {
            *self = Self::cut();
        }
    }

    /// The period, and whether its names are forms.
    fn find(&self) -> Option<(Period, bool)> {
        let [strict, loose] = &self.0;
        let found = period::find(strict).map(|period| (period, false));
        found.or_else(|| period::find(loose).map(|period| (period, true)))
    }

    fn memory(&self) -> usize {
        self.0.iter().map(Log::memory).sum()
    }
}

/// Number of launches so far, by name.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    launches: u64,
    /// The size of a collective's communicator; 0 for a GEMM.
    size: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Searching since the first launch; `reported` launches so far. A pause of `rest` follows.
    Searching { since: Option<u64>, reported: u64, look_at: u64, rest: u64 },
    /// The pause after this one is `next`.
    Resting { until: u64, next: u64 },
}

/// A step that ended: the number of completed steps, and when it ended.
pub(super) type Ended = (u64, u64);

impl Default for Detector {
    fn default() -> Self {
        let phase = Phase::Searching { since: None, reported: 0, look_at: 0, rest: REST };
        Self {
            waiting: Vec::new(),
            logs: Logs::default(),
            threads: Threads::default(),
            alone: None,
            counts: HashMap::new(),
            origins: HashMap::new(),
            phase,
            tracked: None,
            gemms: Vec::new(),
            forms: Vec::new(),
            doubts: 0,
            only_answers: false,
            clock: cpu_time,
        }
    }
}

impl Detector {
    /// Adds a launch of a thread, during a search.
    pub(super) fn launched(&mut self, thread: usize, launch: Launch) {
        if self.waiting.len() < WAITING && self.waiting.try_reserve(1).is_ok() {
            self.waiting.push((thread, launch));
        }
    }

    pub(super) fn gemm(&mut self, shape: &GemmShape) {
        self.count(&Launch::gemm(shape), 0);
    }

    /// Counts an NCCL operation that was launched on a communicator of `size` ranks. Returns the step that it
    /// ends.
    pub(super) fn collective(&mut self, launch: &Launch, size: u32) -> Option<Ended> {
        self.count(launch, size);
        let tracked = self.tracked.filter(|tracked| tracked.by == By::Total)?;
        let Marker { name, is_form, count, .. } = tracked.marker;
        if name != (if is_form { launch.form } else { launch.name }) {
            return None;
        }
        let total = self.counts.get(&name)?.launches;
        let ends = total.is_multiple_of(u64::from(count));
        ends.then(|| (tracked.base + total / u64::from(count), launch.at))
    }

    /// Takes the number of steps that have begun since the counted launch was chosen. Returns the step that
    /// ended.
    pub(super) fn begun(&mut self, steps: u64, at: u64) -> Option<Ended> {
        let tracked = self.tracked.filter(|tracked| tracked.by == By::Launches)?;
        if steps > 1 {
            return Some((tracked.base + steps - 1, at));
        }
        // The first counted launch begins a step but ends none, because the program continued during the
        // search.
        let base = self.steps_before().unwrap_or(0).max(tracked.base);
        self.tracked = Some(Tracked { base, ..tracked });
        None
    }

    /// Whether only a forward pass repeats, as in a server: then there are no steps.
    pub(super) fn only_answers(&self) -> bool {
        self.only_answers
    }

    /// Whether the program may have made more steps than were counted.
    pub(super) fn is_late(&self) -> bool {
        self.tracked.is_some_and(|tracked| tracked.is_late)
    }

    fn count(&mut self, launch: &Launch, size: u32) {
        for name in [launch.name, launch.form] {
            if self.counts.len() < COUNTED || self.counts.contains_key(&name) {
                let counted = self.counts.entry(name).or_default();
                (counted.launches, counted.size) = (counted.launches + 1, size);
            }
        }
    }

    /// Searches for steps, or checks how they are counted. Called when everything launched before `until` was
    /// added; `pace` is the duration of a step. `true` if steps are now counted in another way, or no longer.
    pub(super) fn settle(&mut self, until: u64, pace: Option<u64>) -> bool {
        let changed = self.counts_too_much(pace) && self.count_launches();
        self.search(until) || changed
    }

    /// Counts launches instead of using the total. `true` if the number of steps changed.
    fn count_launches(&mut self) -> bool {
        let Some((tracked, marker)) = self.tracked.and_then(|tracked| Some((tracked, tracked.instead?)))
        else {
            return self.lose();
        };
        self.tracked = Some(Tracked { marker, by: By::Launches, base: 0, ..tracked });
        launches::count_steps_by(Some(marker));
        true
    }

    fn search(&mut self, until: u64) -> bool {
        self.waiting.sort_by_key(|(_, launch)| launch.at);
        let known = self.waiting.partition_point(|(_, launch)| launch.at < until);
        let launches: Vec<_> = self.waiting.drain(..known).collect();
        match self.phase {
            Phase::Resting { until: over, next } => {
                if until >= over {
                    launches::report_all(true);
                    launches::were_lost();
                    self.phase = Phase::Searching { since: None, reported: 0, look_at: 0, rest: next };
                }
                false
            }
            Phase::Searching { since: None, rest, .. } if launches.is_empty() => {
                self.phase = Phase::Searching { since: None, reported: 0, look_at: until + LOOK_AFTER, rest };
                false
            }
            Phase::Searching { since, reported, look_at, rest } => {
                let (since, reported) = (since.unwrap_or(until), reported + launches.len() as u64);
                for (thread, launch) in launches {
                    self.keep(thread, launch);
                }
                let mut look_at = look_at;
                if launches::were_lost() {
                    // A gap in the log would look like an irregular step.
                    self.forget();
                    look_at = until + LOOK_AFTER;
                }
                self.phase = Phase::Searching { since: Some(since), reported, look_at, rest };
                let over = until >= since + SEARCHED || reported >= LAUNCHES;
                (over || until >= look_at) && self.look(until, over, reported, rest)
            }
        }
    }

    fn keep(&mut self, thread: usize, launch: Launch) {
        self.logs.keep(launch);
        for name in [launch.name, launch.form] {
            if self.origins.len() < COUNTED || self.origins.contains_key(&name) {
                self.origins.insert(name, thread);
            }
        }
        self.threads.count(thread, launch.kind);
        if let Some((_, logs)) = self.alone.as_mut().filter(|(alone, _)| *alone == thread) {
            logs.keep(launch);
        }
    }

    fn forget(&mut self) {
        self.logs = Logs::cut();
        if let Some((_, logs)) = &mut self.alone {
            *logs = Logs::cut();
        }
    }

    fn look(&mut self, until: u64, over: bool, reported: u64, rest: u64) -> bool {
        let begun = (self.clock)();
        let thread = self.threads.one_of_several_alike();
        if self.alone.as_ref().map(|(thread, _)| *thread) != thread {
            self.alone = thread.map(|thread| (thread, Logs::cut()));
        }
        let logs = self.alone.as_ref().map_or(&self.logs, |(_, logs)| logs);
        let found = logs.find();
        if let Some((period, _)) = &found {
            self.only_answers = period.trains == Some(false);
        }
        let may_be_followed = |period: &Period, is_form| {
            let is_known = |tracked: Tracked| tracked.is(period, is_form);
            over || period.seen >= TO_REPLACE || self.tracked.is_none_or(is_known)
        };
        let found = found
            .filter(|(period, is_form)| period.trains != Some(false) && may_be_followed(period, *is_form));
        let next = until + LOOK_AFTER.max(((self.clock)() - begun) * LOOKS_ONE_IN);
        match found {
            Some((period, is_form)) => {
                self.doubts = 0;
                let was_tracked = self.tracked.is_some();
                let changed = self.follow(&period, is_form, thread);
                self.rest(until, if was_tracked { rest } else { FIRST_CHECK }, 4);
                changed
            }
            None if over => {
                self.rest(until, rest.max(reported * REST_FOR_EACH), 2);
                self.doubts += 1;
                self.doubts >= FAILED_SEARCHES && self.lose()
            }
            None => {
                if let Phase::Searching { look_at, .. } = &mut self.phase {
                    *look_at = next;
                }
                false
            }
        }
    }

    fn rest(&mut self, from: u64, rest: u64, times: u64) {
        launches::report_all(false);
        self.waiting = Vec::new();
        self.logs = Logs::cut();
        (self.threads, self.alone) = (Threads::default(), None);
        self.origins = HashMap::new();
        self.phase = Phase::Resting { until: from + rest, next: (times * rest).min(LONGEST_REST) };
    }

    /// Drops the period. Returns whether there was one.
    fn lose(&mut self) -> bool {
        launches::count_steps_by(None);
        self.tracked.take().is_some()
    }

    /// Counts steps by this period, of one thread if `thread` is set. `false` if this period is already used.
    fn follow(&mut self, period: &Period, is_form: bool, thread: Option<usize>) -> bool {
        let Period { launches, names, .. } = *period;
        if self.tracked.is_some_and(|tracked| tracked.is(period, is_form)) {
            return false;
        }
        // The totals include all threads.
        let gemms =
            || period.members.iter().filter(|member| member.launch.kind == Kind::Gemm && thread.is_none());
        self.gemms = gemms().map(|member| (member.launch.name, member.count)).collect();
        let mut forms: HashMap<u32, u32> = HashMap::new();
        for member in gemms() {
            *forms.entry(member.launch.form).or_default() += member.count;
        }
        self.forms = forms.into_iter().collect();
        let shared = self.shared(&period.members).filter(|_| thread.is_none());
        let complete = |marker| Marker { is_form, thread, ..marker };
        let (shared, instead) = (shared.map(complete), own(&period.members).map(complete));
        let origin = instead.and_then(|marker| self.origins.get(&marker.name));
        let is_of_it = |(name, _): &(u32, u32)| self.origins.get(name) == origin;
        if self.gemms.iter().any(is_of_it) {
            self.gemms.retain(is_of_it);
        }
        let surplus = shared.as_ref().is_some_and(|marker| {
            let (Some(by_gemms), Some(by_total)) = self.by_gemms_and_total(marker) else { return false };
            by_total > by_gemms + 1 + steps_in_a_read(Some(period.took))
        });
        let Some((marker, by)) = shared
            .filter(|_| !surplus)
            .map(|marker| (marker, By::Total))
            .or_else(|| instead.map(|marker| (marker, By::Launches)))
        else {
            return self.lose();
        };
        // The total includes all launches since the start.
        let base = if by == By::Total { 0 } else { period.seen as u64 };
        // Whether the totals of operations and GEMMs cover all steps since the start. If not, earlier
        // launches may include steps: JAX's first steps launch single kernels, and later steps launch graphs.
        // If the two totals differ, that of the GEMMs shows fewer steps.
        let is_counted = by == By::Total || !(self.gemms.is_empty() || surplus);
        let hides_none = period.before.is_some_and(|before| before < launches);
        let is_late = !is_counted && !hides_none;
        self.tracked = Some(Tracked {
            launches,
            names,
            marker,
            by,
            instead,
            compared: None,
            is_suspect: false,
            base,
            is_late,
        });
        launches::count_steps_by(Some(marker));
        true
    }

    /// Approximate number of bytes held.
    pub(super) fn memory(&self) -> usize {
        self.waiting.capacity() * size_of::<(usize, Launch)>()
            + self.logs.memory()
            + self.alone.as_ref().map_or(0, |(_, logs)| logs.memory())
            + self.counts.capacity() * size_of::<(u32, Counted)>()
            + self.origins.capacity() * size_of::<(u32, usize)>()
    }
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
