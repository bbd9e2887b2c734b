//! Sends and receives between ranks: alone, in groups, and together with collectives.

use std::collections::BTreeMap;

use xpu_wire::{collective::Operation, datatype::DataType};

use crate::Job;

const EVERY: &[(&str, &str)] = &[("XPU_TOP_SAMPLE", "collective=1")];

/// The number of calls and of timed calls, by operation and size.
fn totals(job: &Job, rank: usize) -> BTreeMap<(Operation, u64), (u64, u64)> {
    let said = job.after_step(rank, 1);
    said.collectives().into_iter().map(|(key, totals)| (key, (totals.count, totals.timed))).collect()
}

#[test]
fn every_nccl_operation_is_counted_and_timed_by_its_name() {
    let script = "
comm = communicator()
ok(all_to_all(comm, 100))
ok(gather(comm, 200))
ok(scatter(comm, 300))
ok(put_signal(comm, 400, 1 - RANK))
ok(signal(comm, 1 - RANK))
ok(wait_signal(comm, 1 - RANK))
sync()
step(1)
hold()";
    let job = Job::of(2, EVERY, script);
    for rank in [0, 1] {
        let expected = [
            ((Operation::AlltoAll, 2 * 400), (1, 1)),
            ((Operation::Gather, 2 * 800), (1, 1)),
            ((Operation::Scatter, 2 * 1200), (1, 1)),
            ((Operation::PutSignal, 1600), (1, 1)),
            ((Operation::Signal, 0), (1, 1)),
            ((Operation::WaitSignal, 0), (1, 1)),
        ];
        assert_eq!(totals(&job, rank), BTreeMap::from(expected), "rank {rank}");
        let said = job.after_step(rank, 1);
        assert_eq!((said.launches().collectives, said.launches().point_to_point), (3, 3));
        let samples: Vec<_> =
            said.samples().iter().map(|one| (one.sequence.0, one.operation, one.bus_bytes)).collect();
        let over_the_bus =
            [(0, Operation::AlltoAll, 400), (1, Operation::Gather, 800), (2, Operation::Scatter, 1200)];
        assert_eq!(samples, over_the_bus, "one-sided ones are compared with no other rank");
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.point_to_point), (3, 3, 3));
    }
    job.end();
}

/// The collectives that take a configuration since NCCL 2.31. If NCCL refuses one, its error reaches the
/// program.
#[test]
fn collectives_with_a_configuration_are_counted_and_timed_like_others() {
    let script = "
comm = communicator()
watched = ctypes.CDLL(None, use_errno=True)

def configured(name, *more, count=100, dtype=NCCL_FLOAT):
    call = getattr(watched, f'nccl{name}Config')
    ctypes.set_errno(42)
    code = call(memory, memory, c_size_t(count), dtype, *more, comm, stream, None)
    assert ctypes.get_errno() == 42
    return code

ok(configured('AllReduce', 0))
ok(configured('AllGather'))
ok(configured('ReduceScatter', 0))
ok(configured('Broadcast', 0))
ok(configured('Reduce', 0, 0))
ok(configured('AlltoAll'))
ok(configured('Gather', 0))
ok(configured('Scatter', 0))
assert configured('AllReduce', 0, dtype=NCCL_NONSENSE) == 4
sync()
step(1)
hold()";
    let job = Job::of(2, EVERY, script);
    for rank in [0, 1] {
        let expected = [
            ((Operation::AllReduce, 400), (1, 1)),
            ((Operation::AllGather, 800), (1, 1)),
            ((Operation::ReduceScatter, 800), (1, 1)),
            ((Operation::Broadcast, 400), (1, 1)),
            ((Operation::Reduce, 400), (1, 1)),
            ((Operation::AlltoAll, 800), (1, 1)),
            ((Operation::Gather, 800), (1, 1)),
            ((Operation::Scatter, 800), (1, 1)),
        ];
        assert_eq!(totals(&job, rank), BTreeMap::from(expected), "rank {rank}");
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued), (8, 8));
    }
    job.end();
}

#[test]
fn sends_and_receives_of_a_group_are_one_operation() {
    let script = "
comm = communicator()
others = [peer for peer in range(WORLD) if peer != RANK]
def exchange(sent, received):
    with Group():
        for count, peer in sent: ok(send(comm, count, peer))
        for count, peer in received: ok(receive(comm, count, peer))
for _ in range(3): exchange([(1000, peer) for peer in range(WORLD)], [(1000, peer) for peer in range(WORLD)])
exchange([(500, peer) for peer in others], [(500, peer) for peer in others])
# Each to the next, as in a pipeline.
exchange([(70, (RANK + 1) % WORLD)], [(70, (RANK - 1) % WORLD)])
# Uneven: rank r sends r + 1 to each.
exchange([(RANK + 1, peer) for peer in others], [(peer + 1, peer) for peer in others])
with Group():
    if RANK == 0: ok(send(comm, 9, 1))
    if RANK == 1: ok(receive(comm, 9, 0))
sync()
step(1)
hold()";
    let job = Job::of(3, EVERY, script);
    for rank in 0..3 {
        let totals = totals(&job, rank);
        assert_eq!(totals[&(Operation::Send, 2000)], (9, 0), "counted one by one");
        let grouped: BTreeMap<_, _> =
            totals.iter().filter(|(_, (_, timed))| *timed > 0).map(|(key, totals)| (*key, *totals)).collect();
        let mut expected = BTreeMap::from([
            // The bytes that `ncclAlltoAll` is documented to move, which include the rank's own part.
            ((Operation::AlltoAll, 3 * 2000), (3, 3)),
            ((Operation::AlltoAll, 3 * 1000), (1, 1)),
            ((Operation::SendRecv, 140), (1, 1)),
            // The larger direction: the rank sends twice its own size, and receives the sizes of the other
            // two ranks.
            ((Operation::SendRecv, [2 * 5, 2 * 4, 2 * 6][rank]), (1, 1)),
        ]);
        match rank {
            0 => drop(expected.insert((Operation::Send, 18), (1, 1))),
            1 => drop(expected.insert((Operation::Recv, 18), (1, 1))),
            _ => {}
        }
        assert_eq!(grouped, expected, "rank {rank}");
        let said = job.after_step(rank, 1);
        let mut messages: Vec<_> = said
            .samples()
            .iter()
            .map(|one| (one.operation, one.peer, one.sequence.0, one.bus_bytes))
            .collect();
        messages.sort();
        // Only groups with one message each way report their messages. Four messages of each pair came
        // before, in other groups.
        let (next, last) = (Some((rank as u32 + 1) % 3), Some((rank as u32 + 2) % 3));
        let mut ends = vec![(Operation::Send, next, 4, 140), (Operation::Recv, last, 4, 140)];
        match rank {
            0 => ends.push((Operation::Send, Some(1), 6, 18)),
            1 => ends.push((Operation::Recv, Some(0), 6, 18)),
            _ => {}
        }
        ends.sort();
        assert_eq!(messages, ends, "rank {rank}");
        assert!(said.collectives().values().all(|totals| totals.datatype == DataType::Bfloat16));
        assert_eq!(said.summaries.last().expect("one").hook.untimed, 0);
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.completed), (0, 0));
    }
    job.end();
}

#[test]
fn sends_beside_collectives_in_a_group_are_fused_with_them() {
    let script = "
comm = communicator()
for _ in range(2):
    with Group():
        ok(send(comm, 1000, 1 - RANK))
        ok(receive(comm, 1000, 1 - RANK))
        ok(all_reduce(comm, 500))
with Group():
    ok(all_reduce(comm, 500))
sync()
step(1)
hold()";
    let job = Job::of(2, EVERY, script);
    for rank in [0, 1] {
        let samples: Vec<_> = job
            .after_step(rank, 1)
            .samples()
            .iter()
            .map(|one| (one.sequence.0, one.operation, one.bus_bytes))
            .collect();
        let fused = |number| (number, Operation::Fused, 1000 + 2000);
        assert_eq!(samples, [fused(0), fused(1), (2, Operation::AllReduce, 1000)]);
        assert_eq!(job.ledger(rank).ledger().read().communicators[0].completed, 3);
    }
    job.end();
}

#[test]
fn a_group_that_is_only_simulated_launches_nothing() {
    let script = "
comm = communicator()
ok(all_reduce(comm, 1000))
ok(process.ncclGroupStart())
for _ in range(5): ok(all_reduce(comm, 1000))
ok(send(comm, 1000, 1 - RANK))
ok(process.ncclGroupSimulateEnd(None))
ok(all_reduce(comm, 1000))
sync()
step(1)
hold()";
    let job = Job::of(2, EVERY, script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        assert_eq!((said.launches().collectives, said.launches().point_to_point), (2, 0));
        let numbers: Vec<_> = said.samples().iter().map(|sample| sample.sequence.0).collect();
        assert_eq!(numbers, [0, 1]);
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued), (2, 2));
    }
    job.end();
}

/// Stage 0 sends activations and receives gradients; forward and backward passes alternate.
#[test]
fn both_ends_time_the_same_messages() {
    let script = "
comm = communicator()
other = 1 - RANK
# Messages to itself: now its own numbers are others than those of the other rank.
for _ in range(3 if RANK == 0 else 0):
    with Group():
        ok(send(comm, 10, RANK))
        ok(receive(comm, 10, RANK))
for _ in range(100):
    if RANK == 0: ok(send(comm, 1 << 23, other))
    if RANK == 1: ok(receive(comm, 1 << 23, other))
    with Group():
        ok(send(comm, 1 << 22, other))
        ok(receive(comm, 1 << 22, other))
    if RANK == 1: ok(send(comm, 1 << 22, other))
    if RANK == 0: ok(receive(comm, 1 << 22, other))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=8"), ("SIMGPU_BUS_GB_S", "100")], script);
    let [one, other] = [0, 1].map(|rank: u32| -> BTreeMap<_, _> {
        let ends = job.after_step(rank as usize, 1).samples().into_iter().filter_map(|sample| {
            let peer = sample.peer?;
            let route = if sample.operation == Operation::Send { (rank, peer) } else { (peer, rank) };
            Some(((route, sample.sequence.0), (sample.bus_bytes, sample.duration.0)))
        });
        ends.collect()
    });
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    assert!(one.len() > 20, "{} messages", one.len());
    let rate = |(end, (bytes, took)): (_, &(u64, u64))| *bytes as f64 / *took.min(&other[end].1) as f64;
    let mut rates: Vec<_> = one.iter().map(rate).collect();
    rates.sort_by(f64::total_cmp);
    // The rate without the wait for the other end. On a busy host a launch may be late, so the median is
    // compared.
    let gb_s = rates[rates.len() / 2];
    assert!((gb_s / 100.0 - 1.0).abs() < 0.1, "{gb_s} GB/s");
    job.end();
}
