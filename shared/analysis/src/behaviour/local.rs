//! The time that one rank spent in each function, from its own operations alone: its collector can make this,
//! and only this travels. Which part of a collective was a wait needs all ranks, and comes later
//! ([`super::profile`]).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use xpu_wire::{
    frame::{
        CapturedLabel, CapturedSpan, CollectiveTime, FunctionClass, FunctionCollectives, FunctionKey,
        FunctionTime, RankFunctions, StackFrame,
    },
    id::{CommunicatorId, JobName, Rank},
    sampling::Rate,
    unit::{Moment, Nanoseconds},
};

use super::{
    LEAST, MOST_FUNCTIONS,
    critical_path::{Interval, Layer, Time, walk},
    function::Names,
    work::Work,
};
use crate::capture::{Capture, Sampled, Single, Spans, Stack, union};

/// Functions other than compute that run for at least this share of the time are sent, also beside the critical path: a tenth of
/// the share from which a function is compared, because a worker may have much less of it than its peers.
const SENT: f64 = LEAST / 10.0;

/// Number of compute functions that are sent, the longest first.
const MOST_COMPUTE: usize = 512;

/// A collective of the rank, and its time on the critical path so far.
struct Open {
    group: Group,
    of: CollectiveTime,
    to: Moment,
    spent: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    function: usize,
    waits: usize,
    communicator: CommunicatorId,
}

/// The first number of collectives among the numbers of functions: each has a time of its own.
const COLLECTIVES: usize = usize::MAX / 2;

/// What a rank of a capture spent its steps on; without a fully recorded step, no functions.
pub fn functions(capture: &Capture, rank: Rank) -> Option<RankFunctions> {
    let of = capture.ranks.get(&rank)?;
    let sheet = capture.sheet.as_ref();
    let mut made = RankFunctions {
        number: sheet.map_or(0, |sheet| sheet.order.number),
        job: sheet.map_or_else(|| JobName::from(""), |sheet| sheet.job.clone()),
        rank,
        account: of.account.clone(),
        whole: Nanoseconds(0),
        steps: 0,
        samples: 0,
        functions: Vec::new(),
        collectives: Vec::new(),
    };
    let steps: Vec<_> = of.whole_steps(rank).collect();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return Some(made) };
    let windows = union(steps.iter().map(|step| step.on_gpu));
    let (mut names, mut spent) = (Names::default(), BTreeMap::<usize, FunctionTime>::new());
    let (mut intervals, mut open) = (Vec::new(), Vec::new());
    // The labels of a part are shared by its operations.
    let mut labels: HashMap<*const CapturedLabel, Option<Work>> = HashMap::new();
    for single in &of.operations {
        let work = *labels
            .entry(Arc::as_ptr(&single.label))
            .or_insert_with(|| Work::of(single, of.seen(), &capture.communicators, &mut names));
        let Some(Work { function, waits, layer }) = work else { continue };
        let is_in_steps = (first.from..last.to).contains(&single.at);
        let extent = extent(single);
        if let Some((from, to)) = extent {
            let collective = waits.filter(|_| is_in_steps).and_then(|waits| {
                let id = single.collective_id()?;
                let group = Group { function, waits, communicator: id.communicator };
                let took = Nanoseconds(single.on_gpu().map(|(from, to)| to.0.saturating_sub(from.0))?);
                let bus_bytes = amount(single) as u64;
                let of =
                    CollectiveTime { sequence: id.sequence, took, bus_bytes, ..CollectiveTime::default() };
                Some(Open { group, of, to, spent: Time::default() })
            });
            let function = match collective {
                Some(collective) => {
                    open.push(collective);
                    COLLECTIVES + open.len() - 1
                }
                // If it is not known when the last rank began, all of its time may be a wait.
                None => waits.unwrap_or(function),
            };
            intervals.push(Interval { from: from.0, to: to.0, function, layer });
        }
        if is_in_steps && (extent.is_some() || layer == Layer::Compute) {
            let its = entry(&mut spent, function);
            its.executions += 1;
            if waits.is_none() {
                rate(its, single.took_on_gpu(), amount(single));
            }
        }
    }
    let mut lines = HashMap::new();
    let samples = capture.sampled.get(&rank).map_or(0, |sampled| {
        sample(sampled, &windows, &mut intervals, &mut names, |function, at| {
            entry(&mut spent, function).executions += 1;
            *lines.entry(function).or_insert_with(BTreeMap::new).entry(at).or_insert(0_u64) += 1;
        })
    });
    intervals.sort_by_key(|one| one.from);
    for (from, to) in windows.iter() {
        for (function, time) in walk(&intervals, from.0, to.0) {
            if let Some(one) = function.checked_sub(COLLECTIVES).and_then(|index| open.get_mut(index)) {
                one.spent.add(time);
            } else {
                let its = entry(&mut spent, function);
                its.critical += time.critical;
                its.total += time.total;
            }
        }
    }
    (made.whole, made.steps, made.samples) = (windows.length(), steps.len() as u32, samples);
    // All functions, in the order of their numbers.
    for (number, key) in names.keys.into_iter().enumerate() {
        let mut its = spent.remove(&number).unwrap_or_else(none);
        its.key = with_lines(key, lines.get(&number));
        made.functions.push(its);
    }
    made.collectives = collectives(open);
    Some(made)
}

fn none() -> FunctionTime {
    let key = FunctionKey::Waits(String::new());
    FunctionTime {
        key,
        critical: 0.0,
        total: 0.0,
        executions: 0,
        rated: 0,
        rated_for: 0.0,
        amount: 0.0,
        squares: 0.0,
    }
}

fn entry(spent: &mut BTreeMap<usize, FunctionTime>, function: usize) -> &mut FunctionTime {
    spent.entry(function).or_insert_with(none)
}

/// Adds an execution to the rate of its function.
pub(super) fn rate(spent: &mut FunctionTime, took: Option<u64>, amount: f64) {
    if let Some(took) = took.filter(|&took| took > 0) {
        let took = took as f64;
        spent.rated_for += took;
        spent.amount += amount;
        spent.squares += amount * amount / took;
        spent.rated += 1;
    }
}

/// The collectives by function and communicator, in the order of their numbers.
fn collectives(open: Vec<Open>) -> Vec<FunctionCollectives> {
    let mut groups: BTreeMap<Group, FunctionCollectives> = BTreeMap::new();
    for Open { group, mut of, to, spent } in open {
        let its = groups.entry(group).or_insert_with(|| FunctionCollectives {
            function: group.function as u32,
            waits: group.waits as u32,
            communicator: group.communicator,
            critical: 0.0,
            total: 0.0,
            rate: Rate::EVERY,
            each: Vec::new(),
        });
        its.critical += spent.critical;
        its.total += spent.total;
        if let Some((begun, ended)) = spent.path {
            let before = |moment: u64| Nanoseconds(to.0.saturating_sub(moment));
            (of.critical, of.begun_before, of.ended_before) =
                (Nanoseconds(spent.critical.round() as u64), before(begun), before(ended));
        }
        its.each.push(of);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    for group in &mut groups {
        group.each.sort_by_key(|one| one.sequence);
    }
    groups
}

/// What is sent: without functions of which no worker's comparison could depend. Of very many collectives,
/// those that the other ranks keep too.
#[must_use]
pub fn brief(mut of: RankFunctions) -> RankFunctions {
    let least = SENT * of.whole.0 as f64;
    let mut by_time: Vec<_> = (0..of.functions.len()).collect();
    by_time.sort_by(|&a, &b| of.functions[b].total.total_cmp(&of.functions[a].total));
    // Roles are found by all compute that was launched.
    let (mut compute, mut others): (Vec<_>, Vec<_>) =
        by_time.into_iter().partition(|&number| of.functions[number].key.class() == FunctionClass::Compute);
    compute.retain(|&number| of.functions[number].executions > 0);
    compute.truncate(MOST_COMPUTE);
    others.retain(|&number| of.functions[number].total >= least);
    others.truncate(MOST_FUNCTIONS);
    let mut is_kept = vec![false; of.functions.len()];
    let waits = of.collectives.iter().flat_map(|group| [group.function as usize, group.waits as usize]);
    compute.into_iter().chain(others).chain(waits).for_each(|number| is_kept[number] = true);
    let mut new = 0;
    let numbers: Vec<u32> = is_kept
        .iter()
        .map(|&kept| {
            new += u32::from(kept);
            new - u32::from(kept)
        })
        .collect();
    let mut kept = is_kept.iter();
    of.functions.retain(|_| kept.next() == Some(&true));
    for group in &mut of.collectives {
        (group.function, group.waits) = (numbers[group.function as usize], numbers[group.waits as usize]);
        let times = group.each.len().div_ceil(RankFunctions::COLLECTIVES).next_power_of_two();
        group.rate = Rate(times.ilog2() as u8).min(Rate::COARSEST);
        group.each.retain(|one| group.rate.times(one.sequence.0));
    }
    of
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
    mut seen: impl FnMut(usize, (u32, u32)),
) -> u64 {
    let Some(reach) = sampled.period().map(|period| period * REACH) else { return 0 };
    let mut count = 0;
    for (from, to) in windows.iter() {
        let all: Vec<_> = sampled.between(from, to).filter(|(_, stack)| stack.thread.main).collect();
        count += all.len() as u64;
        for (number, (at, stack)) in all.iter().enumerate() {
            let Some((key, lines)) = python(stack) else { continue };
            let function = names.number(key);
            seen(function, lines);
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
/// called it. The key is without lines, which are returned beside it.
fn python(stack: &Stack) -> Option<(FunctionKey, (u32, u32))> {
    let mut frames = stack.frames.iter().rev().filter(|frame| frame.is_python());
    let innermost = frames.next()?;
    let caller = if is_library(innermost) { frames.find(|frame| !is_library(frame)) } else { frames.next() };
    let name = |frame: &StackFrame| StackFrame { line: 0, ..frame.clone() };
    let lines = (innermost.line, caller.map_or(0, |caller| caller.line));
    let caller = caller.map(|caller| name(caller));
    Some((FunctionKey::Sampled { function: name(innermost), caller }, lines))
}

/// A key with its most frequent lines.
fn with_lines(key: FunctionKey, lines: Option<&BTreeMap<(u32, u32), u64>>) -> FunctionKey {
    let most = lines.and_then(|lines| lines.iter().max_by_key(|(_, count)| **count));
    match (key, most) {
        (FunctionKey::Sampled { function, caller }, Some((&(line, calling), _))) => FunctionKey::Sampled {
            function: StackFrame { line, ..function },
            caller: caller.map(|caller| StackFrame { line: calling, ..caller }),
        },
        (key, _) => key,
    }
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
