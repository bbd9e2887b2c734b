//! Unmarked steps. First the period is searched for among all launches; then one launch of the period is
//! counted.
//!
//! If a step has NCCL operations, the counted launch is an operation of the widest communicator, and the step
//! number comes from its total since the start. That total is the same on all ranks, so they number steps
//! alike, whenever each found the period.
//!
//! A process with several GPUs may have a thread for each, all with the same steps (JAX). Their launches mix
//! in any order: then the period of one thread is searched for.

mod thread;

use std::collections::HashMap;

use thread::Threads;
use xpu_wire::gemm::GemmShape;

use super::{
    log::Log,
    period::{self, Member, Period},
};
use crate::{
    clock::monotonic,
    launches::{self, Kind, Launch, Marker},
};

/// Launches of several threads that wait to be sorted by time.
const WAITING: usize = 65_536;

/// Names whose launches are counted from the start.
const COUNTED: usize = 8192;

const SECOND: u64 = 1_000_000_000;

/// A search without an answer ends after this many launches, or this much time.
const LAUNCHES: u64 = 1_000_000;
const SEARCHED: u64 = 600 * SECOND;

/// The pause after a search without an answer; it doubles each time. At least 50 us for each launch that was
/// reported: reporting one takes its thread 50 ns, which stays within a thousandth of the time.
const REST: u64 = 30 * SECOND;
const REST_FOR_EACH: u64 = 50_000;
const LONGEST_REST: u64 = 600 * SECOND;

/// When a known period is searched for again, to check it; the interval quadruples each time.
const FIRST_CHECK: u64 = 15 * SECOND;

/// The interval between two looks, and the least multiple of the time that a look takes.
const LOOK_AFTER: u64 = 2 * SECOND;
const LOOKS_ONE_IN: u64 = 50;

/// A period is dropped after this many consecutive searches that do not find it.
const DOUBTS: u32 = 2;

#[derive(Debug)]
pub(super) struct Detector {
    /// Launches since the last [`Self::settle`], each with its thread, and not in order.
    waiting: Vec<(usize, Launch)>,
    logs: Logs,
    threads: Threads,
    /// One of several threads with the same steps, and its own launches.
    alone: Option<(usize, Logs)>,
    counts: HashMap<u32, Counted>,
    phase: Phase,
    tracked: Option<Tracked>,
    /// Names of the period's GEMMs, and the count of each in it.
    gemms: Vec<(u32, u32)>,
    doubts: u32,
}

/// Launches by name with sizes, and without.
#[derive(Debug, Default)]
struct Logs([Log; 2]);

impl Logs {
    /// Logs that begin later than the launches do.
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

    /// The period, and whether it is one of forms.
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
    /// Ranks of a collective's communicator; 0 for a GEMM.
    size: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// `reported` launches since the search began, which is at the first; a pause of `rest` follows.
    Searching { since: Option<u64>, reported: u64, look_at: u64, rest: u64 },
    /// The pause after this one is `next`.
    Resting { until: u64, next: u64 },
}

/// A period by which steps are counted.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    launches: u32,
    names: u64,
    marker: Marker,
    by: By,
    /// Steps before the count.
    base: u64,
    /// There may have been more steps before.
    is_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The total of an operation that other ranks share.
    Total,
    /// Its launches since the period was found.
    Launches,
}

/// A step that ended: steps completed, and when.
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
            phase,
            tracked: None,
            gemms: Vec::new(),
            doubts: 0,
        }
    }
}

impl Detector {
    /// Any launch of a thread, during a search.
    pub(super) fn launched(&mut self, thread: usize, launch: Launch) {
        if self.waiting.len() < WAITING && self.waiting.try_reserve(1).is_ok() {
            self.waiting.push((thread, launch));
        }
    }

    pub(super) fn gemm(&mut self, shape: &GemmShape) {
        self.count(&Launch::gemm(shape), 0);
    }

    /// An NCCL operation on a communicator of `size` ranks. Returns the step that it ends.
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

    /// `steps` steps began since their first launch was chosen. Returns the step that ended.
    pub(super) fn begun(&mut self, steps: u64, at: u64) -> Option<Ended> {
        let tracked = self.tracked.filter(|tracked| tracked.by == By::Launches)?;
        if steps > 1 {
            return Some((tracked.base + steps - 1, at));
        }
        // The first begins a step and ends none. The program continued during the search that found the
        // period.
        let base = self.steps_before().unwrap_or(0).max(tracked.base);
        self.tracked = Some(Tracked { base, ..tracked });
        None
    }

    /// Whether there may have been more steps than were counted.
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

    /// Everything launched before `until` is known. `true` if the way of counting steps changed, or stopped.
    pub(super) fn settle(&mut self, until: u64) -> bool {
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
                    // A gap would look like an irregular step.
                    self.forget();
                    look_at = until + LOOK_AFTER;
                }
                self.phase = Phase::Searching { since: Some(since), reported, look_at, rest };
                let over = until >= since + SEARCHED || reported >= LAUNCHES;
                (over || until >= look_at) && self.look(until, over, (reported, rest))
            }
        }
    }

    fn keep(&mut self, thread: usize, launch: Launch) {
        self.logs.keep(launch);
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

    fn look(&mut self, until: u64, over: bool, (reported, rest): (u64, u64)) -> bool {
        let begun = monotonic();
        let thread = self.threads.one_of_several_alike();
        if self.alone.as_ref().map(|(thread, _)| *thread) != thread {
            self.alone = thread.map(|thread| (thread, Logs::cut()));
        }
        let logs = self.alone.as_ref().map_or(&self.logs, |(_, logs)| logs);
        let found = logs.find();
        let next = until + LOOK_AFTER.max((monotonic() - begun) * LOOKS_ONE_IN);
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
                self.doubts >= DOUBTS && self.lose()
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
        self.phase = Phase::Resting { until: from + rest, next: (times * rest).min(LONGEST_REST) };
    }

    /// Drops the period. Returns whether there was one.
    fn lose(&mut self) -> bool {
        launches::count_steps_by(None);
        self.tracked.take().is_some()
    }

    /// Counts steps by this period, of one thread if it is one thread's. `false` if it is in use already.
    fn follow(&mut self, period: &Period, is_form: bool, thread: Option<usize>) -> bool {
        let Period { launches, names, .. } = *period;
        if self.tracked.is_some_and(|tracked| (tracked.launches, tracked.names) == (launches, names)) {
            return false;
        }
        // Totals are of all threads.
        let shared = self.shared(&period.members).filter(|_| thread.is_none());
        let Some((marker, by)) = shared.map(|marker| (marker, By::Total)).or_else(|| {
            let marker = own(&period.members)?;
            Some((marker, By::Launches))
        }) else {
            return self.lose();
        };
        let marker = Marker { is_form, thread, ..marker };
        // The total counts from the start.
        let base = if by == By::Total { 0 } else { period.seen as u64 };
        let gemms =
            period.members.iter().filter(|member| member.launch.kind == Kind::Gemm && thread.is_none());
        self.gemms = gemms.map(|member| (member.launch.name, member.count)).collect();
        // Totals of operations and of GEMMs count from the start. Otherwise earlier launches may include
        // steps: JAX's first steps launch kernels one by one, the later ones graphs.
        let is_counted = by == By::Total || !self.gemms.is_empty();
        let hides_none = period.before.is_some_and(|before| before < launches);
        let is_late = !is_counted && !hides_none;
        self.tracked = Some(Tracked { launches, names, marker, by, base, is_late });
        launches::count_steps_by(Some(marker));
        true
    }

    /// The NCCL operation to count: of the widest communicator; of those the rarest in a step, of those the
    /// largest. All ranks of the communicator choose the same.
    fn shared(&self, members: &[Member]) -> Option<Marker> {
        let size = |member: &&Member| self.counts.get(&member.launch.name).map_or(0, |counted| counted.size);
        let collectives = members.iter().filter(|member| member.launch.kind == Kind::Collective);
        let widest = collectives.filter(|member| size(member) > 1).max_by(|a, b| {
            let weight = |member: &Member| member.launch.weight;
            (size(a).cmp(&size(b)))
                .then(b.count.cmp(&a.count))
                .then(weight(a).total_cmp(&weight(b)))
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

    /// Steps up to now, by the GEMMs whose count is equal in every step; `None` if there are none.
    fn steps_before(&self) -> Option<u64> {
        let steps = self
            .gemms
            .iter()
            .filter_map(|&(name, count)| Some(self.counts.get(&name)?.launches / u64::from(count)));
        steps.min()
    }

    /// Bytes held, about.
    pub(super) fn memory(&self) -> usize {
        self.waiting.capacity() * size_of::<(usize, Launch)>()
            + self.logs.memory()
            + self.alone.as_ref().map_or(0, |(_, logs)| logs.memory())
            + self.counts.capacity() * size_of::<(u32, Counted)>()
    }
}

/// The launch to count if there is no NCCL operation: the rarest in a step; with it one half a step away,
/// which an evaluation may lack.
fn own(members: &[Member]) -> Option<Marker> {
    let first = members.iter().min_by_key(|member| (member.count, member.offset))?;
    let away = |member: &&Member| member.offset.abs_diff(first.offset);
    let others = members.iter().filter(|member| member.launch.name != first.launch.name);
    let whole = members.iter().map(|member| member.offset).max().unwrap_or(0);
    let other = others.min_by_key(|member| away(member).abs_diff(whole / 2));
    let other = other.map(|member| member.launch.name);
    Some(Marker { name: first.launch.name, is_form: false, count: first.count, other, thread: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_also_where_no_launch_comes_twice() {
        let mut detector = Detector::default();
        let mut reported = 0;
        while matches!(detector.phase, Phase::Searching { .. }) {
            assert!(reported <= LAUNCHES, "its log was emptied again and again");
            for _ in 0..10_000 {
                reported += 1;
                let launch = Launch::kernel(reported as usize, [1; 3], [1; 3]);
                detector.launched(0, Launch { at: reported, ..launch });
            }
            detector.settle(reported + 1);
        }
        assert_eq!(reported, LAUNCHES);
        let Phase::Resting { until, .. } = detector.phase else { panic!("{:?}", detector.phase) };
        assert!(until >= reported * REST_FOR_EACH, "a thousandth of the time");
    }

    /// Steps of 20 ms on each of two threads, whose launches mix as they come.
    fn two_threads(detector: &mut Detector, launches: impl Fn(usize, u64) -> Vec<Launch>) {
        let (mut chance, mut launched) = (1_u64, [0_u64; 2]);
        for step in 0..2_000 {
            let from = step * 20_000_000;
            for (thread, launched) in launched.iter_mut().enumerate() {
                // The second is behind, more or less.
                let mut at = (*launched)
                    .max(from + thread as u64 * (xpu_wire::sampling::priority(step / 3) % 40_000_000));
                for launch in launches(thread, step) {
                    chance = xpu_wire::sampling::priority(chance);
                    at += 1 + chance % 200_000;
                    detector.launched(thread, Launch { at, ..launch });
                }
                *launched = at;
            }
            detector.settle(from + 20_000_000);
        }
    }

    /// Eight layers forward and backward, and an update of each. GEMMs have the same names on all GPUs,
    /// kernels do not.
    fn of_one_gpu(thread: usize) -> Vec<Launch> {
        let kernel = |which| Launch::kernel(100 * (thread + 1) + which, [1024, 1, 1], [256, 1, 1]);
        let gemm = |which| Launch { kind: Kind::Gemm, ..Launch::kernel(which, [1; 3], [1; 3]) };
        let forward = std::iter::repeat_n([gemm(1), kernel(1), gemm(2), kernel(2)], 8).flatten();
        let backward = std::iter::repeat_n([gemm(3), gemm(4), kernel(3)], 8).flatten();
        std::iter::once(Launch::copy(1 << 20)).chain(forward).chain(backward).chain([kernel(20); 8]).collect()
    }

    #[test]
    fn threads_of_several_gpus_with_the_same_steps_count_those_of_one() {
        let mut detector = Detector::default();
        two_threads(&mut detector, |thread, _| of_one_gpu(thread));
        let tracked = detector.tracked.expect("the period of one thread");
        assert_eq!((tracked.launches, tracked.by), (64, By::Launches));
        assert!(tracked.marker.thread.is_some() && tracked.is_late, "{tracked:?}");
        launches::count_steps_by(None);
    }

    #[test]
    fn threads_with_other_work_are_not_one_of_several() {
        let mut detector = Detector::default();
        two_threads(&mut detector, |thread, step| {
            // The second does a fourth of a step in each of these, and an update of random size in the first.
            let update = (thread == 0 && step % 4 == 0)
                .then(|| Launch::kernel(900 + step as usize, [1; 3], [64, 1, 1]));
            let times = if thread == 0 { 1 } else { 2 };
            let work = std::iter::repeat_with(|| of_one_gpu(thread)).take(times).flatten();
            work.chain(update).collect()
        });
        assert!(
            detector.tracked.is_none(),
            "one thread's period is a part of a step: {:?}",
            detector.tracked
        );
    }
}
