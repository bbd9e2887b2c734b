//! Unmarked steps in loops of each kind. On every rank they agree with the program's own count and clock, or
//! are unknown.

use std::time::Duration;

use xpu_tests::program::until;
use xpu_wire::{
    frame::{StepSource, Steps, Summary, TimedBy},
    histogram::Histogram,
    unit::Moment,
};

use crate::Job;

/// What a program reports of its rank: when it completed each step.
type Own = Vec<(f64, u64)>;

/// Runs a loop of `programs.py` until `seen` is satisfied. Returns, for each rank, the steps that the hook
/// reported and the program's own report.
fn watch(world: usize, program: &str, seen: impl Fn(&[Steps]) -> bool) -> Vec<(Vec<Steps>, Own)> {
    let job = Job::of(world, &[], &format!("from programs import *\ntrain({program})"));
    let said = |rank: usize| -> Option<Vec<Steps>> {
        let sender = job.listener.sender(job.ranks[rank].pid())?;
        Some(sender.summaries.into_iter().filter_map(|summary| summary.steps).collect())
    };
    let all = until("enough of all ranks", || {
        let all: Vec<_> = (0..world).map(said).collect::<Option<_>>()?;
        all.iter().all(|steps| seen(steps)).then_some(all)
    });
    std::fs::write(job.place.path("enough"), "").expect("a file can be written");
    let own = job.ranks.into_iter().map(|rank| {
        let outcome = rank.end();
        assert!(outcome.status.success(), "{outcome:?}");
        let line = |line: &str| {
            let (at, number) = line.split_once(' ')?;
            Some((at.parse().ok()?, number.parse().ok()?))
        };
        outcome.stdout.lines().filter_map(line).collect()
    });
    all.into_iter().zip(own).collect()
}

/// The number of the last step that was completed before this moment.
fn own_at(own: &Own, moment: Moment) -> u64 {
    let at = moment.0 as f64 / 1e9;
    own.iter().take_while(|&&(then, _)| then <= at).last().map_or(0, |&(_, number)| number)
}

/// The mean length of the steps between these two, in milliseconds.
fn mean(from: (f64, u64), to: (f64, u64)) -> f64 {
    (to.0 - from.0) / (to.1 - from.1) as f64 * 1e3
}

fn is_right(world: usize, program: &str) {
    is_right_but(0, world, program);
}

/// In up to `lapses` summaries the number may be wrong by more than one step.
fn is_right_but(lapses: usize, world: usize, program: &str) {
    let lasts = |steps: &[Steps]| match (steps.first(), steps.last()) {
        (Some(first), Some(last)) => last.at.since(first.at) > Duration::from_secs(8),
        _ => false,
    };
    for (rank, (said, own)) in watch(world, program, lasts).into_iter().enumerate() {
        let numbers: Vec<_> =
            said.iter().map(|steps| (steps.completed.0, own_at(&own, steps.at), steps.source)).collect();
        let wrong = numbers.iter().filter(|(shown, truth, _)| shown.abs_diff(*truth) > 1).count();
        let late = numbers.iter().filter(|(.., source)| *source != StepSource::Detected).count();
        assert!(wrong <= lapses && (late == 0 || lapses > 0), "{program}: {numbers:?}");
        let by_gpu = said.iter().any(|steps| steps.timed_by == TimedBy::Gpu && !steps.durations.is_empty());
        assert!(by_gpu, "{program}: no step was timed on the GPU");
        let at = |steps: &Steps| (steps.at.0 as f64 / 1e9, steps.completed.0);
        let (from, to) = (at(&said[0]), at(&said[said.len() - 1]));
        let shown = mean(from, to);
        let within: Own = own.iter().copied().filter(|&(then, _)| then >= from.0 && then <= to.0).collect();
        let truth = mean(within[0], within[within.len() - 1]);
        println!(
            "{program}, rank {rank}: step {} of its {}, {shown:.2} ms of its {truth:.2}",
            to.1,
            own_at(&own, said[said.len() - 1].at)
        );
        assert!((shown / truth - 1.0).abs() < 0.02, "{program}: {shown} ms, and the program says {truth}");
    }
}

#[test]
fn steps_with_equal_blocks_and_equal_buckets_are_detected() {
    is_right(2, "equal_blocks");
}

#[test]
fn micro_batches_evaluations_and_log_entries_are_no_steps() {
    is_right(2, "accumulates");
}

#[test]
fn steps_are_detected_if_the_program_waits_every_eight_steps() {
    is_right(1, "waits_every_8");
}

#[test]
fn steps_of_one_rank_without_nccl_are_detected() {
    is_right(1, "alone");
}

#[test]
fn all_pipeline_stages_detect_the_same_steps() {
    is_right(2, "pipeline");
}

#[test]
fn alternating_updates_of_two_networks_are_one_step() {
    is_right(1, "two_phases");
}

#[test]
fn steps_of_varying_sequence_length_are_detected() {
    is_right(1, "other_lengths");
}

#[test]
fn collectives_of_log_entries_are_no_steps() {
    is_right(2, "norms");
}

#[test]
fn evaluations_with_tensor_parallel_operations_are_no_steps() {
    // Until the first evaluation is over, the hook takes the number of all-reduces for the number of steps.
    is_right_but(1, 2, "tensor_parallel");
}

#[test]
fn parameter_gathers_of_evaluations_are_no_steps() {
    is_right(2, "fully_sharded");
}

#[test]
fn the_step_number_is_a_lower_bound_if_the_first_steps_differed() {
    let lasts = |steps: &[Steps]| steps.iter().map(|steps| steps.durations.count()).sum::<u64>() > 100;
    let (said, own) = watch(1, "launches_a_graph_after_five", lasts).remove(0);
    for steps in &said {
        assert_eq!(steps.source, StepSource::DetectedLate);
        let truth = own_at(&own, steps.at);
        assert!((truth - 7..=truth).contains(&steps.completed.0), "{} for {truth}", steps.completed.0);
    }
    // Both are of the same period, because steps take longer while the machine is busy. A few take many times
    // as long, so medians are compared.
    let period = said[0].at..said[said.len() - 1].at;
    let mut shown = Histogram::new();
    for steps in &said[1..] {
        shown.merge(&steps.durations);
    }
    let within = own.iter().filter(|&&(at, _)| period.contains(&Moment((at * 1e9) as u64)));
    let within: Own = within.copied().collect();
    let mut lengths: Vec<f64> = within.windows(2).map(|pair| mean(pair[0], pair[1])).collect();
    lengths.sort_by(f64::total_cmp);
    let own = lengths[lengths.len() / 2];
    let shown = shown.median().expect("they were timed").milliseconds();
    assert!((shown / own - 1.0).abs() < 0.1, "{shown} ms, and the program says {own}");
}

#[test]
fn an_interval_that_may_be_a_step_or_an_eighth_of_one_is_not_reported() {
    let job = Job::of(2, &[], "from programs import *\ntrain(alternates)");
    let last = until("two looks", || {
        let mut sender = job.listener.sender(job.ranks[0].pid())?;
        sender.summaries.pop().filter(|summary| summary.launches.gemms > 8_000).map(|summary| summary.steps)
    });
    assert_eq!(last, None);
    std::fs::write(job.place.path("enough"), "").unwrap();
}

#[test]
fn repeated_requests_of_an_inference_server_are_no_steps() {
    let job = Job::of(1, &[], "from programs import *\ntrain(answers)");
    let is_named = |summary: &Summary| {
        summary.hook.blind.iter().any(|line| line.contains("only a forward pass repeats"))
    };
    let summaries = until("the forward pass to be found, and more of it", || {
        let summaries = job.listener.sender(job.ranks[0].pid())?.summaries;
        let named = summaries.iter().position(is_named)?;
        (summaries.len() > named + 10).then_some(summaries)
    });
    assert!(summaries.iter().all(|summary| summary.steps.is_none()), "{:?}", summaries.last());
    std::fs::write(job.place.path("enough"), "").unwrap();
}

#[test]
fn a_pytorch_without_the_hook_is_named_and_steps_are_detected() {
    let job = Job::of(
        1,
        &[],
        "
import sys, types
sys.modules['torch.optim.optimizer'] = types.ModuleType('torch.optim.optimizer')
from programs import *
train(alone)",
    );
    let last = until("steps to be detected", || {
        job.listener.sender(job.ranks[0].pid())?.summaries.pop().filter(|summary| summary.steps.is_some())
    });
    let lines: Vec<_> = last.hook.blind.iter().filter(|line| line.contains("PyTorch has no hook")).collect();
    assert_eq!(lines.len(), 1, "{:?}", last.hook.blind);
    std::fs::write(job.place.path("enough"), "").unwrap();
    let outcomes: Vec<_> = job.ranks.into_iter().map(|rank| rank.end()).collect();
    assert!(outcomes.iter().all(|outcome| outcome.status.success()), "{outcomes:?}");
}
