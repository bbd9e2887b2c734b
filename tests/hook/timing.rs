//! Timing of GEMMs, of collectives alone and in groups, and of steps.

use std::collections::BTreeMap;

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    sampling::Rate,
    unit::{GigabytesPerSecond, Nanoseconds, Tflops},
};

use crate::{Job, shape};

#[test]
fn the_measured_gemm_rate_is_that_of_the_simulated_gpu() {
    let set = [("XPU_TOP_SAMPLE", "gemm=1"), ("SIMGPU_TFLOPS", "123")];
    let script = "
# The first keeps the GPU busy while the others are launched behind it.
ok(gemm_ex(16384, 8192, 8192))
for _ in range(60): ok(gemm_ex(4096, 4096, 4096))
for _ in range(60): ok(matmul(4096, 2048, 4096, a=1))
sync()
step(1)
hold()";
    let job = Job::of(1, &set, script);
    let gemms = job.after_step(0, 1).gemms();
    for (sides, transposed) in [([4096, 4096, 4096], (false, false)), ([4096, 2048, 4096], (true, false))] {
        let shape = shape(sides, DataType::Bfloat16, transposed);
        let totals = &gemms[&shape];
        assert_eq!((totals.count, totals.timed), (60, 60));
        let rate = Tflops::from_work(60.0 * shape.flops(), totals.timed_for).unwrap();
        assert!((rate.0 / 123.0 - 1.0).abs() < 0.02, "{shape}: {rate} TFLOPS");
    }
    job.end();
}

#[test]
fn all_ranks_time_the_same_collectives() {
    let set = [("XPU_TOP_SAMPLE", "collective=4"), ("SIMGPU_BUS_GB_S", "200")];
    let script = "
comm = communicator()
for _ in range(200): ok(all_reduce(comm, 64 << 20))
sync()
step(1)
hold()";
    let job = Job::of(2, &set, script);
    let [first, second] = [0, 1].map(|rank| job.after_step(rank, 1).samples());
    let chosen: Vec<u64> = (0..200).filter(|&number| Rate(2).times(number)).collect();
    assert!(chosen.len() > 30 && chosen.len() < 64, "{}", chosen.len());
    for samples in [&first, &second] {
        assert_eq!(samples.iter().map(|sample| sample.sequence.0).collect::<Vec<_>>(), chosen);
        assert!(samples.iter().all(|sample| sample.communicator == first[0].communicator));
    }
    // The shortest duration of a collective is its transfer. The rest of a longer one is waiting.
    let shortest = first.iter().zip(&second).map(|(a, b)| a.duration.min(b.duration));
    let mut rates: Vec<f64> = shortest
        .map(|duration| GigabytesPerSecond::from_work(first[0].bus_bytes as f64, duration).unwrap().0)
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    assert!((median / 200.0 - 1.0).abs() < 0.02, "{median} GB/s");
    job.end();
}

#[test]
fn a_group_is_timed_as_one() {
    let script = "
comm = communicator()
with Group():
    for count in (1000, 2000, 3000): ok(all_reduce(comm, count))
with Group():
    ok(all_reduce(comm, 4000))
ok(all_reduce(comm, 5000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        let totals: BTreeMap<_, _> =
            said.collectives().into_iter().map(|(key, totals)| (key, (totals.count, totals.timed))).collect();
        let expected = [
            ((Operation::AllReduce, 2000), (1, 0)),
            ((Operation::AllReduce, 4000), (1, 0)),
            ((Operation::AllReduce, 6000), (1, 0)),
            ((Operation::AllReduce, 8000), (1, 1)),
            ((Operation::AllReduce, 10000), (1, 1)),
            ((Operation::Fused, 12000), (1, 1)),
        ];
        assert_eq!(totals, BTreeMap::from(expected), "rank {rank}");
        let samples: Vec<_> = said
            .samples()
            .iter()
            .map(|sample| (sample.sequence.0, sample.operation, sample.bus_bytes))
            .collect();
        let expected =
            [(0, Operation::Fused, 12000), (3, Operation::AllReduce, 8000), (4, Operation::AllReduce, 10000)];
        assert_eq!(samples, expected, "rank {rank}");
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (5, 5, 5));
    }
    job.end();
}

#[test]
fn timing_does_not_lengthen_steps() {
    let job = Job::alone(
        "gemm=1",
        "
for _ in range(12):
    time.sleep(0.02)
    step()
hold()",
    );
    let said = job.after_step(0, 12);
    let durations: Vec<Nanoseconds> = said
        .summaries
        .iter()
        .filter_map(|summary| {
            summary.steps.as_ref().filter(|steps| !steps.durations.is_empty())?.durations.median()
        })
        .collect();
    let counted: u64 =
        said.summaries.iter().filter_map(|summary| Some(summary.steps.as_ref()?.durations.count())).sum();
    assert_eq!(counted, 11, "from the first mark on");
    assert!(durations.iter().all(|median| median.milliseconds() >= 19.9), "{durations:?}");
    job.end();
}
