//! Captures of pipelines.

mod hosts;
mod refused;
mod schedule;

use schedule::{Act, Job as Scheduled};
use xpu_wire::id::Rank;

use crate::what_if::{Cause, Job, Kind, WhatIf};

const MICROBATCHES: usize = 6;

/// The time of a forward and of its GEMMs; a backward takes twice as long and has twice as many.
const FORWARD: u64 = 3000;
const GEMMS: usize = 3;

/// The time of an optimizer with GEMMs.
const OPTIMIZER: u64 = 7000;

/// By how much the compute of a microbatch takes longer: of this stage, replica, step and microbatch.
type Factor = fn(usize, usize, usize, usize) -> f64;

const EVEN: Factor = |_, _, _, _| 1.0;

/// Layers in addition to [`GEMMS`], by stage.
type More = fn(usize) -> usize;

#[derive(Clone, Copy)]
struct Shape {
    stages: usize,
    replicas: usize,
    factor: Factor,
    more: More,
    is_gpipe: bool,
    /// Whether a step ends with a collective of all ranks.
    has_norm: bool,
    /// Whether a step begins with that collective.
    norm_is_first: bool,
    /// Whether the replicas of a stage have a collective after a third of each forward and backward.
    is_divided: bool,
    /// Whether a forward is sent while the next input is received, in one group.
    is_joined: bool,
    /// GEMMs of the optimizer, after the last collective of the step.
    of_optimizer: usize,
}

const SHAPE: Shape = Shape {
    stages: 4,
    replicas: 2,
    factor: EVEN,
    more: |_| 0,
    is_gpipe: false,
    has_norm: true,
    norm_is_first: false,
    is_divided: false,
    is_joined: false,
    of_optimizer: 0,
};

impl Shape {
    fn compute(
        self,
        stage: usize,
        replica: usize,
        step: usize,
        microbatch: usize,
        passes: usize,
    ) -> Vec<Act> {
        let factor = (self.factor)(stage, replica, step, microbatch);
        let part = |gemms: usize| Act::Compute {
            gemms,
            took: ((FORWARD * gemms as u64 / GEMMS as u64) as f64 * factor) as u64,
        };
        let gemms = (GEMMS + (self.more)(stage)) * passes;
        if self.is_divided {
            return vec![part(gemms / 3), Act::OfStage, part(gemms - gemms / 3)];
        }
        vec![part(gemms)]
    }

    /// 1F1B as in Megatron, or all forwards before all backwards.
    fn acts(self, stage: usize, replica: usize, step: usize) -> Vec<Act> {
        let mut all = Vec::new();
        let forward = |microbatch| self.compute(stage, replica, step, microbatch, 1);
        let backward = |microbatch| self.compute(stage, replica, step, microbatch, 2);
        let neighbour = |up: bool| match (up, stage) {
            (true, stage) if stage + 1 < self.stages => Some(stage + 1),
            (false, stage) => stage.checked_sub(1),
            _ => None,
        };
        let exchange = |messages: &[(bool, bool)]| {
            let to = |&(is_sent, up): &(bool, bool)| Some((is_sent, neighbour(up)?));
            let messages: Vec<_> = messages.iter().filter_map(to).collect();
            (!messages.is_empty()).then_some(Act::Exchange(messages))
        };
        let (receives_input, sends_result) = ((false, false), (true, true));
        let (receives_gradient, sends_gradient) = ((false, true), (true, false));
        let early = if self.is_gpipe { MICROBATCHES } else { MICROBATCHES.min(self.stages - stage - 1) };
        if self.norm_is_first {
            all.push(Act::OfAll);
        }
        for microbatch in 0..early {
            if microbatch == 0 || !self.is_joined {
                all.extend(exchange(&[receives_input]));
            }
            all.extend(forward(microbatch));
            if microbatch + 1 < early && self.is_joined {
                all.extend(exchange(&[sends_result, receives_input]));
            } else {
                all.extend(exchange(&[sends_result]));
            }
        }
        if early < MICROBATCHES {
            all.extend(exchange(&[receives_input]));
        }
        for microbatch in early..MICROBATCHES {
            all.extend(forward(microbatch));
            all.extend(exchange(&[sends_result, receives_gradient]));
            all.extend(backward(microbatch - early));
            if microbatch + 1 < MICROBATCHES {
                all.extend(exchange(&[sends_gradient, receives_input]));
            } else {
                all.extend(exchange(&[sends_gradient]));
            }
        }
        for microbatch in MICROBATCHES - early..MICROBATCHES {
            all.extend(exchange(&[receives_gradient]));
            all.extend(backward(microbatch));
            all.extend(exchange(&[sends_gradient]));
        }
        if self.replicas > 1 {
            all.push(Act::OfStage);
        }
        if self.has_norm {
            all.push(Act::OfAll);
        }
        if self.of_optimizer > 0 {
            all.push(Act::Compute { gemms: self.of_optimizer, took: OPTIMIZER });
        }
        all
    }

    fn job(self) -> Scheduled {
        Scheduled {
            stages: self.stages,
            replicas: self.replicas,
            steps: 5,
            is_grouped: false,
            is_buffered: false,
            acts: Box::new(move |stage, replica, step| self.acts(stage, replica, step)),
        }
    }

    fn figures(self) -> WhatIf {
        figures(&self.job())
    }

    fn step_ms(self) -> f64 {
        self.job().step_ms()
    }
}

#[track_caller]
fn figures(job: &Scheduled) -> WhatIf {
    let mut job = Job::of_capture(&job.capture()).unwrap_or_else(|why| panic!("{why}"));
    // Here, hosts launch each operation when it begins. So their times contain the waits of their GPUs.
    job.host_steps.clear();
    WhatIf::of(&job)
}

#[track_caller]
fn close(one: f64, other: f64, by: f64) {
    assert!((one / other - 1.0).abs() < by, "{one} is not {other}");
}

#[test]
fn an_even_pipeline_is_simulated_as_it_was() {
    let deep = Shape { stages: 6, ..SHAPE };
    let gpipe = Shape { is_gpipe: true, ..SHAPE };
    let two = Shape { stages: 2, replicas: 1, ..SHAPE };
    for shape in [SHAPE, Shape { replicas: 1, ..SHAPE }, deep, gpipe, two] {
        let figures = shape.figures();
        close(figures.step.measured_ms, shape.step_ms(), 1e-3);
        close(figures.step.simulated_ms, figures.step.measured_ms, 1e-3);
        close(figures.step.ideal_ms, figures.step.measured_ms, 0.01);
        assert_eq!((figures.stages, figures.data_parallel), (shape.stages, shape.replicas));
        assert_eq!(figures.steps.len(), 4);
    }
}

#[test]
fn a_group_may_send_to_one_neighbour_and_receive_from_the_other() {
    let joined = Shape { is_gpipe: true, is_joined: true, replicas: 1, ..SHAPE };
    let figures = joined.figures();
    close(figures.step.simulated_ms, joined.step_ms(), 0.005);
    close(figures.step.ideal_ms, joined.step_ms(), 0.01);
    // Only one message of a group waits for a slow stage.
    let slow: Factor = |stage, _, _, _| if stage == 2 { 2.0 } else { 1.0 };
    let figures = Shape { factor: slow, ..joined }.figures();
    close(figures.stage_figures[0].repaired_ms, joined.step_ms(), 0.01);
}

#[test]
fn the_dependencies_of_large_groups_are_as_many_as_their_messages() {
    const MESSAGES: usize = 50;
    let shape = Shape { stages: 2, ..SHAPE };
    let repeated = move |stage, replica, step| {
        let many = |act| match act {
            Act::Exchange(messages) => Act::Exchange(messages.repeat(MESSAGES)),
            other => other,
        };
        shape.acts(stage, replica, step).into_iter().map(many).collect()
    };
    let job = Scheduled { acts: Box::new(repeated), ..shape.job() };
    let simulated = Job::of_capture(&job.capture()).expect("it can be simulated");
    close(WhatIf::of(&simulated).step.simulated_ms, job.step_ms(), 1e-3);
    let [all, operations] = [simulated.graph.dependencies(), simulated.graph.operations.len()];
    assert!(operations > 4 * MICROBATCHES * MESSAGES && all < 4 * operations, "{all} {operations}");
}

#[test]
fn a_step_may_begin_with_the_collective_of_all_ranks() {
    let shape = Shape { has_norm: false, norm_is_first: true, ..SHAPE };
    let figures = shape.figures();
    close(figures.step.simulated_ms, shape.step_ms(), 1e-3);
    close(figures.step.ideal_ms, shape.step_ms(), 0.01);
}

/// As by tensor parallelism.
#[test]
fn a_forward_that_collectives_divide_counts_as_a_whole() {
    let shape = Shape { is_divided: true, ..SHAPE };
    let slow: Factor = |stage, _, _, _| if stage == 1 { 1.5 } else { 1.0 };
    let figures = Shape { factor: slow, ..shape }.figures();
    close(figures.step.simulated_ms, Shape { factor: slow, ..shape }.step_ms(), 1e-3);
    assert_eq!(figures.stage_figures[0].stage, 1);
    close(figures.stage_figures[0].repaired_ms, shape.step_ms(), 0.01);
    let ideal: Factor = |_, _, _, _| 1.125;
    close(figures.step.ideal_ms, Shape { factor: ideal, ..shape }.step_ms(), 0.01);
}

/// The times of the operations of a kind in a stage, in microseconds.
fn times(job: &Job, stage: usize, kind: Kind) -> Vec<f64> {
    let operations = job.graph.operations.iter().zip(job.actual.own.chunks(job.shape.row()));
    let of_kind = operations.filter(|(one, _)| (one.stage, one.kind) == (stage, kind));
    of_kind.flat_map(|(_, times)| times.iter().map(|time| time * 1e6)).collect()
}

#[track_caller]
fn has_its_forwards_and_backwards(shape: Shape) -> Job {
    let job = Job::of_capture(&shape.job().capture()).expect("it can be simulated");
    for stage in 0..shape.stages {
        for (kind, took) in [(Kind::ForwardCompute, FORWARD), (Kind::BackwardCompute, 2 * FORWARD)] {
            let times = times(&job, stage, kind);
            assert_eq!(times.len(), MICROBATCHES * job.shape.row(), "{kind:?} of stage {stage}");
            assert!(times.iter().all(|time| (time - took as f64).abs() < 2.0), "{kind:?} {stage} {times:?}");
        }
    }
    job
}

#[test]
fn the_compute_between_messages_is_forward_or_backward() {
    has_its_forwards_and_backwards(SHAPE);
    has_its_forwards_and_backwards(Shape { is_gpipe: true, ..SHAPE });
}

#[test]
fn an_optimizer_with_gemms_is_no_forward_or_backward() {
    // After the collective of all ranks, it is at the start of the next step; without one, at the end.
    for has_norm in [true, false] {
        for is_gpipe in [true, false] {
            let shape = Shape { of_optimizer: 7, has_norm, is_gpipe, ..SHAPE };
            let job = has_its_forwards_and_backwards(shape);
            for stage in 0..shape.stages {
                let all: f64 = times(&job, stage, Kind::Compute).iter().sum();
                close(all, (OPTIMIZER * job.shape.row() as u64) as f64, 0.01);
            }
            close(WhatIf::of(&job).step.simulated_ms, shape.step_ms(), 0.01);
        }
    }
}

#[test]
fn a_step_with_a_send_to_another_stage_is_left_out() {
    // As in an evaluation, the last stage sends its result to the first one.
    let acts = |stage: usize, replica, step| {
        let mut acts = SHAPE.acts(stage, replica, step);
        if step == 1 && stage.is_multiple_of(3) {
            acts.push(Act::Exchange(vec![(stage == 3, 3 - stage)]));
        }
        acts
    };
    let figures = figures(&Scheduled { acts: Box::new(acts), ..SHAPE.job() });
    assert_eq!((figures.steps.len(), figures.steps_left_out), (2, 2));
    close(figures.step.simulated_ms, SHAPE.step_ms(), 1e-3);
}

#[test]
fn single_sends_may_be_groups_too() {
    let job = Scheduled { is_grouped: true, ..SHAPE.job() };
    close(figures(&job).step.simulated_ms, SHAPE.step_ms(), 1e-3);
}

#[test]
fn a_slow_rank_is_found_among_the_replicas_of_its_stage() {
    let slow: Factor = |stage, replica, _, _| if (stage, replica) == (2, 1) { 1.5 } else { 1.0 };
    let figures = Shape { factor: slow, ..SHAPE }.figures();
    let first = &figures.workers[0];
    assert_eq!((first.rank, first.stage, first.data_parallel), (Rank(5), 2, 1));
    close(first.repaired_ms.expect("it is simulated"), SHAPE.step_ms(), 0.01);
    assert_eq!(figures.culprits.expect("one rank is enough").ranks, [Rank(5)]);
    assert!(figures.sentences[1].starts_with("If rank 5 (stage 2, data-parallel rank 1) were as fast"));
}

#[test]
fn a_slow_stage_of_a_single_replica_is_found() {
    let slow: Factor = |stage, _, _, _| if stage == 1 { 1.5 } else { 1.0 };
    let even = Shape { replicas: 1, ..SHAPE };
    let figures = Shape { factor: slow, ..even }.figures();
    assert_eq!((figures.stage_figures[0].stage, figures.workers[0].rank), (1, Rank(1)));
    close(figures.stage_figures[0].repaired_ms, even.step_ms(), 0.01);
    close(figures.workers[0].repaired_ms.expect("it is simulated"), even.step_ms(), 0.01);
}

#[test]
fn a_last_stage_with_more_layers_is_found() {
    let figures = Shape { more: |stage| if stage == 3 { 2 } else { 0 }, ..SHAPE }.figures();
    assert_eq!(figures.stage_figures[0].stage, 3);
    close(figures.stage_figures[0].repaired_ms, SHAPE.step_ms(), 0.01);
    assert!(figures.m_s > Some(0.5), "{:?}", figures.m_s);
    let stage = figures.losses().into_iter().find(|loss| loss.cause == Cause::Stage).expect("a loss");
    assert_eq!(stage.stage, Some(3));
}

#[test]
fn a_stage_of_many_ranks_is_the_cause_and_no_small_group_is_sought() {
    let more = |stage| if stage == 3 { 2 } else { 0 };
    let figures = Shape { more, replicas: 17, ..SHAPE }.figures();
    let words = figures.sentences.join(" ");
    assert!(figures.culprits.is_none() && words.contains("If stage 3 were as fast"), "{words}");
    assert!(!words.contains("No small group"), "{words}");
}

#[test]
fn sequences_of_different_lengths_are_found() {
    // The lengths of a step have the same mean in every order.
    let long: Factor = |_, replica, step, microbatch| {
        [0.5, 1.5, 0.7, 1.3, 1.1, 0.9][(microbatch * 5 + step + 2 * replica) % 6]
    };
    let figures = Shape { factor: long, ..SHAPE }.figures();
    let length = figures.sequence_length.expect("it has microbatches");
    assert!(length.is_likely && length.correlation > 0.99 && length.variation > 0.3, "{length:?}");
    close(figures.step.ideal_ms, SHAPE.step_ms(), 0.01);
    assert!(figures.sentences.iter().any(|text| text.starts_with("Batches of different sequence lengths")));
}

#[test]
fn without_a_collective_of_all_ranks_messages_align_the_clocks() {
    // The last stage ends its steps long before the first.
    let shape = Shape { has_norm: false, replicas: 1, ..SHAPE };
    let slow: Factor = |stage, _, _, _| if stage == 2 { 1.5 } else { 1.0 };
    let figures = Shape { factor: slow, ..shape }.figures();
    close(figures.step.measured_ms, Shape { factor: slow, ..shape }.step_ms(), 1e-3);
    close(figures.step.simulated_ms, figures.step.measured_ms, 0.01);
    close(figures.stage_figures[0].repaired_ms, shape.step_ms(), 0.01);
    let replicas = Shape { has_norm: false, ..SHAPE };
    close(replicas.figures().step.simulated_ms, replicas.step_ms(), 0.01);
}

#[test]
fn a_send_into_a_buffer_does_not_wait_for_its_receive() {
    // While the second stage computes a long microbatch, the first one continues with short ones.
    // The microbatches are other ones in each step, so each is also one for which the second stage waits.
    let alternating: Factor = |stage, _, step, microbatch| match (stage, (microbatch + step) % 3) {
        (0, 2) | (1, 0) => 4.0,
        _ => 0.5,
    };
    let shape = Shape { factor: alternating, is_gpipe: true, stages: 2, ..SHAPE };
    let job = Scheduled { is_buffered: true, ..shape.job() };
    assert!(job.step_ms() < 0.95 * shape.step_ms(), "{} {}", job.step_ms(), shape.step_ms());
    close(figures(&job).step.simulated_ms, job.step_ms(), 0.01);
    close(shape.figures().step.simulated_ms, shape.step_ms(), 1e-3);
}
