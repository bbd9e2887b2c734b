//! Jobs that restart, ranks that return, and clocks that differ.

use xpu_simulation::Simulation;
use xpu_wire::{
    frame::{Body, Event, Life},
    id::Pid,
};

use super::*;

/// A viewer that was already connected.
#[test]
fn ranks_of_a_run_that_had_more_of_them_are_forgotten() {
    let (before, mut jobs) = (Simulation::new(7, 2, 4), Jobs::default());
    before.snapshots(4).iter().chain(&before.digests(5)).for_each(|frame| jobs.fold(frame));
    let ended = |jobs: &mut Jobs, ranks: std::ops::Range<u32>| {
        for rank in ranks {
            let pid = jobs.get(&before.job).unwrap().rank(Rank(rank)).unwrap().pid();
            let life = Event::Life { job: before.job.clone(), rank: Rank(rank), pid, life: Life::Died };
            let host = jobs.get(&before.job).unwrap().rank(Rank(rank)).unwrap().host().clone();
            jobs.fold(&Frame { host, number: 0, now: Moment(1), lost: 0, body: Body::Event(life) });
        }
    };
    ended(&mut jobs, 0..8);
    assert_eq!(jobs.get(&before.job).unwrap().ranks().len(), 8, "of a job that ended all is shown");
    let mut again = Simulation::new(7, 1, 4).snapshots(9).remove(0);
    if let Body::Snapshot(snapshot) = &mut again.body {
        for rank in &mut snapshot.jobs[0].ranks {
            rank.info.pid = Pid(rank.info.pid.0 + 1000);
            rank.digest.pid = rank.info.pid;
        }
    }
    jobs.fold(&again);
    let job = jobs.get(&before.job).unwrap();
    assert_eq!((job.ranks().len(), job.world_size(), job.living()), (4, 4, 4));
    assert_eq!(crate::finding::examine(job, again.now), []);
    // The host that is no longer used still reports them.
    before.snapshots(4).into_iter().skip(1).for_each(|mut frame| {
        let Body::Snapshot(snapshot) = &mut frame.body else { return };
        snapshot.jobs[0].ranks.iter_mut().for_each(|rank| rank.digest.life = Life::Died);
        jobs.fold(&frame);
    });
    assert_eq!(jobs.get(&before.job).unwrap().ranks().len(), 4);
}

/// The rank is missing, but its former end is not the reason. Its host still reports that end.
#[test]
fn a_rank_that_does_not_come_up_again_has_no_end() {
    let (simulation, mut jobs) = (Simulation::new(7, 2, 1), Jobs::default());
    simulation.snapshots(4).iter().chain(&simulation.digests(5)).for_each(|frame| jobs.fold(frame));
    let again = |jobs: &mut Jobs, began: Option<u64>| {
        for (host, mut frame) in simulation.snapshots(40).into_iter().enumerate() {
            let Body::Snapshot(snapshot) = &mut frame.body else { continue };
            let rank = &mut snapshot.jobs[0].ranks[0];
            if host == 0
                && let Some(second) = began
            {
                rank.info.started.0 += second * 1_000_000_000;
                rank.info.pid = Pid(rank.info.pid.0 + 1000);
                rank.digest.pid = rank.info.pid;
            } else {
                rank.digest.heard.0 -= 30 * 1_000_000_000;
                rank.digest.life = Life::Died;
            }
            jobs.fold(&frame);
        }
        jobs.get(&simulation.job).unwrap().ranks().map(|(rank, _)| rank).collect::<Vec<_>>()
    };
    assert_eq!(again(&mut jobs, None), [Rank(0), Rank(1)], "of a job that ended all is shown");
    let elastic = again(&mut jobs, Some(5));
    assert_eq!(elastic, [Rank(0), Rank(1)], "it ended after the other had begun");
    for _ in 0..2 {
        assert_eq!(again(&mut jobs, Some(20)), [Rank(0)]);
    }
    assert_eq!(jobs.get(&simulation.job).unwrap().world_size(), 2, "and one of two is missing");
}

/// The host of the other ranks was removed, so their end is not reported.
#[test]
fn ranks_of_a_lost_host_are_dropped_in_a_smaller_run() {
    let (before, mut jobs) = (Simulation::new(7, 2, 4), Jobs::default());
    before.snapshots(4).iter().chain(&before.digests(5)).for_each(|frame| jobs.fold(frame));
    let again = |jobs: &mut Jobs, seconds| {
        let mut frame = Simulation::new(7, 1, 4).snapshots(seconds).remove(0);
        if let Body::Snapshot(snapshot) = &mut frame.body {
            for rank in &mut snapshot.jobs[0].ranks {
                rank.info.pid = Pid(rank.info.pid.0 + 1000);
                rank.digest.pid = rank.info.pid;
            }
        }
        jobs.fold(&frame);
        jobs.get(&before.job).unwrap().ranks().len()
    };
    assert_eq!(again(&mut jobs, 20), 8, "a host may be late");
    assert_eq!(again(&mut jobs, 90), 4);
    assert_eq!(jobs.get(&before.job).unwrap().world_size(), 4);
}

#[test]
fn a_rank_considered_dead_has_not_ended_when_it_reports_again() {
    let (simulation, mut jobs) = (Simulation::new(7, 1, 2), Jobs::default());
    simulation.snapshots(4).iter().for_each(|frame| jobs.fold(frame));
    let (job, pid) =
        (simulation.job.clone(), jobs.get(&simulation.job).unwrap().rank(Rank(1)).unwrap().pid());
    let frame = |body| Frame {
        host: simulation.snapshots(4)[0].host.clone(),
        number: 0,
        now: Moment(9),
        lost: 0,
        body,
    };
    let life = |life| frame(Body::Event(Event::Life { job: job.clone(), rank: Rank(1), pid, life }));
    let exit = xpu_wire::frame::RankExit {
        job: job.clone(),
        rank: Rank(1),
        pid,
        ..xpu_wire::frame::example::exit()
    };
    jobs.fold(&life(Life::Died));
    jobs.fold(&frame(Body::Exit(exit)));
    assert!(jobs.get(&job).unwrap().rank(Rank(1)).unwrap().exit().is_some());
    jobs.fold(&life(Life::Alive));
    simulation.digests(70).iter().for_each(|frame| jobs.fold(frame));
    let view = jobs.get(&job).unwrap().rank(Rank(1)).unwrap();
    assert!(view.exit().is_none() && view.is_alive());
    assert!(
        crate::finding::examine(jobs.get(&job).unwrap(), Moment(9))
            .iter()
            .all(|it| it.kind != crate::finding::Kind::Exited)
    );
}

/// The clock of one host is five minutes behind.
#[test]
fn the_end_of_a_rank_is_in_its_own_hosts_clock() {
    let (simulation, mut jobs) = (Simulation::new(7, 2, 2), Jobs::default());
    let behind = |mut frame: Frame| {
        let late = if frame.host == simulation.snapshots(1)[1].host { 300_000_000_000 } else { 0 };
        frame.now = Moment(frame.now.0 - late);
        if let Body::Snapshot(snapshot) = &mut frame.body {
            snapshot.jobs[0].ranks.iter_mut().for_each(|rank| rank.digest.heard.0 -= late);
        }
        frame
    };
    let mut now = Moment(0);
    for frame in simulation.snapshots(400) {
        now = now.max(frame.now);
        let mut frame = behind(frame);
        if let Body::Snapshot(snapshot) = &mut frame.body {
            snapshot.jobs[0].ranks.iter_mut().for_each(|rank| rank.digest.heard.0 -= 5_000_000_000);
            snapshot.jobs[0].ranks[1].digest.life = Life::Died;
        }
        jobs.fold(&frame);
    }
    assert_eq!(jobs.clock(), now);
    let found = crate::finding::examine(jobs.foremost().unwrap(), now);
    let dead = found.iter().find(|it| it.kind == crate::finding::Kind::Exited).unwrap();
    assert!((4.0..7.0).contains(&dead.since_s), "{dead:?}");
}

/// The first digest of a restarted collector contains nothing about ranks that it has not heard.
#[test]
fn state_of_ranks_survives_a_restart_of_their_collector() {
    let mut simulation = Simulation::new(7, 2, 4);
    simulation.slow = vec![(Rank(5), 1.5)];
    let mut jobs = Jobs::default();
    simulation.snapshots(4).iter().for_each(|frame| jobs.fold(frame));
    (5..40).flat_map(|second| simulation.digests(second)).for_each(|frame| jobs.fold(&frame));
    let found = |jobs: &Jobs| crate::finding::examine(jobs.get(&simulation.job).unwrap(), Moment(9));
    let before = found(&jobs);
    assert_eq!(before.len(), 1);
    let mut restarted = simulation.digests(40).remove(1);
    let Body::Digest(digest) = &mut restarted.body else { unreachable!() };
    for rank in &mut digest.ranks {
        (rank.step, rank.launches, rank.gemm_flops) = (None, xpu_wire::frame::Launches::default(), 0.0);
        (rank.gemm_timed_flops, rank.gemm_timed_for) = (0.0, xpu_wire::unit::Nanoseconds(0));
        (rank.communicators, rank.samples) = (Vec::new(), Vec::new());
    }
    jobs.fold(&restarted);
    assert_eq!(found(&jobs), before);
    let view = jobs.get(&simulation.job).unwrap().rank(Rank(5)).unwrap();
    assert!(view.step().is_some() && view.gemm_rate().is_some());
}
