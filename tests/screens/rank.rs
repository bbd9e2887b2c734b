//! One rank alone.

use xpu_shared::{
    collective::Operation,
    datatype::DataType,
    frame::{Body, CollectiveTotals, Frame, GemmTotals, RankDetail, Summary},
    gemm::{ComputeType, GemmShape},
    histogram::Histogram,
    id::{CommunicatorId, Rank},
    unit::Nanoseconds,
};
use xpu_top::action::Effect;

use crate::{golden, one_slow};

/// What a rank says whole, once it is asked.
fn detail() -> Summary {
    let durations = |microseconds: u64| {
        let mut durations = Histogram::new();
        (0..100).for_each(|n| durations.record(Nanoseconds((microseconds * 1_000) * (1_000 + n) / 1_000)));
        durations
    };
    let gemm = |(m, n, k), count: u64| {
        let (datatype, compute) = (DataType::Bfloat16, ComputeType::Float32);
        let shape = GemmShape { m, n, k, batch: 1, datatype, compute, transposed: (true, false) };
        let (timed, each) = (count / 16, (shape.flops() / 490e6) as u64);
        let timed_for = Nanoseconds(timed * each * 1_000);
        GemmTotals { shape, count, timed, timed_for, durations: durations(each) }
    };
    let collective = |operation, bytes, count, microseconds| CollectiveTotals {
        communicator: CommunicatorId(0x9ca7_92c9_0000_0001 ^ 7),
        operation,
        datatype: DataType::Bfloat16,
        bytes,
        count,
        timed: count / 4,
        timed_for: Nanoseconds(count / 4 * microseconds * 1_000),
        durations: durations(microseconds),
    };
    Summary {
        gemms: vec![
            gemm((8192, 28_672, 8192), 574_080),
            gemm((28_672, 8192, 8192), 574_080),
            gemm((8192, 10_240, 8192), 287_040),
            gemm((8192, 8192, 8192), 287_040),
        ],
        collectives: vec![
            collective(Operation::AllReduce, 64 << 20, 71_760, 395),
            collective(Operation::AllGather, 16 << 20, 17_940, 121),
            collective(Operation::ReduceScatter, 16 << 20, 17_940, 118),
        ],
        ..Summary::default()
    }
}

#[test]
fn a_rank_alone_shows_its_shapes_and_sizes() {
    let mut lab = one_slow();
    let job = lab.simulation().job.clone();
    // Nothing is selected: it is the rank that stands out.
    lab.keys("<Enter>").screen(132, 40).shows("GEMMs rank 37 (gpu-005").shows("waiting for its next summary");
    assert_eq!(lab.effects(), [Effect::WatchRanks(Some((job.clone(), [Rank(37)].into())))]);
    let body = Body::Detail(RankDetail { job: job.clone(), rank: Rank(37), summary: detail() });
    let frame = Frame { body, ..lab.simulation().digests(1).remove(4) };
    lab.arrive(vec![frame]);
    let screen = lab.screen(132, 40);
    screen.shows(" 416 ").shows("71,760  337").hides("416.");
    golden("rank", &screen);
    lab.screen(80, 24).shows("8192x28672x8192 bf16 TN").shows("AllReduce").shows("64 MiB");
    lab.keys("j").screen(132, 40).shows("GEMMs rank 38").shows("waiting");
    lab.keys("<Esc>").screen(132, 40).shows("TFLOPS history");
    let after = [Effect::WatchRanks(Some((job, [Rank(38)].into()))), Effect::WatchRanks(None)];
    assert_eq!(lab.effects()[1..], after);
}
