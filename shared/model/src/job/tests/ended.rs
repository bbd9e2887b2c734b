//! Ranks and jobs that have ended or do not report: old values are not shown as figures.

use super::*;

/// Reports a rank's [`Life`] at a time.
fn life(simulation: &Simulation, rank: u32, life: Life, second: u64) -> Frame {
    let mut frame = simulation.digests(second).remove((rank / simulation.ranks_per_host) as usize);
    let (job, pid) = (simulation.job.clone(), xpu_wire::id::Pid(4000 + rank));
    frame.body = Body::Event(Event::Life { job, rank: Rank(rank), pid, life });
    frame
}

/// When no rank of a job lives, its GPUs belong to others.
#[test]
fn hours_are_lost_until_the_last_rank_ends() {
    let simulation = Simulation::new(3, 1, 4);
    let mut jobs = folded(&simulation, 5..=9);
    jobs.fold(&life(&simulation, 2, Life::Died, 10));
    let lost = |jobs: &Jobs, second: u64| {
        let now = Moment(simulation.started.0 + second * 1_000_000_000);
        let found = crate::finding::examine(jobs.foremost().unwrap(), now);
        found[0].cost.unwrap().gpu_hours * 3600.0
    };
    assert!((lost(&jobs, 70) - 4.0 * 60.0).abs() < 1e-6, "{}", lost(&jobs, 70));
    for rank in [0, 1, 3] {
        jobs.fold(&life(&simulation, rank, Life::Died, 70 + u64::from(rank)));
    }
    for second in [73, 80, 3_000] {
        assert!((lost(&jobs, second) - 4.0 * 63.0).abs() < 1e-6, "{second}: {}", lost(&jobs, second));
    }
}

/// Four ranks on two hosts: some end, are silent, or lose their collector; the others continue.
#[test]
fn outdated_figures_are_unknown_and_in_no_mean() {
    type Change<'a> = &'a dyn Fn(&mut Frame);
    let simulation = Simulation { slow: vec![(Rank(2), 1.5)], ..Simulation::new(3, 2, 2) };
    let went_on = |jobs: &mut Jobs, change: &dyn Fn(&mut Frame)| {
        for second in 41..=52 {
            for mut frame in simulation.digests(second) {
                if frame.host.as_str() == "gpu-002" {
                    change(&mut frame);
                }
                jobs.fold(&frame);
            }
        }
    };
    let with_ranks = |frame: &mut Frame, change: &dyn Fn(&mut RankDigest)| {
        if let Body::Digest(digest) = &mut frame.body {
            digest.ranks.iter_mut().for_each(change);
        }
    };
    let last = simulation.digests(40).remove(1);
    let Body::Digest(of_last) = &last.body else { unreachable!() };
    let of_last = &of_last.ranks;
    let silent = |digest: &mut RankDigest| {
        let device = digest.device.clone();
        *digest = RankDigest {
            life: Life::Silent,
            device,
            samples: Vec::new(),
            ..of_last[digest.rank.0 as usize - 2].clone()
        };
    };
    let hung = |digest: &mut RankDigest| {
        let (heard, device) = (digest.heard, digest.device.clone());
        let before = of_last[digest.rank.0 as usize - 2].clone();
        *digest = RankDigest { heard, device, samples: Vec::new(), step_count: 0, ..before };
    };
    let cases: [(&str, bool, Change<'_>); 4] = [
        ("gone", false, &|frame| with_ranks(frame, &|digest| digest.life = Life::Died)),
        ("silent", false, &|frame| with_ranks(frame, &silent)),
        ("stands", true, &|frame| with_ranks(frame, &hung)),
        ("its collector is gone", false, &|frame| *frame = last.clone()),
    ];
    for (case, gpu_is_read, change) in cases {
        let mut jobs = folded(&simulation, 5..=40);
        let now = simulation.digests(52)[0].now;
        let before = Status::of(&jobs, jobs.foremost().unwrap(), simulation.digests(40)[0].now);
        assert!(before.ranks.iter().all(|rank| rank.is_live() && rank.gemm_tflops.is_some()), "{case}");
        went_on(&mut jobs, change);
        let status = Status::of(&jobs, jobs.foremost().unwrap(), now);
        for rank in &status.ranks[2..] {
            let figures = (rank.step_ms_mean, rank.step_ms_p50, rank.gemm_tflops, rank.bus_gb_s, rank.mfu);
            assert_eq!(figures, (None, None, None, None, None), "{case}");
            assert_eq!(
                (rank.lateness_ms_p50, rank.exposed_pct, rank.tokens_per_s),
                (None, None, None),
                "{case}"
            );
            let (age, device) = (rank.figures_age_s.unwrap(), rank.device.as_ref().unwrap());
            assert!((if case == "gone" { 0.0..=12.0 } else { 11.0..=12.0 }).contains(&age), "{case}: {age}");
            assert_eq!(
                device.power_w.is_some(),
                gpu_is_read,
                "{case}: power is shown while the process reports"
            );
            assert_eq!(device.power_limit_w, Some(700.0), "{case}");
        }
        let live = status.ranks[..2].iter().map(|rank| rank.step_ms_mean.unwrap()).collect();
        assert_eq!((status.steps.mean_ms, status.figures_age_s), (median(live), None), "{case}");
        let rates =
            status.ranks[..2].iter().map(|rank| rank.gemm_tflops.unwrap().0).fold(f64::INFINITY, f64::min);
        assert!(rates > 600.0, "{case}: {rates}");
    }
}

/// A viewer of an ended job needs to see its end.
#[test]
fn an_ended_job_keeps_its_last_figures_with_their_age() {
    let simulation = Simulation::new(3, 1, 2);
    let mut jobs = folded(&simulation, 5..=40);
    for rank in 0..2 {
        jobs.fold(&life(&simulation, rank, Life::Ended, 41));
    }
    let status = Status::of(&jobs, jobs.foremost().unwrap(), simulation.digests(100)[0].now);
    assert!(status.steps.mean_ms.is_some() && status.ranks.iter().all(|rank| rank.gemm_tflops.is_some()));
    assert_eq!((status.figures_age_s, status.ranks[0].figures_age_s), (Some(60.0), Some(60.0)));
    assert_eq!(status.bound, None, "nothing holds it up any more");
}
