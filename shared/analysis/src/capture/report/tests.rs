use xpu_wire::{
    datatype::DataType,
    frame::example::capture::{BEGIN, MS, part, sheet, with_activity},
    frame::{Body, CapturePart, CapturedOperation, CapturedSpan, Frame},
    id::CommunicatorId,
    unit::Nanoseconds,
};

use super::{super::*, *};

fn capture(parts: Vec<CapturePart>) -> Capture {
    let mut capture = Capture::default();
    let frame = |body| Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body };
    capture.take(&frame(Body::CaptureSheet(sheet(&[0, 1]))));
    for part in parts {
        capture.take(&frame(Body::CapturePart(part)));
    }
    capture
}

/// Makes the collectives of a rank shorter by `by`: it enters later, and all ranks end together.
fn comes_later(part: &mut CapturePart, by: u64) {
    for operation in &mut part.operations {
        if let (Some(_), CapturedSpan::Gpu { late, took, .. }) = (operation.sequence, &mut operation.span) {
            *late += by as i64;
            took.0 -= by;
        }
    }
}

#[test]
fn gemms_are_summed_by_shape() {
    let rows = Report::of(&capture(vec![part(0, 0), part(1, 0)])).gemms;
    let [row] = &rows[..] else { panic!("one shape: {rows:?}") };
    assert_eq!((row.shape.m, row.shape.n, row.shape.k, row.count), (8, 4, 2, 4));
    assert_eq!((row.shape.to_string().as_str(), row.shape.compute.as_str()), ("8x4x2 TN bf16", "float32"));
    assert_eq!((row.took.timed, row.took.total_ns), (4, 40 * MS));
    // 2*8*4*2 operations in 10 ms; half of four steps of 20 ms.
    assert!((row.tflops.expect("timed").0 - 128.0 / 0.01 / 1e12).abs() < 1e-15, "{row:?}");
    assert_eq!(row.share, Some(0.5));
}

#[test]
fn of_a_collective_the_shortest_time_is_the_transfer_and_the_rest_waiting() {
    let mut last = part(1, 0);
    comes_later(&mut last, 4 * MS);
    let report = Report::of(&capture(vec![part(0, 0), last, part(2, 0)]));
    let [row] = &report.collectives[..] else { panic!("{:?}", report.collectives) };
    assert_eq!((row.operation.as_str(), row.from_bytes, row.ranks), ("AllReduce", 512, 3));
    assert_eq!((row.count, row.bytes), (2, 2000));
    assert_eq!((row.transfer.p50_ns, row.wait_ns), (Some(6 * MS), Some(2 * 8 * MS)));
    let rate = row.bus_gbytes_per_s.expect("timed").0;
    assert!((rate - 2000.0 / 0.012 / 1e9).abs() < 1e-12, "{rate}");
    let first = report.arrivals[0];
    assert_eq!((first.rank, first.last, first.collectives), (Rank(1), 2, 2));
    // The others waited from 6 to 10, and computed throughout.
    assert_eq!((first.cost_per_step_ns, first.kept_waiting_per_step_ns), (Some(0), Some(8 * MS)));
    assert!(report.arrivals[1..].iter().all(|row| row.last == 0), "{:?}", report.arrivals);

    let mut very_last = part(1, 0);
    comes_later(&mut very_last, 8 * MS);
    let arrivals = Report::of(&capture(vec![part(0, 0), very_last])).arrivals;
    // The others wait from 6 to 14, and are idle from 11 on.
    assert_eq!((arrivals[0].rank, arrivals[0].cost_per_step_ns), (Rank(1), Some(3 * MS)));
}

#[test]
fn within_what_times_are_read_to_nobody_is_the_last() {
    let mut later = part(1, 0);
    comes_later(&mut later, NOISE_NS);
    let report = Report::of(&capture(vec![part(0, 0), later]));
    assert!(report.arrivals.iter().all(|row| row.last == 0 && row.collectives == 2), "{:?}", report.arrivals);
}

#[test]
fn a_group_counts_as_what_was_launched_and_sends_by_themselves() {
    let mut grouped = part(0, 0);
    let communicator = CommunicatorId(0xabcd << 32);
    let member = grouped.operations[1];
    grouped.labels.push(CapturedLabel::Group {
        communicator,
        operation: Operation::SendRecv,
        bytes: 3 << 20,
        bus_bytes: 3 << 20,
        collectives: 0,
        plan: None,
    });
    let send = CapturedLabel::Collective {
        communicator,
        operation: Operation::Send,
        datatype: DataType::Int8,
        bytes: 1,
        bus_bytes: 1,
        plan: None,
    };
    grouped.labels.push(send);
    let of_group = |label, span| CapturedOperation { label, after: Nanoseconds(0), span, ..member };
    grouped.operations.insert(2, of_group(3, member.span));
    grouped.operations.insert(3, of_group(4, CapturedSpan::Unknown));
    let rows = Report::of(&capture(vec![grouped, part(1, 0)])).collectives;
    let said: Vec<_> = rows.iter().map(|row| (row.operation.as_str(), row.from_bytes, row.count)).collect();
    assert_eq!(said, [("AllReduce", 512, 2), ("SendRecv", 2 << 20, 1)]);
    assert_eq!((rows[1].wait_ns, rows[1].transfer.p50_ns), (None, Some(10 * MS)));
}

#[test]
fn where_kernels_are_there_the_gpu_is_what_they_say() {
    let report = Report::of(&capture(vec![with_activity(0)]));
    let rank = &report.ranks[0];
    assert_eq!(rank.seen, Seen::Kernels);
    // In each step of 20 ms: a kernel from 1 to 11, NCCL's from 6 to 16, a copy from 15 to 18.
    let wanted = Summary {
        took_ns: 20 * MS,
        compute_ns: 10 * MS,
        communication_ns: 10 * MS,
        exposed_ns: 5 * MS,
        memory_ns: 2 * MS,
        gap_ns: 3 * MS,
        blocked_ns: 8 * MS,
    };
    assert_eq!(rank.steps[0].summary, Some(wanted));
    assert_eq!(wanted.hidden(), Some(0.5));
    let kernels: Vec<_> =
        report.kernels.iter().map(|row| (row.short.as_str(), row.work, row.count)).collect();
    assert_eq!(
        kernels,
        [("gemm_kernel<4>", Work::Compute, 2), ("ncclDevKernel_AllReduce", Work::Communication, 2)]
    );
    assert_eq!(report.kernels[0].name, "my::gemm_kernel<4>(float*)");
    let [copy] = &report.copies[..] else { panic!("{:?}", report.copies) };
    assert_eq!((copy.what.as_str(), copy.count, copy.bytes), ("HostToDevice", 2, 6000));
    assert_eq!((copy.took.total_ns, copy.held_ns), (6 * MS, None));
    let host: Vec<_> =
        report.host.iter().map(|row| (row.kind, row.name.as_str(), row.took.total_ns)).collect();
    let wanted = [
        (HostKind::Blocked, "cudaStreamSynchronize", 16 * MS),
        (HostKind::GarbageCollection, "generation 2", 4 * MS),
    ];
    assert_eq!(host, wanted);
}

#[test]
fn a_gpu_that_is_behind_has_its_steps_later() {
    let mut behind = part(0, 0);
    for operation in &mut behind.operations {
        if let CapturedSpan::Gpu { late, .. } = &mut operation.span {
            *late += 50 * MS as i64;
        }
    }
    let report = Report::of(&capture(vec![behind]));
    for step in &report.ranks[0].steps {
        let spent = step.summary.expect("whole");
        assert_eq!((spent.compute_ns, spent.exposed_ns, spent.gap_ns), (10 * MS, 5 * MS, 5 * MS), "{step:?}");
    }
}

const GEMM: u32 = 0;
const ALL_REDUCE: u32 = 1;
const WAIT: u32 = 2;

/// The breakdown of the steps between these marks: total, compute, exposed and gap, in milliseconds. Each
/// operation has its launch, start and end, which are GPU times except for waits.
fn spent(marks: &[u64], operations: &[(u32, u64, u64, u64)]) -> Vec<[u64; 4]> {
    let mut part = part(0, 0);
    let account = part.account.as_mut().expect("an account");
    let mark =
        |(at, number): (&u64, u64)| StepMark { completed: Step(40 + number), at: Moment(BEGIN + at * MS) };
    account.marks = marks.iter().zip(0..).map(mark).collect();
    let mut before = 0;
    let operation = |&(label, at, from, to): &(u32, u64, u64, u64)| {
        let took = Nanoseconds((to - from) * MS);
        let span = match label {
            WAIT => CapturedSpan::Host { took },
            _ => CapturedSpan::Gpu { stream: label, late: ((from - at) * MS) as i64, took },
        };
        let after = Nanoseconds((at - std::mem::replace(&mut before, at)) * MS);
        CapturedOperation { label, after, thread: 0, sequence: None, span }
    };
    part.operations = operations.iter().map(operation).collect();
    let report = Report::of(&capture(vec![part]));
    let summaries = report.ranks[0].steps.iter().map(|step| step.summary.expect("whole"));
    summaries.map(|of| [of.took_ns, of.compute_ns, of.exposed_ns, of.gap_ns].map(|ns| ns / MS)).collect()
}

#[test]
fn steps_launched_in_a_burst_take_what_the_gpu_takes_for_them() {
    let operations = [(GEMM, 0, 31, 41), (ALL_REDUCE, 1, 36, 46), (GEMM, 2, 51, 61), (ALL_REDUCE, 3, 56, 66)];
    assert_eq!(spent(&[0, 2, 4], &operations), [[15, 10, 5, 0], [20, 10, 5, 5]]);
}

#[test]
fn a_wait_at_the_begin_of_a_step_belongs_to_the_step_before() {
    let operations = [
        (WAIT, 0, 0, 70),
        (GEMM, 70, 70, 170),
        (WAIT, 100, 100, 170),
        (GEMM, 170, 170, 270),
        (WAIT, 200, 200, 270),
        (GEMM, 270, 270, 370),
    ];
    assert_eq!(spent(&[0, 100, 200, 300], &operations), [[100, 100, 0, 0]; 3]);
}

#[test]
fn a_gpu_that_was_behind_and_was_waited_for_in_the_first_step_had_steps_before_it() {
    let operations =
        [(GEMM, 5, 900, 990), (WAIT, 10, 10, 990), (GEMM, 1_001, 1_001, 1_091), (GEMM, 1_021, 1_091, 1_181)];
    let spent = spent(&[0, 1_000, 1_020, 1_040], &operations);
    assert_eq!(spent, [[115, 90, 0, 25], [91, 90, 0, 1], [90, 90, 0, 0]]);
}

#[test]
fn a_transfer_beside_many_steps_makes_none_of_them_longer() {
    let operations = [(GEMM, 0, 1, 11), (ALL_REDUCE, 5, 6, 56), (GEMM, 20, 21, 31), (GEMM, 40, 41, 51)];
    let spent = spent(&[0, 20, 40, 60], &operations);
    assert_eq!(spent, [[20, 10, 10, 0], [19, 10, 9, 0], [20, 10, 6, 4]]);
}

#[test]
fn a_sampled_step_has_no_figures_of_whole_ones() {
    let mut before = part(0, 0);
    before.account.as_mut().expect("an account").sampled = Some(Step(41));
    let report = Report::of(&capture(vec![before]));
    let steps = &report.ranks[0].steps;
    assert_eq!((steps[0].sampled, steps[0].summary, steps[0].took_ns), (true, None, 20 * MS));
    assert!(!steps[1].sampled && steps[1].summary.is_some());
    assert_eq!((report.gemms[0].count, report.collectives[0].count), (1, 1));
    assert_eq!(report.gemms[0].share, Some(0.5));
    assert_eq!(report.ranks[0].summary.took_ns, 20 * MS);
}

#[test]
fn sizes_belong_to_the_power_of_two_below() {
    assert_eq!([0, 1, 511, 512, 1000, u64::MAX].map(bucket), [0, 1, 256, 512, 512, 1 << 63]);
    let spread = Spread::of((1..=100).collect());
    assert_eq!((spread.p50_ns, spread.p99_ns, spread.max_ns), (Some(50), Some(100), Some(100)));
    assert_eq!(Spread::of(Vec::new()), Spread::default());
}
