use xpu_simulation::Simulation;
use xpu_wire::{
    frame::{Body, DeviceReading, GpuProcess, HostNeighbours, RankNeighbours, Throttle},
    id::{Pid, Rank},
    unit::Moment,
};

use super::cluster::{Cluster, Fault, LINK_FROM, Layout, only, wait};
use crate::{
    finding::{Class, Confidence, Finding, Kind, Lost, Severity, examine},
    job::Jobs,
    status::{ExitCode, RankState, Status},
};

fn is(found: &[Finding], class: Class, rank: u32) -> bool {
    matches!(found, [one] if one.kind == Kind::SlowRank && one.class == class && one.ranks == only(rank))
}

/// The share of all jobs and seeds with one fault in which only that fault is named, in time.
fn recall(class: Class, fault: impl Fn(u32) -> Fault) -> f64 {
    recall_in(&[Layout::Data, Layout::Pipeline { stages: 2 }], class, fault)
}

fn recall_in(layouts: &[Layout], class: Class, fault: impl Fn(u32) -> Fault) -> f64 {
    let (mut named, mut all) = (0, 0);
    for &layout in layouts {
        for (ranks, seeds) in [(8, 10), (64, 3)] {
            for seed in 0..seeds {
                let rank = (seed * 5 + 3) as u32 % ranks;
                let mut cluster = Cluster::new(seed, ranks, layout, &[fault(rank)]);
                cluster.from = 12;
                let (found, seconds) = cluster.until_found(30);
                // No other rank may be named at any time.
                assert!(found.is_empty() || is(&found, class, rank), "seed {seed}: {found:#?}");
                let settled = cluster.run(10).findings();
                assert!(is(&settled, class, rank), "seed {seed}, {ranks} ranks, later: {settled:#?}");
                all += 1;
                named += u32::from(!found.is_empty() && seconds <= 10);
            }
        }
    }
    f64::from(named) / f64::from(all)
}

#[test]
fn a_slow_gpu_is_named() {
    for factor in [1.15, 1.3, 2.0] {
        let recall = recall(Class::Compute, |rank| Fault::Compute { rank, factor });
        assert!(recall >= 0.95, "{factor}: {recall}");
    }
}

#[test]
fn a_slow_host_is_named() {
    for ms in [9.0, 20.0, 40.0, 200.0] {
        let recall = recall(Class::Host, |rank| Fault::Host { rank, ms });
        assert!(recall >= 0.95, "{ms} ms: {recall}");
    }
}

/// Jobs in which all ranks should do the same.
#[test]
fn a_rank_with_more_work_is_named() {
    let recall =
        recall_in(&[Layout::Data], Class::Compute, |rank| Fault::MoreWork { rank, factor: 1.4, ms: 30.0 });
    assert!(recall >= 0.95, "{recall}");
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::MoreWork { rank: 3, factor: 1.4, ms: 30.0 }]);
    let found = cluster.run(20).findings().remove(0);
    for figure in
        ["1.4x the FLOPs of the 7 ranks", "same communicators", "the same or a higher rate", "is last into"]
    {
        assert!(found.evidence.to_string().contains(figure), "{figure}: {}", found.evidence);
    }
}

#[test]
fn one_in_a_thousand_is_named() {
    let mut cluster = Cluster::new(3, 1024, Layout::Data, &[Fault::Compute { rank: 517, factor: 1.3 }]);
    assert!(is(&cluster.run(8).findings(), Class::Compute, 517));
}

#[test]
fn two_faults_are_two_findings() {
    let faults = [Fault::Compute { rank: 5, factor: 1.3 }, Fault::Host { rank: 2, ms: 60.0 }];
    let found = Cluster::new(1, 16, Layout::Data, &faults).run(12).findings();
    let named: Vec<_> = found.iter().map(|finding| (finding.class, finding.ranks.clone())).collect();
    // The costliest rank comes first.
    assert_eq!(named, [(Class::Host, only(2)), (Class::Compute, only(5))]);
}

/// The later rank costs all that the others wait for it. The other rank costs nothing yet, and its own delay once
/// the later one is on time.
#[test]
fn a_delay_that_a_larger_one_hides_has_its_own_cost() {
    let faults = [Fault::Compute { rank: 5, factor: 2.0 }, Fault::Host { rank: 2, ms: 36.0 }];
    let mut cluster = Cluster::new(1, 16, Layout::Data, &faults);
    (cluster.exposed, cluster.transfers) = (Some(0.4), 0.1);
    let found = cluster.run(30).findings();
    let [first, second] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((&first.ranks, &second.ranks), (&only(2), &only(5)), "{found:#?}");
    let (one, other) = (first.cost.unwrap(), second.cost.unwrap());
    assert!((one.pct - 40.0).abs() < 0.5 && one.behind.is_none(), "{found:#?}");
    // Of 36 ms in each collective, 18 ms.
    assert!((other.pct - 20.0).abs() < 0.5, "{found:#?}");
    assert_eq!((other.behind, other.gpu_hours, second.severity), (Some(Rank(2)), 0.0, Severity::Minor));
    assert_eq!(Lost::to(&found).map(|lost| lost.cost), Some(one));
    let evidence = second.evidence.to_string();
    let hidden = "it costs the others nothing yet, and 22.2 ms of a 111.1 ms step once rank 2 is on time";
    assert!(evidence.contains(hidden), "{evidence}");
    assert!(second.headline(None).contains("costs 22 ms a step once rank 2 is on time"), "{second:#?}");
    assert!(other.to_string().ends_with("once rank 2 is on time, nothing so far"), "{other}");
}

/// The slow GPU hides what the slow host costs, but the host's threads wait less for their GPU.
#[test]
fn a_slow_host_is_named_beside_a_slower_gpu() {
    let faults = [
        Fault::Compute { rank: 5, factor: 2.0 },
        Fault::Host { rank: 2, ms: 8.0 },
        Fault::Waits { rank: 2, less: 0.07 },
    ];
    let found = Cluster::new(1, 16, Layout::Data, &faults).run(30).findings();
    let named: Vec<_> = found.iter().map(|finding| (finding.class, finding.ranks.clone())).collect();
    assert_eq!(named, [(Class::Compute, only(5)), (Class::Host, only(2))], "{found:#?}");
}

/// A hang takes all of the time, so a slow rank costs nothing more.
#[test]
fn the_loss_is_the_sum_of_the_costs_and_during_a_hang_only_the_hang() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Compute { rank: 5, factor: 1.5 }]);
    cluster.exposed = Some(0.3);
    let mut found = cluster.run(12).findings();
    let one = found[0].cost.unwrap();
    found.push(found[0].clone());
    found[1].since_s += 30.0;
    let lost = Lost::to(&found).unwrap();
    assert_eq!(lost.cost.gpu_hours, 2.0 * one.gpu_hours);
    assert_eq!(lost.since_s, found[1].since_s);
    assert_eq!(Lost::to(&found[..1]).map(|lost| lost.cost), Some(one));
    found[0].kind = Kind::Hang;
    let lost = Lost::to(&found).unwrap();
    assert_eq!((lost.cost, lost.since_s), (one, found[0].since_s));
}

#[test]
fn a_slow_rank_comes_with_its_figures() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Compute { rank: 5, factor: 1.5 }]);
    cluster.exposed = Some(0.3);
    let found = cluster.run(12).findings().remove(0);
    assert_eq!(found.confidence, Confidence::Certain);
    for figure in ["rank 5", "TFLOPS", "33 % below", "8 ranks", "100 % of its collectives", "which costs"] {
        assert!(found.evidence.to_string().contains(figure), "{figure}: {}", found.evidence);
    }
    assert!(found.advice.starts_with("its clocks match the others'"), "{}", found.advice);
    assert_eq!(found.evidence.figures().get("ranks_compared"), Some(8.0));
}

/// The difference between two readings.
type Change<'a> = &'a dyn Fn(&mut DeviceReading);

/// No advice is to look for what the driver has reported already.
#[test]
fn the_advice_follows_what_the_driver_reported() {
    let held = |throttle: Throttle| {
        move |reading: &mut DeviceReading| (reading.sm_clock, reading.throttle) = (Some(1200), Some(throttle))
    };
    let cases: [(&str, Change<'_>, Class, &str); 5] = [
        ("well", &|_| {}, Class::Compute, "its clocks match the others'"),
        (
            "silent",
            &|reading| reading.sm_clock = None,
            Class::Compute,
            "look for other processes on its GPU (nvidia-smi), and at its clocks",
        ),
        ("hot", &held(Throttle::HARDWARE_THERMAL), Class::Clocks, "look at that GPU's cooling: fans"),
        ("braked", &held(Throttle::POWER_BRAKE), Class::Clocks, "look at that host's power supply"),
        ("set", &held(Throttle::APPLICATION_CLOCKS), Class::Clocks, "that GPU's clocks were set lower"),
    ];
    for (case, change, class, advice) in cases {
        let simulation = Simulation { slow: vec![(Rank(5), 1.4)], ..Simulation::new(3, 1, 8) };
        let mut jobs = Jobs::default();
        for second in 100..120 {
            for mut frame in simulation.digests(second) {
                let Body::Digest(digest) = &mut frame.body else { unreachable!() };
                change(digest.ranks[5].device.as_mut().unwrap());
                jobs.fold(&frame);
            }
        }
        let found = examine(jobs.foremost().unwrap(), jobs.clock()).remove(0);
        assert_eq!((found.class, &found.ranks), (class, &only(5)), "{case}");
        assert!(found.advice.starts_with(advice), "{case}: {}", found.advice);
    }
}

/// With two others, there is no median, so the rank's own past is the reference.
#[test]
fn one_of_two_is_named_by_its_own_past() {
    let mut cluster = Cluster::new(1, 2, Layout::Data, &[Fault::Compute { rank: 1, factor: 1.3 }]);
    cluster.from = 20;
    assert_eq!(cluster.run(20).findings(), []);
    let (found, seconds) = cluster.until_found(30);
    assert!(is(&found, Class::Compute, 1) && seconds <= 10, "{seconds} s: {found:#?}");
}

#[test]
fn slow_is_an_exit_code_and_a_state() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Host { rank: 3, ms: 40.0 }]);
    cluster.run(12);
    let status = Status::of(&Jobs::default(), cluster.job(), cluster.now());
    assert_eq!(status.exit_code(), ExitCode::Slow);
    let slow = status.ranks.iter().filter(|rank| rank.state == RankState::Slow);
    assert_eq!(slow.map(|rank| rank.rank.0).collect::<Vec<_>>(), [3]);
}

/// A rank that is 7 ms late in every collective is named, one that is 4 ms late is not.
#[test]
fn a_rank_that_is_always_a_little_late_is_named() {
    let fault = |ms| [Fault::Host { rank: 3, ms }];
    let (found, seconds) = Cluster::new(1, 8, Layout::Data, &fault(7.0)).until_found(30);
    assert!(is(&found, Class::Host, 3), "{seconds} s: {found:#?}");
    assert_eq!(Cluster::new(1, 8, Layout::Data, &fault(4.0)).run(30).findings(), []);
}

/// Two ranks are equally late, so each alone costs nothing.
#[test]
fn two_that_are_late_together_are_named_together() {
    let faults = [Fault::Host { rank: 3, ms: 30.0 }, Fault::Host { rank: 6, ms: 30.0 }];
    let found = Cluster::new(1, 8, Layout::Data, &faults).run(20).findings();
    let [one] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((one.class, &one.ranks[..]), (Class::Host, &[Rank(3), Rank(6)][..]), "{found:#?}");
}

/// Its arrival skew is too small to be visible in the few timed collectives, but the shorter waits of its
/// threads are counted.
#[test]
fn a_rank_that_waits_less_for_its_gpu_is_named() {
    let faults = [Fault::Host { rank: 3, ms: 4.0 }, Fault::Waits { rank: 3, less: 0.13 }];
    let (found, seconds) = Cluster::new(1, 8, Layout::Data, &faults).until_found(30);
    assert!(is(&found, Class::Host, 3), "{seconds} s: {found:#?}");
    assert_eq!(Cluster::new(1, 8, Layout::Data, &faults[..1]).run(30).findings(), []);
}

/// Kernels that wait for rank 3 take SMs from concurrent GEMMs.
#[test]
fn a_waiting_rank_with_slower_gemms_is_not_slow() {
    let crowded = (0..6).filter(|rank| *rank != 3).map(|rank| Fault::Crowded { rank, factor: 1.3 });
    let faults: Vec<_> = crowded.chain([Fault::Host { rank: 3, ms: 40.0 }]).collect();
    let mut cluster = Cluster::new(1, 8, Layout::Data, &faults);
    cluster.from = 20;
    let (found, seconds) = cluster.until_found(30);
    assert!(is(&found, Class::Host, 3), "{seconds} s: {found:#?}");
    for _ in 0..10 {
        let found = cluster.run(1).findings();
        assert!(is(&found, Class::Host, 3), "second {}: {found:#?}", cluster.second);
    }
}

/// Rates of short GEMMs vary, so at any time some ranks seem to become slower. The rank's own GEMMs are slower, but
/// that accounts for a part of its delay only.
#[test]
fn a_late_rank_is_named_though_rates_vary() {
    for seed in 0..4 {
        let faults = [
            Fault::Spread { share: 0.2 },
            Fault::Compute { rank: 3, factor: 1.15 },
            Fault::Host { rank: 3, ms: 60.0 },
        ];
        let mut cluster = Cluster::new(seed, 64, Layout::Data, &faults);
        cluster.exposed = Some(1.0);
        cluster.run(20);
        for _ in 0..30 {
            let found = cluster.run(1).findings();
            let [one] = &found[..] else { panic!("seed {seed}, second {}: {found:#?}", cluster.second) };
            assert_eq!((one.kind, &one.ranks), (Kind::SlowRank, &only(3)), "{found:#?}");
        }
    }
}

#[test]
fn a_link_that_slows_down_is_named() {
    let (found, _) = Cluster::new(1, 8, Layout::Data, &[Fault::Link { factor: 1.5 }]).until_found(60);
    assert_eq!((found.len(), found[0].kind, found[0].class), (1, Kind::SlowLink, Class::Group));
}

/// NCCL's kernels move no data while the time slices of a GPU belong to another process.
#[test]
fn transfers_that_share_a_gpu_are_reported_with_the_other_process() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Link { factor: 1.5 }]);
    cluster.until_found(60);
    let process = GpuProcess {
        pid: Pid(4242),
        name: "python3".to_owned(),
        busy: Some(80),
        memory: None,
        since: Moment(cluster.simulation.started.0 + LINK_FROM * 1_000_000_000),
    };
    let pid = cluster.job().rank(Rank(1)).unwrap().pid();
    let rank = RankNeighbours { rank: Rank(1), pid, processes: vec![process] };
    let job = cluster.job().name().clone();
    cluster.fold([Body::Neighbours(HostNeighbours { job, ranks: vec![rank] })]);
    let found = cluster.findings();
    let [link] = &found[..] else { panic!("{found:#?}") };
    assert!(
        link.evidence
            .to_string()
            .ends_with("process 4242 (python3) uses the GPU of rank 1 too, for 80 % of the time"),
        "{}",
        link.evidence
    );
    assert!(link.advice.starts_with("end process 4242 (python3), or move it"), "{}", link.advice);
}

/// Long after it became slow, it is still compared with its bandwidth before that. The moment remains known.
#[test]
fn a_slow_link_is_still_named_after_minutes() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Link { factor: 1.5 }]);
    cluster.from = 90;
    for second in [120, 240, 600] {
        let found = cluster.run(second - cluster.second).findings();
        let [link] = &found[..] else { panic!("second {second}: {found:#?}") };
        assert_eq!(link.kind, Kind::SlowLink);
        assert!((link.since_s - (second - 90) as f64).abs() < 12.0, "second {second}: {}", link.since_s);
    }
}

/// Slow in seconds 90 to 150, and again from 600 on.
#[test]
fn a_link_that_is_slow_again_is_so_since_the_second_time() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Link { factor: 1.5 }]);
    cluster.from = 90;
    cluster.run(150);
    cluster.from = 600;
    let found = cluster.run(490).findings();
    let [link] = &found[..] else { panic!("{found:#?}") };
    assert!((30.0..52.0).contains(&link.since_s), "{}", link.since_s);
}

/// The slower transfers are hidden by GEMMs, or are exposed communication in part or as a whole. The steps
/// before them are unknown.
#[test]
fn a_slow_link_costs_at_most_its_part_of_exposed_communication() {
    for exposed in [0.0, 0.3] {
        let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Link { factor: 1.5 }]);
        (cluster.exposed, cluster.transfers, cluster.from) = (Some(0.0), exposed, 12);
        let (found, _) = cluster.until_found(60);
        let cost = found[0].cost.expect("a cost");
        assert!((cost.pct + cost.pct_error - 100.0 * exposed / 3.0).abs() < 2.0, "{exposed}: {found:#?}");
    }
}

/// In the simulated job, steps do not become longer.
#[test]
fn a_slow_link_costs_what_steps_are_longer_by_since_then() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Link { factor: 1.5 }]);
    (cluster.exposed, cluster.transfers) = (Some(0.0), 0.3);
    let (found, _) = cluster.until_found(60);
    let cost = found[0].cost.expect("a cost");
    assert!(cost.pct + cost.pct_error < 1.0, "{found:#?}");
}

/// From then on, a cost per step would mix in the time without steps.
#[test]
fn a_slow_rank_is_named_until_the_job_is_known_to_hang() {
    let is_stuck = |rank: u32, digest: &mut xpu_wire::frame::RankDigest| {
        if rank != 6 {
            wait(digest, 0, 1);
        }
    };
    for fault in [Fault::Compute { rank: 5, factor: 1.5 }, Fault::Host { rank: 5, ms: 40.0 }] {
        let mut cluster = Cluster::new(1, 8, Layout::Data, &[fault]).hang_from(20, is_stuck);
        cluster.run(20);
        let (mut before, mut hung) = (0, 0);
        for _ in 0..100 {
            let found = cluster.run(1).findings();
            let [one] = &found[..] else { panic!("second {}: {found:#?}", cluster.second) };
            match one.kind {
                Kind::SlowRank if hung == 0 => {
                    assert_eq!(one.ranks, only(5));
                    before += 1;
                }
                _ => {
                    assert_eq!((one.kind, &one.ranks), (Kind::Hang, &only(6)));
                    hung += 1;
                }
            }
        }
        assert!((5..=15).contains(&before) && hung >= 85, "{before} {hung}");
    }
}

/// The cost is per step, not per collective: for four overlapping waits of 30 ms, at least a third of their
/// sum.
#[test]
fn lateness_is_reported_by_the_step() {
    let reported = |exposed: f64, transfers: f64| {
        let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Host { rank: 3, ms: 30.0 }]);
        (cluster.exposed, cluster.transfers) = (Some(exposed), transfers);
        let found = cluster.run(15).findings().remove(0);
        let cost = found.cost.unwrap();
        let figures = format!("costs {:.1} ms of a 111.1 ms step", cost.ms_per_step.unwrap());
        assert!(found.evidence.to_string().contains(&figures), "one figure: {figures}: {}", found.evidence);
        cost.ms_per_step.unwrap()
    };
    assert!((reported(0.36, 0.0) - 40.0).abs() < 0.1, "no more than GEMMs wait for");
    assert!((reported(0.36, 0.2) - 40.0).abs() < 0.1, "transfers are exposed on the late rank too");
    assert!(reported(1.0, 0.0) > 40.0);
}

/// Two ranks: one's GEMM rate falls, as on a shared GPU, without delaying the other.
#[test]
fn a_slow_rank_without_cost_is_not_reported() {
    for (seed, named) in [(1, false), (2, false), (3, true)] {
        let crowded = Fault::Crowded { rank: 1, factor: 1.5 };
        let late = Fault::Host { rank: 1, ms: if named { 40.0 } else { 0.0 } };
        let mut cluster = Cluster::new(seed, 2, Layout::Data, &[crowded, late]);
        cluster.from = 40;
        let found = cluster.run(70).findings();
        assert_eq!(is(&found, Class::Compute, 1), named, "{found:#?}");
        assert_eq!(found.len(), usize::from(named), "{found:#?}");
    }
}

#[test]
fn a_rank_that_waits_for_its_gpu_within_the_step_is_reported() {
    let faults = [Fault::Host { rank: 1, ms: 8.0 }, Fault::Items { rank: 1, calls: 20 }];
    let mut cluster = Cluster::new(1, 2, Layout::Data, &faults);
    cluster.from = 12;
    cluster.exposed = Some(0.2);
    let found = cluster.run(60).findings();
    assert!(is(&found, Class::Host, 1), "{found:#?}");
    assert!(
        found[0].evidence.to_string().contains("21 times a step, the others' 1 times"),
        "{}",
        found[0].evidence
    );
    assert!(found[0].advice.contains(".item()"), "{}", found[0].advice);
}

/// The cost determines the severity.
#[test]
fn severity_is_by_cost() {
    let severity = |ms: f64| {
        let mut cluster = Cluster::new(1, 8, Layout::Data, &[Fault::Host { rank: 3, ms }]);
        cluster.exposed = Some(1.0);
        let found = cluster.run(60).findings();
        assert_eq!(found.len(), 1, "{found:#?}");
        let cost = found[0].cost.unwrap();
        assert!(cost.gpu_hours > 0.0 && cost.ms_per_step.is_some());
        found[0].severity
    };
    assert_eq!((severity(3.0), severity(12.0)), (Severity::Slow, Severity::Critical));
}

/// The cost is that of the time since the fault began, not of all digests in the look-back.
#[test]
fn a_cost_is_right_from_its_first_seconds() {
    for fault in [Fault::Host { rank: 3, ms: 40.0 }, Fault::Compute { rank: 3, factor: 1.4 }] {
        let mut cluster = Cluster::new(1, 8, Layout::Data, &[fault]);
        (cluster.from, cluster.exposed) = (40, Some(0.5));
        cluster.run(39);
        let mut other = Cluster::new(1, 8, Layout::Data, &[fault]);
        other.exposed = cluster.exposed;
        let settled = other.run(60).findings();
        let ms_per_step = |found: &[Finding]| found.first()?.cost?.ms_per_step;
        let settled = ms_per_step(&settled).expect("a cost");
        let mut costs = Vec::new();
        for second in 40..140 {
            let found = cluster.run(1).findings();
            if let Some(cost) = ms_per_step(&found) {
                costs.push(cost);
                assert!((cost / settled - 1.0).abs() < 0.3, "second {second}: {cost} ms, settled {settled}");
                let (since_s, really) = (found[0].since_s, f64::from(second - 39));
                assert!(
                    (since_s - really).abs() <= 6.0,
                    "second {second}: since {since_s} s, really {really}"
                );
            }
        }
        assert!(costs.len() > 93, "{costs:?}");
    }
}
