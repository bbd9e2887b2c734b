//! Healthy jobs, in which nothing must be found.

use xpu_wire::{
    frame::{Body, HostWork, Life},
    id::{Rank, Step},
    ledger::Call,
    unit::Nanoseconds,
};

use super::cluster::{Cluster, Fault, Layout, hold, wait};
use crate::finding::may_hang;

const SEEDS: std::ops::Range<u64> = 0..10;

const HEALTHY: [(&str, Layout, &[Fault]); 12] = [
    ("a little late", Layout::Data, &[Fault::Host { rank: 2, ms: 3.0 }]),
    ("equal ranks", Layout::Data, &[]),
    ("chance", Layout::Data, &[Fault::Jitter { ms: 15.0 }, Fault::Spread { share: 0.06 }]),
    (
        "a stage of other shapes, later than the others",
        Layout::Pipeline { stages: 2 },
        &[Fault::SlowStage { stage: 1, share: 0.7, ms: 20.0 }],
    ),
    ("stages that are alike", Layout::Pipeline { stages: 2 }, &[Fault::Jitter { ms: 5.0 }]),
    ("experts with more to do, another in every step", Layout::Data, &[Fault::Imbalance { ms: 40.0 }]),
    ("an expert with more to do", Layout::Experts, &[Fault::MoreWork { rank: 3, factor: 1.5, ms: 30.0 }]),
    (
        "a rank of a stage with more to do",
        Layout::Pipeline { stages: 2 },
        &[Fault::MoreWork { rank: 3, factor: 1.5, ms: 30.0 }],
    ),
    ("more to do, and nobody waits", Layout::Data, &[Fault::MoreWork { rank: 3, factor: 1.5, ms: 0.0 }]),
    ("a pause now and then", Layout::Data, &[Fault::Pauses { rank: 2, ms: 80.0, every: 6 }]),
    (
        "late, and it waits for its GPU as long as the others",
        Layout::Data,
        &[Fault::Host { rank: 3, ms: 40.0 }, Fault::Waits { rank: 3, less: 0.05 }],
    ),
    ("a slightly slower GPU", Layout::Data, &[Fault::Compute { rank: 5, factor: 1.05 }]),
];

#[test]
fn nothing_is_found_in_healthy_jobs() {
    for (name, layout, faults) in HEALTHY {
        for (ranks, seeds) in [(8, SEEDS), (64, 0..3)] {
            for seed in seeds {
                let mut cluster = Cluster::new(seed, ranks, layout, faults);
                for _ in 0..40 {
                    let found = cluster.run(1).findings();
                    assert_eq!(found, [], "{name}, {ranks} ranks, seed {seed}, second {}", cluster.second);
                }
            }
        }
    }
}

#[test]
fn nothing_is_found_in_a_healthy_job_of_a_thousand() {
    let faults = [Fault::Jitter { ms: 10.0 }, Fault::Spread { share: 0.06 }];
    let mut cluster = Cluster::new(7, 1024, Layout::Data, &faults);
    assert_eq!(cluster.run(8).findings(), []);
}

/// Everything pauses, but no rank waits in a collective for another: evaluation, a checkpoint, the end.
#[test]
fn a_pause_of_all_is_no_hang() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(10, |_, _| {});
    assert_eq!(cluster.run(60).findings(), []);
}

#[test]
fn ranks_that_ended_are_no_hang() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(10, |rank, digest| {
        if rank > 0 {
            digest.life = Life::Ended;
        }
    });
    assert_eq!(cluster.run(60).findings(), []);
}

/// Steps of ten seconds: a healthy job may show no progress for fifty seconds.
#[test]
fn a_slow_job_is_no_hang() {
    let change = |rank: u32, digest: &mut xpu_wire::frame::RankDigest| {
        digest.step = Some(Step(5));
        (digest.step_median, digest.step_count) = (Some(Nanoseconds(10_000_000_000)), 1);
        if rank != 6 {
            wait(digest, 0, 1);
        }
    };
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(0, change);
    let (found, seconds) = cluster.until_found(200);
    assert!(seconds >= 45, "{found:?} after {seconds} s");
    assert_eq!(found[0].ranks, super::cluster::only(6));
}

/// The first step compiles kernels and sets up connections.
#[test]
fn a_slow_start_is_no_hang() {
    let change = |rank: u32, digest: &mut xpu_wire::frame::RankDigest| {
        digest.step = Some(Step(0));
        (digest.communicators[0].entered, digest.communicators[0].completed) = (0, 0);
        if rank != 6 {
            wait(digest, 0, 1);
        }
    };
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(0, change);
    assert_eq!(cluster.run(55).findings(), []);
    let (found, _) = cluster.until_found(80);
    assert_eq!(found[0].ranks, super::cluster::only(6));
}

/// The rank is behind, but works: a checkpoint, an evaluation.
#[test]
fn a_rank_that_still_launches_is_given_time() {
    let change = |rank: u32, digest: &mut xpu_wire::frame::RankDigest| {
        if rank == 0 {
            digest.launches.kernels += digest.heard.0 / 1_000_000_000;
        } else {
            wait(digest, 0, 1);
        }
    };
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(10, change);
    assert_eq!(cluster.run(120).findings(), []);
    assert_eq!(cluster.until_found(160).0.len(), 1);
}

/// A checkpoint of a minute that makes no CUDA call, and a checkpoint that is stuck.
#[test]
fn a_rank_that_works_on_its_cpu_is_given_time() {
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(10, |rank, digest| {
        if rank != 0 {
            wait(digest, 0, 1);
        }
    });
    let busy = |cluster: &mut Cluster| {
        let pid = cluster.job().rank(Rank(0)).unwrap().pid();
        let ranks = vec![(Rank(0), pid)];
        cluster.fold([Body::Work(HostWork { job: cluster.job().name().clone(), ranks })]);
    };
    for second in 0..75 {
        cluster.run(1);
        busy(&mut cluster);
        assert_eq!(cluster.findings(), [], "second {second}");
        // Viewers then ask for the records: what the rank called may show that the others wait in vain.
        assert!(second > 15 || !may_hang(cluster.job()), "second {second}");
        assert!(second < 25 || may_hang(cluster.job()), "second {second}");
    }
    // The rank is reported at the latest when it has done nothing for as long as it had worked.
    let seconds = (0..90).find(|_| !cluster.run(1).findings().is_empty()).unwrap();
    assert!((40..=70).contains(&seconds), "{seconds}");
}

/// Unobserved ranks are not known to hang.
#[test]
fn a_hook_that_is_off_reports_no_hang() {
    let change = |rank: u32, digest: &mut xpu_wire::frame::RankDigest| {
        digest.enabled = false;
        if rank != 6 {
            wait(digest, 0, 1);
        }
    };
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(10, change);
    assert_eq!(cluster.run(60).findings(), []);
}

/// The seven observed ranks wait for an unknown one, so no rank can be named.
#[test]
fn an_unseen_rank_is_not_mistaken_for_a_stuck_kernel() {
    let change = |_: u32, digest: &mut xpu_wire::frame::RankDigest| {
        digest.communicators[0].size = 9;
        wait(digest, 0, 1);
        hold(digest, Call::StreamSynchronize);
    };
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(10, change);
    assert_eq!(cluster.run(60).findings(), []);
}

/// The job paused for ten seconds and continued. The next pause may take half as long again.
#[test]
fn a_known_long_pause_may_repeat() {
    let change = |rank: u32, digest: &mut xpu_wire::frame::RankDigest| {
        let second = (digest.heard.0 - 1_800_000_000_000_000_000) / 1_000_000_000;
        let more = u64::from(second >= 22);
        let state = &mut digest.communicators[0];
        (state.entered, state.enqueued, state.completed) =
            (state.entered + more, state.enqueued + more, state.completed + more);
        if rank != 6 {
            wait(digest, 0, 1);
        }
    };
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(10, change);
    assert_eq!(cluster.run(21).findings().len(), 1);
    for _ in 22..36 {
        let found = cluster.run(1).findings();
        assert_eq!(found, [], "second {}", cluster.second);
    }
    assert_eq!(cluster.run(8).findings().len(), 1);
}

/// Compilers work without a CUDA call for longer than the patience for a hang. The patience is a minute until
/// all ranks have done a step.
#[test]
fn a_rank_before_its_first_step_may_still_compile() {
    let change = |rank: u32, digest: &mut xpu_wire::frame::RankDigest| {
        digest.step = Some(Step(u64::from(rank != 6)));
        if rank != 6 {
            wait(digest, 0, 1);
        }
    };
    let mut cluster = Cluster::new(1, 8, Layout::Data, &[]).hang_from(0, change);
    assert_eq!(cluster.run(55).findings(), []);
}

/// If bandwidth fluctuates in any case, a low value proves nothing.
#[test]
fn a_link_that_wavers_is_not_slow() {
    let faults = [Fault::Scatter { share: 0.9 }, Fault::Link { factor: 1.5 }];
    for seed in 0..4 {
        let mut cluster = Cluster::new(seed, 8, Layout::Data, &faults);
        for _ in 0..60 {
            assert_eq!(cluster.run(1).findings(), [], "seed {seed}, second {}", cluster.second);
        }
    }
}
