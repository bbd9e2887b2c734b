//! Sampled Python stacks: which functions the time went to, and where the program was while its GPU had nothing
//! to do.
//!
//! Shares are of the samples of main threads: each rank counts for as much time as was sampled of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use xpu_model::figure::runs;
use xpu_wire::{
    frame::StackFrame,
    id::{HostName, Rank},
    unit::Moment,
};

use super::{
    super::{Capture, RankCapture, Sampled, Seen, Stack, WholeStep},
    Busy, share,
};

/// Functions below are not listed.
const LEAST: f64 = 0.01;

/// Frames below a frame count as one place if less than this share of its samples is in any of them.
const DEEPER: f64 = 0.75;

/// Samples in gaps, and their share of all, that a sentence about them needs.
const ENOUGH: u64 = 20;
const WORTH: f64 = 0.01;

/// A sentence names a place that the program was in for at least this share of the gaps.
const TELLING: f64 = 0.2;

/// Paths of one function.
const PATHS: usize = 3;

#[derive(Clone, Debug, Default, Serialize)]
pub struct PythonReport {
    pub ranks: Vec<PythonRank>,
    /// All over 1 %, the most time in themselves first.
    pub functions: Vec<FunctionRow>,
}

/// How a rank was sampled, and what its main thread did while its GPU was idle.
#[derive(Clone, Debug, Serialize)]
pub struct PythonRank {
    pub rank: Rank,
    pub host: HostName,
    /// Of the main thread, in whole steps.
    pub samples: u64,
    pub rate_hz: u32,
    pub native: bool,
    pub failed: u64,
    pub missed: u64,
    /// CPU time that the sampling process took, as a share of one core; `null` if it is unknown.
    pub sampler_cpu_share: Option<f64>,
    /// How often, and how long in all, threads were stopped for native frames.
    pub stops: u64,
    pub stopped_ns: u64,
    pub longest_stop_ns: u64,
    /// What is missing, and why.
    pub why: Option<String>,
    /// Where its main thread was most of the time, and the share of its samples there.
    pub place: Option<Place>,
    pub share: f64,
    /// What it did in the gaps of the GPU; `null` if no GPU time is known.
    pub idle: Option<Idle>,
}

/// What a main thread did in the gaps of its GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// Whether the gaps are idle times: all kernels were recorded. Otherwise other kernels may have run.
    pub all_kernels: bool,
    pub gap_ns: u64,
    /// The gaps as a share of the time of the steps.
    pub gap_share: Option<f64>,
    pub samples: u64,
    /// The innermost place that most of these samples have in common.
    pub place: Place,
    /// The share of these samples that are in it.
    pub share: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    pub function: String,
    pub file: String,
    /// The line that most samples have; 0 if it is unknown.
    pub line: u32,
    /// The calls that led there, outermost first.
    pub path: Vec<String>,
}

/// One function on all ranks.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionRow {
    pub function: String,
    pub file: String,
    pub line: u32,
    /// `main`, or Python's name of the thread without its numbers.
    pub thread: String,
    pub samples: u64,
    /// The share of time in the function itself, and in it and what it called.
    pub self_share: f64,
    pub total_share: f64,
    pub paths: Vec<Path>,
    /// The rank that is there longest, its share, and the median of all.
    pub most: Rank,
    pub most_share: f64,
    pub median_share: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Path {
    pub share: f64,
    /// Outermost first.
    pub calls: Vec<String>,
}

/// A function, whatever its line.
type Key<'a> = (&'a str, &'a str);

fn key(frame: &StackFrame) -> Key<'_> {
    (&frame.function, &frame.file)
}

/// `collate_fn (data.py:40)`
pub fn shown(function: &str, file: &str, line: u32) -> String {
    let short = short(file);
    match (short.is_empty(), line) {
        (true, _) => function.to_owned(),
        (false, 0) => format!("{function} ({short})"),
        (false, line) => format!("{function} ({short}:{line})"),
    }
}

/// From the package on, or the file's name.
fn short(file: &str) -> &str {
    for root in ["/site-packages/", "/dist-packages/"] {
        if let Some(at) = file.rfind(root) {
            return &file[at + root.len()..];
        }
    }
    file.rsplit('/').next().unwrap_or(file)
}

impl PythonReport {
    /// `None` if nothing was sampled.
    pub(in crate::capture) fn of(capture: &Capture, busy: &BTreeMap<Rank, Busy>) -> Option<Self> {
        let sampled: Vec<_> = capture
            .ranks
            .iter()
            .filter_map(|(&rank, of)| Some((rank, of, capture.sampled.get(&rank)?)))
            .collect();
        if sampled.is_empty() {
            return None;
        }
        let ranks = sampled.iter().filter_map(|of| Some(rank_of(of, busy.get(&of.0)?)));
        Some(Self { ranks: ranks.collect(), functions: functions(&sampled) })
    }

    /// `in 62 % of the GPU's idle time rank 3 was in collate_fn (data.py:40)`; ranks in the same place together.
    pub fn sentences(&self) -> Vec<String> {
        let mut places: BTreeMap<(&Place, bool), Vec<(&PythonRank, &Idle)>> = BTreeMap::new();
        for rank in &self.ranks {
            let told =
                |idle: &&Idle| idle.samples >= ENOUGH && idle.gap_share.is_some_and(|gap| gap >= WORTH);
            if let Some(idle) = rank.idle.as_ref().filter(told).filter(|idle| idle.share >= TELLING) {
                places.entry((&idle.place, idle.all_kernels)).or_default().push((rank, idle));
            }
        }
        let mut all: Vec<_> = places.into_iter().collect();
        let cost = |(_, ranks): &(_, Vec<(&PythonRank, &Idle)>)| {
            ranks.iter().map(|(_, idle)| idle.share * idle.gap_ns as f64).fold(0.0, f64::max)
        };
        all.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
        let sentence = |((place, all_kernels), ranks): ((&Place, bool), Vec<(&PythonRank, &Idle)>)| {
            let percent = |share: f64| format!("{:.0}", share * 100.0);
            let least = ranks.iter().map(|(_, idle)| idle.share).fold(f64::MAX, f64::min);
            let most = ranks.iter().map(|(_, idle)| idle.share).fold(0.0, f64::max);
            let share = match (percent(least), percent(most)) {
                (least, most) if least == most => least,
                (least, most) => format!("{least} to {most}"),
            };
            let numbers: Vec<_> = ranks.iter().map(|(rank, _)| u64::from(rank.rank.0)).collect();
            let (noun, was) = if numbers.len() == 1 { ("rank", "was") } else { ("ranks", "were") };
            let idle = if all_kernels { "the GPU's idle time" } else { "the GPU's gaps" };
            let gaps = ranks.iter().filter_map(|(_, idle)| idle.gap_share).fold(0.0, f64::max);
            format!(
                "in {share} % of {idle} {noun} {} {was} in {} ({} % of the step is such time)",
                runs(&numbers),
                shown(&place.function, &place.file, place.line),
                percent(gaps),
            )
        };
        all.into_iter().map(sentence).chain(self.without_gpu()).collect()
    }

    /// Where no GPU time is known: where ranks were at all.
    fn without_gpu(&self) -> Vec<String> {
        let is_told =
            |rank: &&PythonRank| rank.idle.is_none() && rank.samples >= ENOUGH && rank.share >= TELLING;
        let mut places: BTreeMap<&Place, Vec<&PythonRank>> = BTreeMap::new();
        for rank in self.ranks.iter().filter(is_told) {
            if let Some(place) = &rank.place {
                places.entry(place).or_default().push(rank);
            }
        }
        let sentence = |(place, ranks): (&Place, Vec<&PythonRank>)| {
            let numbers: Vec<_> = ranks.iter().map(|rank| u64::from(rank.rank.0)).collect();
            let (noun, was) = if numbers.len() == 1 { ("rank", "was") } else { ("ranks", "were") };
            let least = ranks.iter().map(|rank| rank.share).fold(f64::MAX, f64::min);
            let least_of = if numbers.len() == 1 { "" } else { "at least " };
            format!(
                "{noun} {} {was} in {} in {least_of}{:.0} % of the time",
                runs(&numbers),
                shown(&place.function, &place.file, place.line),
                least * 100.0
            )
        };
        places.into_iter().map(sentence).collect()
    }
}

/// A rank, its steps and its samples.
type Of<'a> = (Rank, &'a RankCapture, &'a Sampled);

fn rank_of(&(rank, of, sampled): &Of<'_>, busy: &Busy) -> PythonRank {
    let account = sampled.account.clone().unwrap_or_default();
    let steps: Vec<_> = of.whole_steps(rank).collect();
    let all: Vec<_> = steps
        .iter()
        .flat_map(|step| main_samples(sampled, step.from, step.to))
        .map(|(_, stack)| stack)
        .collect();
    let (place, within) = common(&all).unzip();
    let took = account.ended.since(account.began).as_nanos() as u64;
    PythonRank {
        rank,
        host: of.host.clone(),
        samples: all.len() as u64,
        rate_hz: account.rate,
        native: account.natively,
        failed: account.failed,
        missed: account.missed,
        sampler_cpu_share: share(account.cpu.0, took),
        stops: account.stops,
        stopped_ns: account.stopped.0,
        longest_stop_ns: account.longest_stop.0,
        why: account
            .why
            .or_else(|| sampled.account.is_none().then(|| "its last samples did not arrive".to_owned())),
        place,
        share: share(within.unwrap_or(0) as u64, all.len() as u64).unwrap_or(0.0),
        idle: busy.is_any().then(|| idle((of, sampled), busy, &steps)).flatten(),
    }
}

fn main_samples(sampled: &Sampled, from: Moment, to: Moment) -> impl Iterator<Item = (Moment, &Stack)> {
    sampled.between(from, to).filter(|(_, stack)| stack.thread.main)
}

fn idle((of, sampled): (&RankCapture, &Sampled), busy: &Busy, steps: &[WholeStep<'_>]) -> Option<Idle> {
    let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
    let took = sum(&mut steps.iter().map(|step| step.on_gpu.1.0.saturating_sub(step.on_gpu.0.0)));
    let gaps: Vec<_> = steps.iter().flat_map(|step| busy.gaps(step.on_gpu.0, step.on_gpu.1)).collect();
    let gap_ns = sum(&mut gaps.iter().map(|(from, to)| to.0 - from.0));
    let stacks: Vec<_> =
        gaps.iter().flat_map(|&(from, to)| main_samples(sampled, from, to)).map(|(_, stack)| stack).collect();
    let (place, within) = common(&stacks)?;
    Some(Idle {
        all_kernels: of.seen() == Seen::Kernels,
        gap_ns,
        gap_share: share(gap_ns, took),
        samples: stacks.len() as u64,
        place,
        share: within as f64 / stacks.len() as f64,
    })
}

/// The innermost place that most of the stacks share, and how many are in it: from the outermost frame on, the
/// one below is taken as long as most of what is left is in it.
fn common(stacks: &[&Stack]) -> Option<(Place, usize)> {
    let mut here: Vec<&Stack> = stacks.iter().copied().filter(|stack| !stack.frames.is_empty()).collect();
    let (mut depth, mut place) = (0, None);
    loop {
        let mut below: BTreeMap<Key<'_>, Vec<&Stack>> = BTreeMap::new();
        for stack in &here {
            if let Some(frame) = stack.frames.get(depth) {
                below.entry(key(frame)).or_default().push(stack);
            }
        }
        let Some((_, most)) = below.into_iter().max_by_key(|(_, stacks)| stacks.len()) else { break };
        // Every stack has an outermost frame; the most frequent is taken whatever it is.
        if depth > 0 && (most.len() as f64) < here.len() as f64 * DEEPER {
            break;
        }
        let Some(first) = most.first() else { break };
        let frame = &first.frames[depth];
        // Native frames tell how, not where.
        if frame.is_python() || place.is_none() {
            let line = line(most.iter().map(|stack| stack.frames[depth].line));
            place = Some((frame, line, depth, most.len(), *first));
        }
        here = most;
        depth += 1;
    }
    let (frame, line, depth, count, stack) = place?;
    let path = stack.frames[..depth].iter().map(|frame| shown(&frame.function, &frame.file, frame.line));
    let place =
        Place { function: frame.function.clone(), file: frame.file.clone(), line, path: path.collect() };
    Some((place, count))
}

/// The most frequent.
fn line(lines: impl Iterator<Item = u32>) -> u32 {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    lines.for_each(|line| *counts.entry(line).or_default() += 1);
    counts
        .into_iter()
        .max_by_key(|&(line, count)| (count, std::cmp::Reverse(line)))
        .map_or(0, |(line, _)| line)
}

#[derive(Default)]
struct Function<'a> {
    own: u64,
    total: u64,
    lines: Vec<u32>,
    ranks: BTreeMap<Rank, u64>,
    paths: BTreeMap<Vec<Key<'a>>, (u64, &'a [std::sync::Arc<StackFrame>])>,
}

fn functions(sampled: &[Of<'_>]) -> Vec<FunctionRow> {
    let mut all: BTreeMap<(String, Key<'_>), Function<'_>> = BTreeMap::new();
    let mut readings: BTreeMap<Rank, u64> = BTreeMap::new();
    for &(rank, of, sampled) in sampled {
        for step in of.whole_steps(rank) {
            for (_, stack) in sampled.between(step.from, step.to) {
                *readings.entry(rank).or_default() += u64::from(stack.thread.main);
                let thread = role(stack);
                let mut seen = BTreeSet::new();
                for (depth, frame) in stack.frames.iter().enumerate().rev() {
                    // What calls itself counts once.
                    if !seen.insert(key(frame)) {
                        continue;
                    }
                    let function = all.entry((thread.clone(), key(frame))).or_default();
                    function.total += 1;
                    function.own += u64::from(depth + 1 == stack.frames.len());
                    function.lines.push(frame.line);
                    *function.ranks.entry(rank).or_default() += 1;
                    let path: Vec<_> = stack.frames[..depth].iter().map(|frame| key(frame)).collect();
                    function.paths.entry(path).or_insert((0, &stack.frames[..depth])).0 += 1;
                }
            }
        }
    }
    let readings_of_all: u64 = readings.values().sum();
    let of_all = |count: u64| share(count, readings_of_all).unwrap_or(0.0);
    let row = |((thread, (function, file)), of): ((String, Key<'_>), Function<'_>)| {
        let mut ranks: Vec<_> = readings
            .iter()
            .map(|(rank, &all)| (*rank, share(of.ranks.get(rank).copied().unwrap_or(0), all).unwrap_or(0.0)))
            .collect();
        ranks.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let (most, most_share) = *ranks.first()?;
        let mut paths: Vec<_> = of.paths.into_values().collect();
        paths.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let path = |(count, frames): (u64, &[std::sync::Arc<StackFrame>])| Path {
            share: of_all(count),
            calls: frames.iter().map(|frame| shown(&frame.function, &frame.file, frame.line)).collect(),
        };
        Some(FunctionRow {
            function: function.to_owned(),
            file: file.to_owned(),
            line: line(of.lines.iter().copied()),
            thread,
            samples: of.total,
            self_share: of_all(of.own),
            total_share: of_all(of.total),
            paths: paths.into_iter().take(PATHS).map(path).collect(),
            most,
            most_share,
            median_share: ranks[ranks.len() / 2].1,
        })
    };
    let mut rows: Vec<_> = all.into_iter().filter_map(row).filter(|row| row.total_share >= LEAST).collect();
    rows.sort_by(|a, b| b.self_share.total_cmp(&a.self_share).then(b.total_share.total_cmp(&a.total_share)));
    rows
}

/// Threads of one kind have one name, but for numbers.
pub(crate) fn role(stack: &Stack) -> String {
    if stack.thread.main {
        return "main".to_owned();
    }
    let mut name = String::new();
    for letter in stack.thread.name.chars() {
        match letter {
            '0'..='9' if name.ends_with('*') => {}
            '0'..='9' => name.push('*'),
            letter => name.push(letter),
        }
    }
    if name.is_empty() { "thread".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::{
        Body, CapturePart, Frame, PythonSamples,
        example::capture::{BEGIN, MS, part, samples, sheet, with_activity},
    };

    use super::*;
    use crate::capture::Report;

    fn capture(parts: impl IntoIterator<Item = CapturePart>, samples: Vec<PythonSamples>) -> Capture {
        let mut capture = Capture::default();
        let bodies = [Body::CaptureSheet(sheet(&[0, 1]))]
            .into_iter()
            .chain(parts.into_iter().map(Body::CapturePart))
            .chain(samples.into_iter().map(Body::PythonSamples));
        for body in bodies {
            capture.take(&Frame { host: "a".into(), number: 0, now: Moment(BEGIN), lost: 0, body });
        }
        capture
    }

    fn python(capture: &Capture) -> PythonReport {
        Report::of(capture).python.expect("it was sampled")
    }

    #[test]
    fn where_a_rank_was_while_its_gpu_was_idle_is_said() {
        // Ten times as many samples as the example has, so that they are enough to tell.
        let mut dense = samples(1);
        let every: Vec<_> = dense.samples.iter().skip(1).flat_map(|sample| [sample.stack; 10]).collect();
        let after = |_| xpu_wire::unit::Nanoseconds(MS / 10);
        dense.samples = every
            .into_iter()
            .map(|stack| xpu_wire::frame::PythonSample { after: after(stack), stack })
            .collect();
        let report = python(&capture([with_activity(0), with_activity(1)], vec![dense]));
        let idle = report.ranks[0].idle.as_ref().expect("gaps");
        assert!(idle.all_kernels && idle.samples >= ENOUGH, "{idle:?}");
        assert_eq!((idle.place.function.as_str(), idle.place.line), ("collate_fn", 40), "{idle:?}");
        assert_eq!(idle.place.path, ["main (train.py:90)", "train (train.py:12)"]);
        let said = report.sentences();
        assert!(
            said.len() == 1
                && said[0].contains("of the GPU's idle time rank 1 was in collate_fn (data.py:40)"),
            "{said:?}"
        );
    }

    #[test]
    fn gaps_are_no_idle_time_where_other_kernels_may_run() {
        let report = python(&capture([part(0, 0), part(1, 0)], vec![samples(1)]));
        assert!(!report.ranks[0].idle.as_ref().expect("gaps").all_kernels);
    }

    #[test]
    fn functions_have_their_share_of_themselves_and_of_all_below_and_the_way_there() {
        let report = python(&capture([part(0, 0), part(1, 0)], vec![samples(0), samples(1)]));
        let row = |name: &str| report.functions.iter().find(|row| row.function == name).expect(name);
        let (main, train, collate) = (row("main"), row("train"), row("collate_fn"));
        assert!((main.total_share - 1.0).abs() < 1e-9 && main.self_share == 0.0, "{main:?}");
        assert!((train.self_share + collate.self_share - 1.0).abs() < 1e-9, "{report:#?}");
        assert!((train.total_share - 1.0).abs() < 1e-9 && train.self_share > 0.5, "{train:?}");
        assert_eq!(collate.paths[0].calls, ["main (train.py:90)", "train (train.py:12)"]);
        assert_eq!(row("pin_memory").thread, "pin");
        assert_eq!((report.ranks.len(), report.ranks[0].failed, report.ranks[0].missed), (2, 1, 2));
        assert!(report.ranks[0].sampler_cpu_share.is_some_and(|share| (share - 0.1).abs() < 1e-9));
    }

    #[test]
    fn what_calls_itself_counts_once_and_indices_that_lead_nowhere_are_left_out() {
        let mut wild = samples(0);
        wild.stacks[0].frames = vec![0, 1, 1, 1, 77];
        wild.stacks[1].thread = 99;
        wild.samples[3].stack = 5000;
        let report = python(&capture([part(0, 0)], vec![wild]));
        let train = report.functions.iter().find(|row| row.function == "train").expect("train");
        assert!(train.total_share <= 1.0, "{train:?}");
    }
}
