use xpu_wire::{
    frame::example::capture::{MS, part, sheet, with_activity},
    frame::{Body, CapturePart, CapturedSpan, Frame},
    unit::Moment,
};

use super::*;

fn capture(parts: impl IntoIterator<Item = CapturePart>) -> Capture {
    let mut capture = Capture::default();
    let frame = |body| Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body };
    capture.take(&frame(Body::CaptureSheet(sheet(&[0, 1]))));
    for part in parts {
        capture.take(&frame(Body::CapturePart(part)));
    }
    capture
}

/// The GEMMs take 10 ms plus `longer`; those of the second step take `jitter` more.
fn gemms(rank: u32, longer: u64, jitter: u64) -> CapturePart {
    let mut new = part(rank, 0);
    for (operation, more) in new.operations.iter_mut().step_by(3).zip([longer, longer + jitter]) {
        if let CapturedSpan::Gpu { took, .. } = &mut operation.span {
            took.0 += more;
        }
    }
    new
}

#[test]
fn a_change_beyond_noise_is_real_and_the_rest_is_not() {
    let before = capture([gemms(0, 0, MS / 100), gemms(1, 0, MS / 100)]);
    let diff = Diff::of(&before, &capture([gemms(0, 0, 0), gemms(1, 4 * MS, 0)]));
    let row = diff.row(CostKind::Gemm).expect("GEMMs");
    assert_eq!((row.name.as_str(), row.before_count), ("8x4x2 bf16 TN", 1.0));
    assert!((row.change_ns - 1_995_000.0).abs() < 1.0 && row.real, "{row:?}");
    assert_eq!(row.most.map(|(rank, _)| rank), Some(Rank(1)));
    let waiting = diff.row(CostKind::Waiting).expect("collectives");
    assert_eq!((waiting.name.as_str(), waiting.real), ("AllReduce from 512 B, 2 ranks", false));

    let jittery = Diff::of(&before, &capture([gemms(0, 0, 4 * MS), gemms(1, 0, 4 * MS)]));
    let row = jittery.row(CostKind::Gemm).expect("GEMMs");
    assert!(row.change_ns > 1e6 && !row.real, "a step of two differs: {row:?}");
}

/// Steps of a rank that take `longer` more, including `waits` more of waiting for the other rank.
fn later(rank: u32, longer: u64, waits: u64, jitter: u64) -> CapturePart {
    let mut new = part(rank, 0);
    if let Some(account) = &mut new.account {
        for (number, mark) in account.marks.iter_mut().enumerate() {
            mark.at.0 += number as u64 * longer + jitter * u64::from(number == 2);
        }
    }
    for (at, operation) in new.operations.iter_mut().enumerate() {
        operation.after.0 += if at >= 3 { longer } else { 0 };
        if let (1, CapturedSpan::Gpu { took, late, .. }) = (at % 3, &mut operation.span) {
            took.0 += waits;
            *late += longer as i64 - waits as i64;
        }
    }
    new
}

/// Rank 1 enters the collective of each step 4 ms later. Rank 0 waits for it, so the waits of rank 0 changed
/// most.
#[test]
fn the_awaited_rank_is_named_and_not_the_waiting_ones() {
    let before = capture([later(0, 0, 0, MS / 100), later(1, 0, 0, MS / 100)]);
    let after = capture([later(0, 4 * MS, 4 * MS, 0), later(1, 4 * MS, 0, 0)]);
    let diff = Diff::of(&before, &after);
    let culprit = diff.culprit.unwrap_or_else(|| panic!("{:?}", diff.rows));
    assert!(culprit.rank == Rank(1) && (culprit.wait_ns / (4 * MS) as f64 - 1.0).abs() < 0.1, "{culprit:?}");
    assert_eq!(diff.row(CostKind::Waiting).and_then(|row| row.most).map(|(rank, _)| rank), Some(Rank(0)));
    // Three collectives at the same time wait for the same delay.
    let overlapping = capture([later(0, 4 * MS, 12 * MS, 0), later(1, 4 * MS, 0, 0)]);
    let culprit = Diff::of(&before, &overlapping).culprit.expect("a straggler");
    let step = diff.row(CostKind::Step).expect("steps").change_ns;
    assert!(culprit.rank == Rank(1) && (culprit.wait_ns / step - 1.0).abs() < 0.01, "{culprit:?}");
    assert_eq!(Diff::of(&after, &before).culprit, None, "they became shorter");
    let both = capture([later(0, 4 * MS, 0, 0), later(1, 4 * MS, 0, 0)]);
    assert_eq!(Diff::of(&before, &both).culprit, None, "both are slower alike");
}

#[test]
fn the_step_and_its_parts_come_first_then_what_changed_most() {
    use CostKind::{Compute, Exposed, Gap, Memory, Step};
    let diff = Diff::of(&capture([part(0, 0)]), &capture([gemms(0, 4 * MS, 0)]));
    let kinds: Vec<_> = diff.rows.iter().map(|row| row.kind).collect();
    assert_eq!(kinds[..5], [Step, Compute, Exposed, Memory, Gap]);
    let sizes: Vec<_> = diff.rows[5..].iter().map(|row| row.change_ns.abs()).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert_eq!(diff.rows[5].kind, CostKind::Gemm);
}

#[test]
fn data_requested_for_only_one_capture_is_no_difference() {
    let (without, with) = (capture([part(0, 0), part(1, 0)]), capture([with_activity(0), with_activity(1)]));
    for diff in [Diff::of(&without, &with), Diff::of(&with, &without)] {
        let compute = diff.row(CostKind::Compute).expect("a part of the step");
        assert!(compute.change_ns.abs() < 1.0 && compute.before_ns > 0.0, "{compute:?}");
        assert!(diff.rows.iter().all(|row| row.kind != CostKind::Kernel), "{:?}", diff.rows);
    }
    let kernel = Diff::of(&with, &with);
    let kernel = kernel.row(CostKind::Kernel).expect("both have them");
    assert_eq!((kernel.name.as_str(), kernel.before_ns), ("my::gemm_kernel<4>(float*)", 10e6));
}

#[test]
fn with_nothing_to_compare_nothing_is_real() {
    let empty = Diff::of(&capture([]), &capture([part(0, 0)]));
    assert!(empty.before.steps == 0 && empty.rows.iter().all(|row| !row.real && row.noise_ns.is_none()));
}
