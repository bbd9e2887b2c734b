//! One rank alone.

use xpu_client::live::WatchedRanks;
use xpu_tests::Lab;
use xpu_tui::{action::Effect, keymap::Scope, page::Page};
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{
        Blocked, BlockingCall, Body, CollectiveTotals, Frame, GemmTotals, HookHealth, RankDetail, Summary,
        Throttle, Xid,
    },
    gemm::{ComputeType, GemmShape, Routine},
    histogram::Histogram,
    id::{CommunicatorId, Rank},
    unit::Nanoseconds,
};

use crate::{USUAL, golden, golden_at, one_slow};

/// A rank's full details, on request.
fn detail() -> Summary {
    let durations = |microseconds: u64| {
        let mut durations = Histogram::new();
        (0..100).for_each(|n| durations.record(Nanoseconds((microseconds * 1_000) * (1_000 + n) / 1_000)));
        (0..2).for_each(|n| durations.record(Nanoseconds(microseconds * 1_000 * (1_400 + 100 * n) / 1_000)));
        durations
    };
    let gemm = |(m, n, k), count: u64| {
        let (datatype, compute) = (DataType::Bfloat16, ComputeType::Float32);
        let shape = GemmShape {
            m,
            n,
            k,
            batch: 1,
            datatype,
            compute,
            transposed: (true, false),
            routine: Routine::Gemm,
        };
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
        device: "NVIDIA H200".to_owned(),
        blocked: vec![Blocked {
            call: BlockingCall::StreamSynchronize,
            count: 17_940,
            waited: Nanoseconds(90_000_000_000),
            longest: Nanoseconds(41_000_000),
        }],
        hook: HookHealth { event_cost: Nanoseconds(3_100), memory: 4_928_000, ..HookHealth::default() },
        ..Summary::default()
    }
}

/// Rank 37 is selected, with full details.
fn looked_at() -> Lab {
    let mut lab = one_slow();
    lab.keys("<Enter>");
    send_detail(&mut lab, 37);
    lab
}

fn send_detail(lab: &mut Lab, rank: u32) {
    let job = lab.simulation().job.clone();
    let body = Body::Detail(RankDetail { job, rank: Rank(rank), summary: detail() });
    let frame = Frame { body, ..lab.simulation().digests(1).remove(rank as usize / 8) };
    lab.arrive(vec![frame]);
}

#[test]
fn going_back_from_a_rank_returns_to_where_it_was_opened() {
    let mut lab = one_slow();
    for (keys, scope) in [
        ("9<Enter>", Scope::Page(Page::Hosts)),
        ("7<Enter>", Scope::Page(Page::Findings)),
        ("1j<Enter>", Scope::Page(Page::Overview)),
    ] {
        assert_eq!(lab.keys(keys).app().scope(), Scope::Page(Page::Rank), "{keys}");
        // Viewing other ranks belongs to the same visit.
        assert_eq!(lab.keys("j2<Esc>").app().scope(), scope, "{keys}");
    }
}

#[test]
fn a_rank_alone_shows_its_shapes_and_sizes() {
    let mut lab = one_slow();
    let job = lab.simulation().job.clone();
    // No rank is selected, so the outlier is shown.
    let screen = lab.keys("<Enter>").screen(132, 40);
    screen.shows("Rank 37 gpu-005, pid 4037").shows("waiting for its next summary");
    golden_at("rank-waiting", USUAL, &mut lab);
    assert_eq!(
        lab.effects(),
        [Effect::WatchRanks(Some(WatchedRanks { job: job.clone(), ranks: [Rank(37)].into() }))]
    );
    send_detail(&mut lab, 37);
    let screen = lab.screen(132, 40);
    screen
        .shows("8192x28672x8192 bf16 TN")
        .shows(" 416 ")
        .shows("71,760  337")
        .hides("416.")
        .shows("spread")
        .shows("▁");
    lab.screen(80, 24).shows("8192x28672x8192 bf16 TN").shows("AllReduce").shows("64 MiB");
    lab.keys("j").screen(132, 40).shows("Rank 0").shows("waiting");
    lab.keys("<Esc>").screen(132, 40).shows("TFLOPS history");
    let after =
        [Effect::WatchRanks(Some(WatchedRanks { job, ranks: [Rank(0)].into() })), Effect::WatchRanks(None)];
    assert_eq!(lab.effects()[1..], after);
}

#[test]
fn traffic_of_its_gpu_its_processes_and_its_host_is_shown() {
    let mut lab = looked_at();
    lab.load().screen(132, 40).shows("DRAM 4").shows("over NVLink").shows("rank's CPU").shows("9 processes");
    golden("rank-load", &lab.screen(132, 40));
}

#[test]
fn a_rank_is_compared_with_those_that_do_the_same_work() {
    let mut lab = looked_at();
    let screen = lab.screen(132, 40);
    screen.shows("▲ slow").shows("among 64 ranks of the same work: 0-63");
    screen.shows("▼ 490.2     640.0     490.2 rank 37").shows("1,980 MHz").shows("NVIDIA H200");
    screen.shows("1 in 16 GEMMs, 1 in 4 collectives").shows("0.03 % of its time, 0.10 % allowed");
    golden("rank", &screen);
    for (width, height) in [(60, 20), (80, 24), (200, 60)] {
        let screen = lab.screen(width, height);
        screen.shows("Rank 37").shows("490.2").shows("GPU");
        golden(&format!("rank-{width}x{height}"), &screen);
    }
}

#[test]
fn others_are_compared_with_the_pinned_rank() {
    let mut lab = looked_at();
    lab.keys("p").screen(132, 40).shows("rank 37 is pinned: others are compared with it").shows("pinned");
    let screen = lab.keys("j").screen(132, 40);
    screen.shows("beside rank 37").shows("difference").shows("+149.2").shows("+30.4 %");
    golden_at("rank-pinned", USUAL, &mut lab);
    lab.keys("kp").screen(132, 40).shows("is unpinned").shows("median");
    // Esc leads back from the list too. Nothing is pinned while nothing is selected.
    lab.keys("<Esc><Esc>p").screen(132, 40).shows("select a rank first");
}

#[test]
fn problems_of_a_gpu_and_a_hook_are_shown_first() {
    let mut lab = looked_at();
    let mut frames = lab.simulation().digests(2_001);
    let Body::Digest(digest) = &mut frames[4].body else { unreachable!() };
    let rank = &mut digest.ranks[5];
    rank.blind = vec!["cuBLASLt was not found: its GEMMs are not seen".to_owned()];
    let device = rank.device.as_mut().unwrap();
    (device.throttle, device.sm_clock) = (Some(Throttle::POWER_CAP), Some(1275));
    (device.ecc_uncorrected, device.xids) = (Some(2), Some(1));
    device.last_xid = Some(Xid { code: 79, at: device.read });
    lab.arrive(frames);
    let screen = lab.screen(132, 40);
    screen.shows("power cap").shows("2 uncorrected").shows("79, GPU has fallen off the bus, 0 s ago");
    screen.shows("cuBLASLt was not found");
    golden("rank-troubled", &screen);
    // On a small terminal, problems are shown before what is in order.
    lab.screen(80, 24).shows("GPU held by power cap  ECC 2 uncorrected");
}
