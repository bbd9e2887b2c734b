//! Tests with programs as sequences of launches, one for each kind of training loop.

use super::*;

const MS: u64 = 1_000_000;

/// The difference between the names of two launches that differ only in size.
const OTHER_SIZES: u32 = 10_000;

/// A launch without its time.
#[derive(Clone, Copy)]
struct Op(u32, Kind, u64);

fn gemm(name: u32) -> Op {
    Op(1000 + name, Kind::Gemm, 0)
}

fn kernel(name: u32, threads: u64) -> Op {
    Op(2000 + name, Kind::Kernel, threads)
}

fn reduce(name: u32) -> Op {
    Op(3000 + name, Kind::Collective, 100_000_000)
}

/// The sum of one figure over all ranks.
fn figure() -> Op {
    Op(3999, Kind::Collective, 4)
}

fn batch() -> Op {
    Op(4000, Kind::Copy, 1_000_000)
}

fn graph(name: u32) -> Op {
    Op(5000 + name, Kind::Graph, 0)
}

/// The forward pass of blocks with the same two GEMMs; the backward pass has twice as many.
fn forward(blocks: u32) -> Vec<Op> {
    (0..blocks).flat_map(|_| [gemm(1), kernel(1, 1_000_000), gemm(2), kernel(2, 1_000_000)]).collect()
}

fn backward(blocks: u32, bucket: Option<u32>) -> Vec<Op> {
    let block = [gemm(3), gemm(4), kernel(3, 1_000_000), gemm(5), gemm(6)];
    (0..blocks).flat_map(|_| block.into_iter().chain(bucket.map(reduce))).collect()
}

/// The loss and its gradient.
fn loss() -> Vec<Op> {
    vec![kernel(10, 100_000), kernel(11, 100_000)]
}

/// One kernel for each parameter; all kernels are equal.
fn optimizer(parameters: u32) -> Vec<Op> {
    (0..parameters).map(|_| kernel(20, 100_000)).collect()
}

/// The extents of a GEMM of two layers: forward, and backward for activations and weights. Other sizes have
/// more tokens.
fn extents(name: u32) -> [u32; 3] {
    let tokens = 64 + name / OTHER_SIZES;
    match name % OTHER_SIZES {
        1001 | 1003 => [512, tokens, 256],
        1002 | 1005 => [256, tokens, 512],
        1004 => [512, 256, tokens],
        1006 => [256, 512, tokens],
        _ => Launch::UNKNOWN,
    }
}

/// Runs steps of 50 ms each, whatever their contents. `step` gets the step number. Returns the log.
fn play(steps: usize, step: impl FnMut(usize) -> Vec<Op>) -> Log {
    play_at(50 * MS, steps, step)
}

/// Like `play`, with steps that take `took` nanoseconds.
fn play_at(took: u64, steps: usize, mut step: impl FnMut(usize) -> Vec<Op>) -> Log {
    let mut log = Log::default();
    for number in 0..steps {
        let ops = step(number);
        for (place, Op(name, kind, weight)) in ops.iter().copied().enumerate() {
            let at = number as u64 * took + place as u64 * took / ops.len() as u64;
            assert!(log.push(Launch {
                name,
                form: name % OTHER_SIZES,
                kind,
                weight,
                extents: extents(name),
                at
            }));
        }
    }
    log
}

/// The number of launches in a step, if known.
fn launches(log: &Log) -> Option<u32> {
    find(log).map(|period| period.launches)
}

/// The number of launches without copies.
fn hard(ops: &[Op]) -> u32 {
    ops.iter().filter(|op| op.1 != Kind::Copy).count() as u32
}

fn every_step(steps: usize, step: &[Op]) -> Option<u32> {
    launches(&play(steps, |_| step.to_vec()))
}

fn random(n: usize, most: usize) -> usize {
    (xpu_wire::sampling::priority(n as u64) % most as u64) as usize
}

#[test]
fn equal_blocks_and_equal_buckets_are_no_steps() {
    let by_hand: Vec<Op> = [forward(8), backward(8, Some(1)), optimizer(8)].concat();
    assert_eq!(every_step(200, &by_hand), Some(hard(&by_hand)));
    let with_loss: Vec<Op> =
        [vec![batch()], forward(24), loss(), backward(24, Some(1)), optimizer(48)].concat();
    assert_eq!(every_step(200, &with_loss), Some(hard(&with_loss)));
    let copied: Vec<Op> = [vec![batch()], [gemm(1), reduce(1)].repeat(8)].concat();
    assert_eq!(every_step(200, &copied), Some(hard(&copied)));
    let ten: Vec<Op> = [vec![gemm(1); 10], vec![reduce(1)]].concat();
    assert_eq!(every_step(200, &ten), Some(hard(&ten)));
}

/// Gradient descent without layers. Every twentieth step reads the largest value of the fit.
#[test]
fn an_occasional_statistic_of_a_tensor_makes_no_longer_step() {
    let step = [gemm(1), kernel(1, 500_000), gemm(2), kernel(2, 260_000), kernel(3, 260_000)];
    let figure = [kernel(4, 260_000), kernel(5, 500)];
    for every in [8, 10, 20, 50] {
        let all = play_at(MS / 2, 30_000, |number| {
            let mut ops = step.to_vec();
            if (number + 1) % every == 0 {
                ops.extend(figure);
            }
            ops
        });
        let found = launches(&all);
        assert!(found.is_none_or(|found| found == step.len() as u32), "every {every}: {found:?}");
    }
}

#[test]
fn an_alternation_is_not_taken_for_a_step() {
    assert_eq!(every_step(400, &[gemm(1), reduce(1)]), None);
    assert_eq!(every_step(400, &[gemm(1)]), None);
    assert_eq!(every_step(400, &[kernel(1, 1_000_000), kernel(2, 1_000_000)]), None);
}

#[test]
fn micro_batches_are_no_steps_whether_they_reduce_or_not() {
    for times in [2, 3, 4, 8, 16] {
        for reducing in [true, false] {
            let micro = |last: bool| {
                let bucket = (reducing || last).then_some(1);
                [vec![batch()], forward(6), loss(), backward(6, bucket)].concat()
            };
            let mut step: Vec<Op> = (0..times).flat_map(|number| micro(number + 1 == times)).collect();
            step.extend(optimizer(12));
            assert_eq!(every_step(300, &step), Some(hard(&step)), "{times} {reducing}");
        }
    }
}

#[test]
fn evaluations_log_entries_and_the_start_are_no_steps() {
    let micro: Vec<Op> = [forward(6), loss(), backward(6, Some(1))].concat();
    let step: Vec<Op> = [micro.repeat(4), optimizer(12)].concat();
    let log = play(400, |number| {
        let mut ops = step.clone();
        if number == 0 {
            ops.splice(0..0, (0..500).map(|n| kernel(100 + n, 1_000_000)));
        }
        if number % 50 == 49 {
            ops.extend((0..7).flat_map(|_| forward(6)));
        }
        if number % 10 == 9 {
            ops.extend([kernel(50, 256), figure()]);
        }
        ops
    });
    assert_eq!(launches(&log), Some(hard(&step)));
}

#[test]
fn a_repetition_that_may_be_an_optimizer_or_a_statistic_is_not_answered() {
    let step: Vec<Op> = [forward(6), loss(), backward(6, Some(1))].concat();
    for every in [5, 10, 20, 50] {
        let log = play(40 * every, |number| {
            let mut ops = step.clone();
            if number % every == every - 1 {
                ops.extend(optimizer(12));
            }
            ops
        });
        assert_eq!(launches(&log), None, "{every}");
    }
}

/// A GEMM of a prompt of 512 tokens looks like the one for a weight of 256 by 512.
#[test]
fn a_prompt_as_long_as_a_layer_is_wide_does_not_train() {
    let mut log = Log::default();
    let pass: Vec<Op> = [vec![batch()], forward(6), vec![gemm(7)], loss()].concat();
    for number in 0..200 {
        let tokens = if number % 4 == 3 { 512 } else { 64 };
        for (place, Op(name, kind, weight)) in (0..).zip(pass.iter().copied()) {
            let extents = match name {
                1001 => [512, tokens, 256],
                1002 => [256, tokens, 512],
                1007 => [8192, tokens, 256],
                _ => Launch::UNKNOWN,
            };
            let at = (number * 50 + place) * MS;
            assert!(log.push(Launch { name, form: name, kind, weight, extents, at }));
        }
    }
    assert_eq!(find(&log).map(|period| period.trains), Some(Some(false)));
}

/// Evaluations with other kernels, and batches like those of training.
#[test]
fn evaluations_with_kernels_of_their_own_are_no_micro_batches() {
    let own: Vec<Op> = (60..66).map(|name| kernel(name, 1_000_000)).collect();
    for (reduces, parameters) in [(None, 12), (Some(1), 12), (None, 1)] {
        let step: Vec<Op> =
            [vec![kernel(40, 1_000_000)], forward(6), loss(), backward(6, reduces), optimizer(parameters)]
                .concat();
        for (every, batches) in [(4, 1), (4, 2), (8, 1), (8, 4), (10, 2), (10, 4), (16, 2), (24, 1), (24, 4)]
        {
            let log = play(600, |number| {
                let test = [forward(6), own.clone()].concat().repeat(batches);
                let is_tested = number % every == every - 1;
                [step.clone(), if is_tested { test } else { vec![] }].concat()
            });
            assert_eq!(launches(&log), Some(hard(&step)), "{reduces:?} {parameters} {every} {batches}");
        }
    }
}

/// Two backward passes, for a penalty on gradients.
#[test]
fn a_second_backward_pass_now_and_then_makes_no_longer_step() {
    let step: Vec<Op> = [forward(6), loss(), backward(6, None), optimizer(12)].concat();
    let own: Vec<Op> = (60..66).map(|name| kernel(name, 1_000_000)).collect();
    for every in [4, 8, 16] {
        let log = play(600, |number| {
            let again = [backward(6, None), own.clone()].concat();
            [step.clone(), if number % every == every - 1 { again } else { vec![] }].concat()
        });
        let found = launches(&log);
        assert!(found.is_none() || found == Some(hard(&step)), "{every}: {found:?}");
    }
}

#[test]
fn the_first_micro_batch_may_add_no_gradients() {
    let adds = |first: bool| if first { vec![] } else { vec![kernel(30, 1_000_000); 6] };
    for micro_batches in [3, 4, 8, 16] {
        let step: Vec<Op> = (0..micro_batches)
            .flat_map(|number| [forward(6), loss(), backward(6, Some(1)), adds(number == 0)].concat())
            .chain((60..68).map(|name| kernel(name, 1_000_000)))
            .collect();
        assert_eq!(every_step(300, &step), Some(hard(&step)), "{micro_batches}");
    }
}

#[test]
fn both_halves_of_an_adversarial_step_are_one() {
    let judge: Vec<Op> = [forward(4), loss(), backward(4, None), vec![kernel(20, 100_000)]].concat();
    let artist: Vec<Op> =
        [forward(4), forward(3), loss(), backward(4, None), vec![kernel(21, 100_000)]].concat();
    let step = [judge, artist].concat();
    assert_eq!(every_step(200, &step), Some(hard(&step)));
}

#[test]
fn the_stages_of_a_pipeline_have_the_same_number_of_steps() {
    let send = reduce(31);
    let receive = reduce(32);
    for micro_batches in [4, 8, 16] {
        let pass = |last: bool| {
            let forward = [
                if last { vec![receive] } else { vec![] },
                forward(3),
                if last { vec![] } else { vec![send] },
            ];
            let backward = [
                if last { loss() } else { vec![receive] },
                backward(3, None),
                if last { vec![send] } else { vec![] },
            ];
            (forward.concat(), backward.concat())
        };
        for last in [true, false] {
            let (forward, backward) = pass(last);
            let ahead = usize::from(!last);
            let mut step: Vec<Op> = forward.repeat(ahead);
            for _ in ahead..micro_batches {
                step.extend(forward.iter().chain(&backward));
            }
            step.extend(backward.repeat(ahead));
            step.extend(optimizer(6));
            assert_eq!(every_step(200, &step), Some(hard(&step)), "{micro_batches} {last}");
        }
    }
}

#[test]
fn graph_launches_are_launches() {
    assert_eq!(every_step(200, &[graph(1)]), Some(1));
    let step = [batch(), kernel(1, 100_000), graph(1), graph(1), graph(2)];
    assert_eq!(every_step(200, &step), Some(hard(&step)));
}

#[test]
fn sequences_of_different_length_are_found_without_their_sizes() {
    let step = |number: usize, by_form: bool| {
        let length = if by_form { 0 } else { random(number, 100) as u32 * OTHER_SIZES };
        let mut ops = [forward(6), backward(6, None)].concat();
        for op in &mut ops {
            op.0 += length;
        }
        [ops, loss(), optimizer(12)].concat()
    };
    assert_eq!(launches(&play(400, |number| step(number, false))), None, "no two steps are alike");
    assert_eq!(launches(&play(400, |number| step(number, true))), Some(hard(&step(0, true))));
}

/// Generates plausible programs from numbers: a step, and other work.
#[test]
fn for_any_program_the_answer_is_right_or_absent() {
    let (mut right, mut unknown) = (0, 0);
    for seed in 0..300 {
        let mut drawn = 0;
        let mut pick = |of: usize| {
            drawn += 1;
            random(seed * 1000 + drawn, of)
        };
        let blocks = 1 + pick(12) as u32;
        let micro_batches = [1, 1, 1, 1, 2, 4, 8, 16][pick(8)];
        let (reduces, always) = (pick(3) > 0, pick(2) > 0);
        let (has_loss, has_copy, parameters) = (pick(4) > 0, pick(2) > 0, [0, 1, 3, 30][pick(4)]);
        let mut step = Vec::new();
        for number in 0..micro_batches {
            let bucket = (reduces && (always || number + 1 == micro_batches)).then_some(1);
            step.extend(has_copy.then(batch));
            step.extend(forward(blocks));
            step.extend(if has_loss { loss() } else { vec![] });
            step.extend(backward(blocks, bucket));
        }
        step.extend(optimizer(parameters));
        if micro_batches > 1 && parameters == 0 {
            // The step cannot be determined.
            continue;
        }
        let (log_every, test_every, test_batches) =
            ([0, 10, 25, 100][pick(4)], [0, 0, 30, 50, 200][pick(5)], 1 + pick(20));
        let (test_blocks, other_sizes) = (blocks, pick(3) == 0);
        let log = play(500, |number| {
            let mut ops = step.clone();
            if number == 0 {
                ops.splice(0..0, (0..300).map(|n| kernel(100 + n % 40, 1_000_000)));
            }
            if log_every > 0 && number % log_every == log_every - 1 {
                ops.extend([kernel(50, 256), figure()]);
            }
            if test_every > 0 && number % test_every == test_every - 1 {
                let mut pass = forward(test_blocks);
                for op in &mut pass {
                    op.0 += if other_sizes { OTHER_SIZES } else { 0 };
                }
                ops.extend(pass.repeat(test_batches));
            }
            ops
        });
        let found = launches(&log);
        assert!(
            found.is_none() || found == Some(hard(&step)),
            "seed {seed}: {found:?}, not {:?}: {blocks} blocks, {micro_batches} micro-batches, {reduces} {always}, {has_loss} {has_copy} {parameters}, every {log_every} {test_every} {test_batches} {other_sizes}",
            hard(&step)
        );
        if found.is_some() { right += 1 } else { unknown += 1 }
    }
    assert!(unknown * 3 < right, "{right} right, {unknown} unknown");
}

#[test]
fn few_or_brief_repetitions_are_not_accepted() {
    let step: Vec<Op> = [forward(8), loss(), backward(8, Some(1)), optimizer(8)].concat();
    assert_eq!(every_step(30, &step), None);
    assert_eq!(every_step(70, &step), Some(hard(&step)), "3.5 s");
    assert_eq!(launches(&play_at(MS, 500, |_| step.clone())), None, "0.5 s");
    assert_eq!(launches(&play_at(MS, 4000, |_| step.clone())), Some(hard(&step)), "4,000 steps of 1 ms");
}

#[test]
fn calls_that_do_not_repeat_have_no_period() {
    for kinds in [3, 5, 17, 400] {
        for seed in 0..10 {
            let log = play(20_000, |n| vec![gemm(random(n ^ seed << 40, kinds) as u32)]);
            assert_eq!(launches(&log), None, "{kinds} kinds, seed {seed}");
        }
    }
}

#[test]
fn a_step_of_very_many_launches_is_found_and_little_is_held() {
    let micro: Vec<Op> = [forward(80), loss(), backward(80, Some(1))].concat();
    let step: Vec<Op> = [vec![batch()], micro.repeat(16), optimizer(400)].concat();
    let log = play(80, |_| step.clone());
    assert_eq!(launches(&log), Some(hard(&step)), "{} launches", step.len());
    assert!(log.memory() < 2 << 20, "{}", log.memory());
}
