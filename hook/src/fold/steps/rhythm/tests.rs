use xpu_shared::sampling::priority;

use super::*;

/// An operation by its number, with so many products before it.
fn op(name: u32, gemms: u32) -> Op {
    Op { gemms, name }
}

/// Four buckets of three sizes; the forward pass comes before the first.
fn data_parallel() -> Vec<Op> {
    vec![op(1, 112), op(2, 20), op(2, 20), op(3, 16)]
}

/// Parameters gathered layer by layer, forwards and backwards, and gradients scattered.
fn sharded(layers: u32) -> Vec<Op> {
    let forward = (0..layers).map(|layer| op(10 + u32::from(layer == 0), 6));
    let backward = (0..layers).flat_map(|layer| [op(10 + u32::from(layer + 1 == layers), 4), op(20, 8)]);
    forward.chain(backward).collect()
}

/// Activations summed twice a layer, then as often for the gradients, then the gradients' norm.
fn tensor_parallel(layers: u32) -> Vec<Op> {
    let forward = (0..layers).flat_map(|_| [op(1, 2), op(1, 3)]);
    let backward = (0..layers).flat_map(|_| [op(1, 4), op(1, 6)]);
    forward.chain(backward).chain([op(9, 0)]).collect()
}

/// Warm-up, one forward and one backward in turn, cool-down; then the gradients.
fn pipeline(micro_batches: u32) -> Vec<Op> {
    let forward = || [op(30, 0), op(31, 12)];
    let backward = || [op(32, 0), op(33, 24)];
    let mut step: Vec<_> = (0..3).flat_map(|_| forward()).collect();
    step.extend((3..micro_batches).flat_map(|_| forward().into_iter().chain(backward())));
    step.extend((0..3).flat_map(|_| backward()));
    step.extend([op(40, 0), op(41, 0)]);
    step
}

/// Plays a sequence, one operation a millisecond, and gives the rhythm and all ends of steps it told.
fn play(ops: impl IntoIterator<Item = Op>) -> (Rhythm, Vec<Ended>) {
    let mut rhythm = Rhythm::new().unwrap();
    let ended = ops.into_iter().enumerate().filter_map(|(at, op)| rhythm.take(op, at as u64)).collect();
    (rhythm, ended)
}

fn repeated(step: &[Op], times: usize) -> Vec<Op> {
    step.iter().copied().cycle().take(step.len() * times).collect()
}

/// What comes before the first step: parameters sent from rank 0, kernels chosen.
fn start() -> Vec<Op> {
    (0..37).map(|n| op(100 + n % 5, n * n % 7)).collect()
}

#[test]
fn the_step_of_each_parallelism_is_found_and_has_its_length() {
    for (what, step) in [
        ("data parallel", data_parallel()),
        ("sharded", sharded(32)),
        ("deeply sharded", sharded(96)),
        ("tensor parallel", tensor_parallel(80)),
        ("pipeline", pipeline(16)),
        ("one operation", vec![op(5, 40)]),
    ] {
        let (rhythm, ended) = play([start(), repeated(&step, 60)].concat());
        assert_eq!(rhythm.period(), Some(step.len()), "{what}");
        let last = ended.last().unwrap();
        assert_eq!(last.took, Some(step.len() as u64), "{what}");
        assert!((55..=61).contains(&last.completed), "{what}: {last:?} of 60");
    }
}

/// Ranks whose hook began to look at different moments.
#[test]
fn the_period_and_its_beginning_are_the_same_wherever_one_begins_to_look() {
    for step in [data_parallel(), sharded(12), tensor_parallel(10), pipeline(9)] {
        let ops = repeated(&step, 80);
        let found = |from: usize| {
            let (rhythm, ended) = play(ops[from..].iter().copied());
            let locked = rhythm.locked.unwrap();
            let last = ended.last().unwrap();
            (locked.lag, locked.first, last.at + from as u64)
        };
        let first = found(0);
        assert_eq!(first.0, step.len());
        for from in 1..step.len() {
            assert_eq!(found(from), first, "from operation {from}");
        }
    }
}

#[test]
fn ranks_that_see_the_same_count_alike() {
    let ops = [start(), repeated(&sharded(20), 40)].concat();
    assert_eq!(play(ops.clone()).1, play(ops).1);
}

#[test]
fn a_log_entry_now_and_then_is_no_step() {
    let step = data_parallel();
    let mut ops = Vec::new();
    for number in 1..400 {
        ops.extend(&step);
        if number % 20 == 0 {
            ops.push(op(77, 0));
        }
    }
    let (rhythm, ended) = play(ops);
    assert_eq!(rhythm.period(), Some(4));
    let last = ended.last().unwrap();
    assert!((390..=400).contains(&last.completed), "{last:?}");
    assert!(ended.iter().filter_map(|ended| ended.took).all(|took| took == 4 || took == 5));
}

#[test]
fn micro_batches_with_one_norm_are_one_step() {
    let step: Vec<_> = repeated(&sharded(8), 4).into_iter().chain([op(50, 0)]).collect();
    let (rhythm, ended) = play(repeated(&step, 60));
    assert_eq!(rhythm.period(), Some(step.len()));
    assert_eq!(ended.last().unwrap().took, Some(step.len() as u64));
}

#[test]
fn an_evaluation_interrupts_and_its_passes_are_no_steps() {
    let step = sharded(12);
    let evaluation: Vec<_> = (0..12).map(|_| op(10, 6)).collect();
    let mut ops = Vec::new();
    for _ in 0..6 {
        ops.extend(repeated(&step, 100));
        ops.extend(repeated(&evaluation, 7));
    }
    let mut rhythm = Rhythm::new().unwrap();
    let mut ended = Vec::new();
    for (at, op) in ops.into_iter().chain(repeated(&step, 20)).enumerate() {
        ended.extend(rhythm.take(op, at as u64));
        if at == 50 * step.len() {
            rhythm.trust();
        }
    }
    assert_eq!(rhythm.period(), Some(step.len()));
    let last = ended.last().unwrap();
    assert!((590..=640).contains(&last.completed), "{last:?} of 620");
    let odd = ended.iter().filter(|ended| ended.took.is_some_and(|took| took != step.len() as u64)).count();
    assert!(odd <= 60, "{odd} of {}", ended.len());
}

#[test]
fn products_that_differ_from_step_to_step_do_not_hide_the_period() {
    let step = sharded(12);
    let ops = (0..step.len() * 60).map(|n| {
        let Op { name, gemms } = step[n % step.len()];
        op(name, gemms + (priority(n as u64) % 5) as u32)
    });
    assert_eq!(play(ops).0.period(), Some(step.len()));
}

#[test]
fn what_does_not_repeat_has_no_period() {
    for kinds in [3, 5, 17, 400] {
        for seed in 0..10 {
            let random = |n: u64| op((priority(n ^ seed << 40) % kinds) as u32, (priority(n) % 3) as u32);
            let (_, ended) = play((0..20_000).map(random));
            assert_eq!(ended, [], "{kinds} kinds, seed {seed}");
        }
    }
}

#[test]
fn it_holds_no_more_than_it_may() {
    let (mut rhythm, _) = play((0..100_000).map(|n| op(n, 0)));
    assert!(rhythm.memory() <= 256 << 10, "{}", rhythm.memory());
    let step = sharded(16);
    let found = repeated(&step, 8).into_iter().filter_map(|op| rhythm.take(op, 0)).count();
    assert!(found > 0 || rhythm.look_at > rhythm.seen, "it goes on looking");
}
