//! The time that one worker spent in each function on the critical path, and the function's rate.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use xpu_wire::{
    frame::{CapturedLabel, CapturedSpan, StackFrame, Tracing},
    id::{CommunicatorId, Rank, Sequence},
    unit::Moment,
};

use super::{
    critical_path::{Interval, Layer, walk},
    function::{Key, Known, Names, Unit},
    work::Work,
};
use crate::capture::{Capture, Per, RankCapture, Sampled, Seen, Single, Spans, Stack, union};

/// All executions of one function on one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub critical_ns: f64,
    /// Time of all executions, including time shared with others.
    pub total_ns: f64,
    pub executions: u64,
    unit: Option<Unit>,
    /// Sums over the executions with a rate: time, amount, and amount² / time.
    rated_ns: f64,
    amount: f64,
    squares: f64,
    rated: u64,
}

impl Spent {
    fn add(&mut self, took: Option<u64>, amount: f64) {
        self.executions += 1;
        if let Some(took) = took.filter(|&took| took > 0) {
            let took = took as f64;
            self.rated_ns += took;
            self.amount += amount;
            self.squares += amount * amount / took;
            self.rated += 1;
        }
    }

    /// Mean and standard deviation of the rate, weighted by time.
    pub(super) fn rate(&self) -> Option<(f64, f64)> {
        let unit = self.unit.filter(|_| self.rated_ns > 0.0)?;
        let mean = self.amount / self.rated_ns;
        let variance = (self.squares / self.rated_ns - mean * mean).max(0.0);
        Some((unit.of(mean), unit.of(variance.sqrt())))
    }

    /// Mean time of one execution.
    pub(super) fn mean_ns(&self) -> Option<f64> {
        (self.rated > 0).then(|| self.rated_ns / self.rated as f64)
    }
}

/// The kinds of data that were recorded for a worker. Only workers with equal kinds can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Recorded {
    pub kernels: bool,
    samples: bool,
    functions: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub rank: Rank,
    /// The time of all steps.
    whole_ns: u64,
    /// The time of one step, or of one second.
    pub path_ns: u64,
    pub steps: usize,
    pub recorded: Recorded,
    pub samples: u64,
    pub functions: BTreeMap<usize, Spent>,
}

impl Profile {
    pub(super) fn share(&self, spent: &Spent) -> f64 {
        spent.critical_ns / (self.whole_ns as f64).max(1.0)
    }

    /// Share of all its time, including time off the critical path.
    pub(super) fn total(&self, spent: &Spent) -> f64 {
        spent.total_ns / (self.whole_ns as f64).max(1.0)
    }

    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, f64)> {
        self.functions.iter().map(|(&function, spent)| (function, self.share(spent)))
    }
}

/// The time of each collective without waits.
type Transfers = HashMap<(CommunicatorId, Sequence), u64>;

/// The functions of a capture, and the time that each rank with fully recorded steps spent in them.
pub(super) fn of(capture: &Capture) -> (Vec<Known>, Vec<Profile>) {
    let steps: Vec<_> = capture.whole_steps().collect();
    let matched = capture.matched(&steps);
    let transfers: Transfers = matched
        .all
        .iter()
        .filter_map(|one| Some(((one.communicator, one.sequence), one.transfer()?)))
        .collect();
    let mut names = Names::default();
    let profiles = capture
        .ranks
        .iter()
        .filter_map(|(&rank, of)| profile(capture, rank, of, &transfers, &mut names))
        .collect();
    (names.known, profiles)
}

fn profile(
    capture: &Capture,
    rank: Rank,
    of: &RankCapture,
    transfers: &Transfers,
    names: &mut Names,
) -> Option<Profile> {
    let steps: Vec<_> = of.whole_steps(rank).collect();
    let (first, last) = (steps.first()?, steps.last()?);
    let windows = union(steps.iter().map(|step| step.on_gpu));
    let whole_ns = windows.length().0;
    let mut functions: BTreeMap<usize, Spent> = BTreeMap::new();
    let mut intervals = Vec::new();
    // The labels of a part are shared by its operations.
    let mut labels: HashMap<*const CapturedLabel, Option<Work>> = HashMap::new();
    for single in &of.operations {
        let work = *labels
            .entry(Arc::as_ptr(&single.label))
            .or_insert_with(|| Work::of(single, of.seen(), &capture.communicators, names));
        let Some(work) = work else { continue };
        let extent = extent(single);
        let transfer =
            single.collective_id().and_then(|of| transfers.get(&(of.communicator, of.sequence)).copied());
        if let Some((from, to)) = extent {
            let begins = match (work.waits, transfer) {
                (Some(_), Some(transfer)) => from.max(Moment(to.0.saturating_sub(transfer))),
                (Some(_), None) => to,
                (None, _) => from,
            };
            let at = |from: Moment, to: Moment, function| Interval {
                from: from.0,
                to: to.0,
                function,
                layer: work.layer,
            };
            intervals.extend(work.waits.map(|function| at(from, begins, function)));
            intervals.push(at(begins, to, work.function));
        }
        let is_in_steps = (first.from..last.to).contains(&single.at);
        if is_in_steps && (extent.is_some() || work.layer == Layer::Compute) {
            let spent = functions.entry(work.function).or_default();
            spent.unit = names.known[work.function].unit();
            let took = if work.waits.is_some() { transfer } else { single.took_on_gpu() };
            spent.add(took, amount(single));
        }
    }
    let samples = capture
        .sampled
        .get(&rank)
        .map_or(0, |sampled| sample(sampled, &windows, &mut intervals, names, &mut functions));
    intervals.sort_by_key(|one| one.from);
    for (from, to) in windows.iter() {
        for (function, time) in walk(&intervals, from.0, to.0) {
            let spent = functions.entry(function).or_default();
            spent.critical_ns += time.critical;
            spent.total_ns += time.total;
        }
    }
    let path_ns = match capture.per() {
        Per::Step => whole_ns / steps.len() as u64,
        Per::Second => 1_000_000_000,
    };
    let recorded = Recorded {
        kernels: of.seen() == Seen::Kernels,
        samples: samples > 0,
        functions: matches!(of.account.functions, Tracing::Recorded { .. }),
    };
    Some(Profile { rank, whole_ns, path_ns, steps: steps.len(), recorded, samples, functions })
}

/// A reading counts for the time up to the middle between it and each neighbour, but for at most this many
/// periods on each side: if a neighbour is farther away, readings are missing.
const REACH: u64 = 2;

/// Adds the readings of the main thread, and returns how many are in the steps.
fn sample(
    sampled: &Sampled,
    windows: &Spans,
    intervals: &mut Vec<Interval>,
    names: &mut Names,
    functions: &mut BTreeMap<usize, Spent>,
) -> u64 {
    let Some(reach) = sampled.period().map(|period| period * REACH) else { return 0 };
    let mut count = 0;
    for (from, to) in windows.iter() {
        let all: Vec<_> = sampled.between(from, to).filter(|(_, stack)| stack.thread.main).collect();
        count += all.len() as u64;
        for (number, (at, stack)) in all.iter().enumerate() {
            let Some((key, lines)) = python(stack) else { continue };
            let function = names.number(key);
            *names.known[function].lines.entry(lines).or_default() += 1;
            functions.entry(function).or_default().executions += 1;
            let (before, after) = (number.checked_sub(1).map(|before| all[before].0), all.get(number + 1));
            let begin = before.map_or(from.0, |before| at.0.midpoint(before.0));
            let end = after.map_or(to.0, |(after, _)| at.0.midpoint(after.0));
            intervals.push(Interval {
                from: begin.max(at.0.saturating_sub(reach)),
                to: end.min(at.0.saturating_add(reach)),
                function,
                layer: Layer::Sampled,
            });
        }
    }
    count
}

/// The innermost Python function, and its caller; for a function of a library, the program's function that
/// called it.
fn python(stack: &Stack) -> Option<(Key, (u32, u32))> {
    let mut frames = stack.frames.iter().rev().filter(|frame| frame.is_python());
    let innermost = frames.next()?;
    let caller = if is_library(innermost) { frames.find(|frame| !is_library(frame)) } else { frames.next() };
    let name = |frame: &StackFrame| [frame.function.clone(), frame.file.clone()];
    let lines = (innermost.line, caller.map_or(0, |caller| caller.line));
    Some((Key::Sampled(name(innermost), caller.map(|caller| name(caller))), lines))
}

fn is_library(frame: &StackFrame) -> bool {
    ["/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "]
        .iter()
        .any(|part| frame.file.contains(part))
}

fn extent(single: &Single) -> Option<(Moment, Moment)> {
    match single.span {
        CapturedSpan::Host { took } => Some((single.at, Moment(single.at.0.saturating_add(took.0)))),
        _ => single.on_gpu(),
    }
}

/// The amount of work of an operation, in the unit of its function.
fn amount(single: &Single) -> f64 {
    match &*single.label {
        CapturedLabel::Gemm(shape) => shape.flops(),
        CapturedLabel::Copy { bytes, .. } | CapturedLabel::Set { bytes } => *bytes as f64,
        CapturedLabel::Collective { bus_bytes, .. } | CapturedLabel::Group { bus_bytes, .. } => {
            *bus_bytes as f64
        }
        _ => 1.0,
    }
}
