//! Sampled Python stacks: the functions in which the time was spent, and where the program was while its GPU
//! had nothing to do.
//!
//! Shares are of the samples of main threads: each rank counts in proportion to its number of samples.

mod functions;
mod place;
mod sentences;

use std::collections::BTreeMap;

pub use functions::FunctionRow;
use functions::functions;
pub(crate) use functions::role;
pub use place::shown;
use place::{Place, common};
use serde::Serialize;
use xpu_wire::{
    id::{HostName, Rank},
    unit::Moment,
};

use super::{
    super::{Capture, RankCapture, Sampled, Seen, Stack, WholeStep},
    Busy, share,
};

#[derive(Clone, Debug, Default, Serialize)]
pub struct PythonReport {
    pub ranks: Vec<PythonRank>,
    /// All functions above 1 %, those with the most time of their own first.
    pub functions: Vec<FunctionRow>,
}

/// How a rank was sampled, and where its main thread was while its GPU was idle.
#[derive(Clone, Debug, Serialize)]
pub struct PythonRank {
    pub rank: Rank,
    pub host: HostName,
    /// Number of samples of the main thread, in fully recorded steps.
    pub samples: u64,
    pub rate_hz: u32,
    pub native: bool,
    pub failed: u64,
    pub missed: u64,
    /// CPU time that the sampling process took, as a share of one core; `null` if it is unknown.
    pub sampler_cpu_share: Option<f64>,
    /// How often threads were stopped for native frames, and for how long in total.
    pub stops: u64,
    pub stopped_ns: u64,
    pub longest_stop_ns: u64,
    /// What is missing, and why.
    pub why: Option<String>,
    /// Where its main thread was most of the time, and the share of the samples at that place.
    pub place: Option<Place>,
    pub share: f64,
    /// Where it was in the gaps of the GPU; `null` if no GPU time is known.
    pub idle: Option<Idle>,
}

/// Where a main thread was in the gaps of its GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// Whether all kernels were recorded, so that the gaps are idle times. Otherwise, other kernels may have
    /// run.
    pub all_kernels: bool,
    pub gap_ns: u64,
    /// The gaps as a share of the time of the steps.
    pub gap_share: Option<f64>,
    pub samples: u64,
    /// The innermost place that most of these samples have in common.
    pub place: Place,
    /// The share of these samples that are at this place.
    pub share: f64,
}

/// A rank, its steps and its samples.
type RankSamples<'a> = (Rank, &'a RankCapture, &'a Sampled);

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
}

fn rank_of(&(rank, of, sampled): &RankSamples<'_>, busy: &Busy) -> PythonRank {
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
        // The sampler has one thread. A share above 1 comes from its preparation, and is not shown.
        sampler_cpu_share: share(account.cpu.0, took).filter(|share| *share <= 1.0),
        stops: account.stops,
        stopped_ns: account.stopped.0,
        longest_stop_ns: account.longest_stop.0,
        why: account
            .why
            .or_else(|| sampled.account.is_none().then(|| "its last samples did not arrive".to_owned())),
        place,
        share: share(within.unwrap_or(0) as u64, all.len() as u64).unwrap_or(0.0),
        idle: busy.is_any().then(|| idle(of, sampled, busy, &steps)).flatten(),
    }
}

fn main_samples(sampled: &Sampled, from: Moment, to: Moment) -> impl Iterator<Item = (Moment, &Stack)> {
    sampled.between(from, to).filter(|(_, stack)| stack.thread.main)
}

fn idle(of: &RankCapture, sampled: &Sampled, busy: &Busy, steps: &[WholeStep<'_>]) -> Option<Idle> {
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

#[cfg(test)]
mod tests {
    use xpu_wire::frame::{
        Body, CapturePart, Frame, PythonSamples,
        example::capture::{BEGIN, MS, part, samples, sheet, with_activity},
    };

    use super::{sentences::ENOUGH, *};
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
        // Ten times the samples of the example, so that they are enough for a sentence.
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
                && said[0].starts_with("rank 1 was in collate_fn (data.py:40) during ")
                && said[0].contains("% of the GPU's idle time ("),
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
    fn recursive_calls_count_once_and_dangling_indices_are_left_out() {
        let mut wild = samples(0);
        wild.stacks[0].frames = vec![0, 1, 1, 1, 77];
        wild.stacks[1].thread = 99;
        wild.samples[3].stack = 5000;
        let report = python(&capture([part(0, 0)], vec![wild]));
        let train = report.functions.iter().find(|row| row.function == "train").expect("train");
        assert!(train.total_share <= 1.0, "{train:?}");
    }
}
