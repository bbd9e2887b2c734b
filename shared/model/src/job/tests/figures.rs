//! Figures of a rank and of its GPU.

use xpu_wire::frame::RankDigest;

use super::*;
use crate::status::rank_status;

/// Frames of a healthy job with `change` applied to its ranks' digests.
fn changed(change: impl Fn(&mut RankDigest, u64)) -> Status {
    let simulation = Simulation::new(1, 1, 4);
    let mut jobs = Jobs::default();
    for second in 10..=40 {
        for mut frame in simulation.digests(second) {
            if let Body::Digest(digest) = &mut frame.body {
                digest.ranks.iter_mut().for_each(|rank| change(rank, second));
            }
            jobs.fold(&frame);
        }
    }
    status(&jobs)
}

#[test]
fn work_is_reported_by_rank_and_for_the_job() {
    let status = changed(|rank, second| {
        rank.work.tokens = second * 8192;
        rank.work.loss = Some(f64::from(rank.rank.0));
    });
    assert!(status.ranks.iter().all(|rank| (rank.tokens_per_s.unwrap() / 8192.0 - 1.0).abs() < 1e-6));
    assert!((status.tokens_per_s.unwrap() / (4.0 * 8192.0) - 1.0).abs() < 1e-6);
    assert_eq!((status.samples_per_s, status.loss), (None, Some(1.5)), "what is not said is not zero");
}

#[test]
fn a_loss_that_is_no_number_is_named_and_no_figure() {
    let lost =
        changed(|rank, _| rank.work.loss = Some([1.5, f64::NAN, f64::INFINITY, 2.5][rank.rank.0 as usize]));
    assert_eq!((lost.loss, &lost.loss_not_finite[..]), (Some(2.0), &[Rank(1), Rank(2)][..]));
    assert_eq!((lost.ranks[1].loss, lost.ranks[1].loss_not_finite), (None, true));
}

#[test]
fn exposed_communication_is_a_share_of_the_time_since_it_was_known() {
    let exposed = |of: fn(u64) -> Option<u64>| {
        changed(|rank, second| rank.exposed_for = of(second).map(Nanoseconds)).ranks[0].exposed_pct
    };
    let share = |of| exposed(of).unwrap();
    assert!((share(|second| Some(second * 120_000_000)) - 12.0).abs() < 1e-6);
    // In the first seconds, there is no communication.
    assert!((share(|second| (second > 12).then_some(second * 120_000_000)) - 12.0).abs() < 1e-6);
    assert_eq!(share(|second| Some(second * 2_000_000_000)), 100.0, "of a long wait that is over");
    assert_eq!(exposed(|_| None), None);
    let idle = changed(|rank, _| (rank.gemm_flops, rank.exposed_for) = (1e15, Some(Nanoseconds(5))));
    assert_eq!(idle.ranks[0].exposed_pct, None, "no GEMM was held up: there was none");
}

#[test]
fn utilisation_is_the_time_at_peak_in_the_time_that_passed() {
    let status = changed(|rank, second| {
        // There are no GEMMs in the first seconds.
        rank.gemm_at_peak = (second > 12).then_some(Nanoseconds(second * 400_000_000));
        rank.blocked_for = Nanoseconds(second * 250_000_000);
    });
    assert!((status.mfu.unwrap() - 0.4).abs() < 1e-6, "{:?}", status.mfu);
    assert!((status.ranks[0].blocked_pct.unwrap() - 25.0).abs() < 1e-6);
    let unknown = changed(|rank, _| rank.gemm_at_peak = None);
    assert_eq!((unknown.mfu, unknown.ranks[0].mfu), (None, None));
}

#[test]
fn achieved_flops_are_those_of_all_gemms_in_the_time_that_passed() {
    let status = changed(|rank, second| {
        // None of them is timed, as in CUDA graphs.
        rank.gemm_flops = second as f64 * 2.5e14;
        (rank.gemm_timed_flops, rank.gemm_timed_for) = (0.0, Nanoseconds(0));
    });
    let rank = &status.ranks[0];
    assert_eq!(rank.gemm_tflops, None);
    assert!((rank.achieved_tflops.unwrap().0 / 250.0 - 1.0).abs() < 1e-6, "{:?}", rank.achieved_tflops);
    assert_eq!(changed(|rank, _| rank.gemm_flops = 0.0).ranks[0].achieved_tflops, None);
}

/// Half of the FLOPs are in graphs, which take a third of the time.
#[test]
fn the_time_of_graphs_is_apart_from_that_of_gemms() {
    let status = changed(|rank, second| {
        rank.gemm_flops = second as f64 * 2e14;
        (rank.gemm_timed_flops, rank.gemm_timed_for) =
            (second as f64 * 5e12, Nanoseconds(second * 10_000_000));
        (rank.graphs_for, rank.graphs_flops) = (Nanoseconds(second * 330_000_000), second as f64 * 1e14);
        rank.exposed_for = Some(Nanoseconds(second * 100_000_000));
        let device = rank.device.as_mut().expect("a GPU");
        device.utilisation = Some(80);
    });
    let time = status.ranks[0].gpu_time.expect("all parts are known");
    let parts =
        [time.gemms_pct, time.graphs_pct, time.communication_pct, time.other_kernels_pct, time.idle_pct];
    let near =
        parts.iter().zip([20.0, 33.0, 10.0, 17.0, 20.0]).all(|(own, expected)| (own - expected).abs() < 0.1);
    assert!(near, "{parts:?}");
    let without = changed(|rank, second| {
        rank.gemm_flops = second as f64 * 1e14;
        (rank.gemm_timed_flops, rank.gemm_timed_for) = (0.0, Nanoseconds(0));
        (rank.graphs_for, rank.graphs_flops) = (Nanoseconds(second * 330_000_000), second as f64 * 1e14);
        rank.exposed_for = Some(Nanoseconds(0));
    });
    let time = without.ranks[0].gpu_time.expect("there are no GEMMs outside of graphs");
    assert!(time.gemms_pct == 0.0 && (time.graphs_pct - 33.0).abs() < 0.1, "{time:?}");
}

#[test]
fn the_source_of_step_ends_is_reported() {
    use xpu_wire::frame::StepSource;

    use crate::status::StepSign;
    let status = changed(|rank, _| {
        rank.step_source = Some(if rank.rank == Rank(2) { StepSource::Detected } else { StepSource::Marked });
    });
    assert_eq!(status.ranks[1].step_source, Some(StepSign::Marked));
    assert_eq!(status.steps.source, Some(StepSign::Detected));
}

/// One rank's GPU; each pair has the second of the digest and that of the reading.
fn devices(readings: &[(u64, u64)]) -> Jobs {
    let simulation = Simulation::new(7, 1, 1);
    let mut jobs = Jobs::default();
    for &(second, read) in readings {
        let mut frame = simulation.digests(second).remove(0);
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        let device = digest.ranks[0].device.as_mut().unwrap();
        device.age = std::time::Duration::from_secs(second - read).into();
        device.read = Moment(device.read.0 - device.age.0);
        jobs.fold(&frame);
    }
    jobs
}

#[test]
fn a_repeated_reading_of_a_gpu_counts_once_and_ages() {
    let jobs = devices(&[(1, 1), (2, 2), (3, 2), (14, 2)]);
    let view = jobs.foremost().unwrap().rank(Rank(0)).unwrap();
    assert_eq!(view.device_readings().count(), 2);
    let last = view.device().unwrap();
    assert_eq!((last.age.seconds(), last.is_stale()), (12.0, true));
}

#[test]
fn an_unreadable_gpu_has_no_figures() {
    let simulation = Simulation::new(7, 1, 1);
    let mut jobs = devices(&[(1, 1)]);
    let mut frame = simulation.digests(2).remove(0);
    let Body::Digest(digest) = &mut frame.body else { unreachable!() };
    digest.ranks[0].device = None;
    jobs.fold(&frame);
    assert_eq!(jobs.foremost().unwrap().rank(Rank(0)).unwrap().device(), None);
}

/// Of a collector that is gone, and of a stopped or killed process, nothing is shown as current. A hung process still
/// reports, so its GPU's power is current.
#[test]
fn power_is_shown_as_long_as_the_rank_reports() {
    let jobs = devices(&[(1, 1), (2, 2)]);
    let job = jobs.foremost().unwrap();
    let last = job.rank(Rank(0)).unwrap().last_report();
    let power = |job: &Job, seconds: u64| {
        let now = Moment(last.0 + seconds * 1_000_000_000);
        rank_status(job, Rank(0), &[], now).device.unwrap().power_w
    };
    assert!(power(job, 4).is_some());
    assert_eq!(power(job, 5), None);
    for life in [Life::Silent, Life::Died] {
        let mut jobs = devices(&[(1, 1)]);
        let mut frame = Simulation::new(7, 1, 2).digests(2).remove(0);
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        digest.ranks[0].life = life;
        jobs.fold(&frame);
        assert_eq!(power(jobs.foremost().unwrap(), 0), None, "{life:?}");
    }
}
