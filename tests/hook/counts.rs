//! Counting: every launch counts once, under the shape that the caller gave.

use std::collections::{BTreeMap, BTreeSet};

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::Launches,
    gemm::{ComputeType, GemmShape},
    sampling::Rate,
};

use crate::{Job, shape};

#[test]
fn every_launch_is_counted_once() {
    let job = Job::alone(
        "gemm=16",
        "
comm = communicator()
for _ in range(1000): ok(gemm_ex(512, 512, 512))
for _ in range(200): ok(kernel())
for _ in range(70): ok(all_reduce(comm, 1024))
for _ in range(30): ok(bcast(comm, 2048))
for _ in range(10):
    with Group():
        ok(all_reduce(comm, 4096))
        with Group():
            ok(all_gather(comm, 8192))
        ok(send(comm, 16, 0))
        ok(receive(comm, 16, 0))
sync()
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let launches = Launches {
        kernels: 200,
        graphs: 0,
        gemms: 1000,
        collectives: 70 + 30 + 20,
        point_to_point: 20,
        ..Launches::default()
    };
    assert_eq!(said.launches(), launches);
    let counts: BTreeMap<_, _> =
        said.collectives().into_iter().map(|(key, totals)| (key, totals.count)).collect();
    let expected = [
        ((Operation::AllReduce, 2 * 1024), 70),
        ((Operation::AllReduce, 2 * 4096), 10),
        ((Operation::AllGather, 4 * 8192), 10),
        ((Operation::Broadcast, 2 * 2048), 30),
        ((Operation::Send, 32), 10),
        ((Operation::Recv, 32), 10),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
    let gemms = said.gemms();
    let gemm = &gemms[&shape([512, 512, 512], DataType::Bfloat16, (false, false))];
    let timed = (0..1000).filter(|&number| Rate(4).times(number)).count() as u64;
    assert_eq!((gemms.len(), gemm.count, gemm.timed), (1, 1000, timed));
    let health = &said.summaries.last().unwrap().hook;
    assert_eq!((health.dropped_records, health.untimed, health.blind.len()), (0, 0, 0));
    job.end();
}

#[test]
fn shapes_types_and_transposition_are_in_the_callers_terms() {
    let job = Job::alone(
        "gemm=1",
        "
ok(gemm_ex(256, 128, 64, a=1))
ok(gemm_ex(256, 128, 64, b=1, dtype=FLOAT, compute=COMPUTE_TF32))
ok(strided(96, 80, 48, batch=12))
ok(sgemm(33, 44, 55))
ok(matmul(640, 320, 160))
ok(matmul(640, 320, 160, a=1))
ok(matmul(640, 320, 160, b=1, batch=3))
ok(matmul(640, 320, 160, a=1, b=1))
assert gemm_ex(-1, 5, 5) != 0
sync()
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let bf16 = DataType::Bfloat16;
    let tf32 = ComputeType::Float32FastTf32;
    let expected = [
        shape([256, 128, 64], bf16, (true, false)),
        GemmShape { compute: tf32, ..shape([256, 128, 64], DataType::Float32, (false, true)) },
        GemmShape {
            batch: 12,
            compute: ComputeType::Float16,
            ..shape([96, 80, 48], DataType::Float16, (false, true))
        },
        shape([33, 44, 55], DataType::Float32, (false, false)),
        shape([640, 320, 160], bf16, (false, false)),
        shape([640, 320, 160], bf16, (true, false)),
        GemmShape { batch: 3, ..shape([640, 320, 160], bf16, (false, true)) },
        shape([640, 320, 160], bf16, (true, true)),
    ];
    let gemms = said.gemms();
    assert_eq!(gemms.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    assert!(gemms.values().all(|totals| (totals.count, totals.timed) == (1, 1)), "{gemms:?}");
    let flops: f64 = gemms.keys().map(GemmShape::flops).sum();
    let lt = 640.0 * 320.0 * 160.0 * (1.0 + 1.0 + 3.0 + 1.0);
    assert_eq!(
        flops,
        2.0 * (2.0 * 256.0 * 128.0 * 64.0 + 12.0 * 96.0 * 80.0 * 48.0 + 33.0 * 44.0 * 55.0 + lt)
    );
    job.end();
}

/// One message holds 128 shapes.
#[test]
fn many_shapes_are_all_reported() {
    let job = Job::alone(
        "gemm=1",
        "
for _ in range(2):
    for n in range(500): ok(gemm_ex(64 + n, 64, 64))
    sync()
    time.sleep(0.1)
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let totals: Vec<_> = said.gemms().into_values().map(|totals| (totals.count, totals.timed)).collect();
    assert_eq!(totals.len(), 500);
    let untimed = said.summaries.last().unwrap().hook.untimed;
    assert!(totals.iter().all(|&(count, timed)| count == 2 && timed <= 2));
    assert_eq!(totals.iter().map(|(_, timed)| timed).sum::<u64>() + untimed, 1000);
    job.end();
}

#[test]
fn a_call_that_fails_has_no_number() {
    let script = "
comm = communicator()
for _ in range(5): ok(all_reduce(comm, 1000))
assert all_reduce(comm, 1000, NCCL_NONSENSE) != 0
assert all_reduce(None, 1000) != 0
with Group():
    ok(all_reduce(comm, 1000))
    assert all_reduce(comm, 1000, NCCL_NONSENSE) != 0
for _ in range(5): ok(all_reduce(comm, 1000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        assert_eq!(said.launches().collectives, 11);
        let numbers: Vec<u64> = said.samples().iter().map(|sample| sample.sequence.0).collect();
        assert_eq!(numbers, (0..11).collect::<Vec<_>>());
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (11, 11, 11));
    }
    job.end();
}

#[test]
fn operations_in_a_graph_capture_are_counted_and_not_timed() {
    let script = "
comm = communicator()
ok(gemm_ex(1024, 1024, 1024))
ok(all_reduce(comm, 1000))
def work():
    for _ in range(10): ok(gemm_ex(1024, 1024, 1024))
    for _ in range(3): ok(all_reduce(comm, 1000))
    with Group():
        for _ in range(2): ok(all_reduce(comm, 1000))
graph = capture(work)
for _ in range(4): ok(graph())
ok(gemm_ex(1024, 1024, 1024))
ok(all_reduce(comm, 1000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "gemm=1,collective=1")], script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        let launches = said.launches();
        assert_eq!((launches.gemms, launches.collectives, launches.graphs), (2 + 4 * 10, 2 + 4 * 5, 4));
        assert_eq!(launches.captured, 15);
        let health = &said.summaries.last().unwrap().hook;
        assert_eq!((health.untimed, health.dropped_records), (0, 0), "no event was asked for and refused");
        let gemm = &said.gemms()[&shape([1024, 1024, 1024], DataType::Bfloat16, (false, false))];
        assert_eq!((gemm.count, gemm.timed), (2 + 4 * 10, 2));
        let numbers: Vec<u64> = said.samples().iter().map(|sample| sample.sequence.0).collect();
        assert_eq!(numbers, [0, 1 + 4 * 5]);
    }
    job.end();
}
