mod ended;
mod figures;

use proptest::prelude::*;
use xpu_simulation::Simulation;
use xpu_wire::{
    codec,
    collective::Operation,
    frame::{Advance, Body, CollectiveSample, Event, Frame, Life, Progress, RankDigest, StepSource, example},
    id::Step,
    unit::Nanoseconds,
};

use super::*;
use crate::status::{ExitCode, RankState, Status};

fn folded(simulation: &Simulation, seconds: std::ops::RangeInclusive<u64>) -> Jobs {
    let mut jobs = Jobs::default();
    for frame in simulation.snapshots(*seconds.start()) {
        jobs.fold(&frame);
    }
    for second in seconds.skip(1) {
        for frame in simulation.digests(second) {
            jobs.fold(&frame);
        }
    }
    jobs
}

fn status(jobs: &Jobs) -> Status {
    Status::of(jobs, jobs.foremost().unwrap(), jobs.clock())
}

#[test]
fn a_healthy_job_has_its_figures() {
    let status = status(&folded(&Simulation::new(1, 2, 4), 10..=20));
    assert_eq!((status.world_size, status.ranks.len()), (8, 8));
    assert_eq!(status.exit_code(), ExitCode::Healthy);
    for rank in &status.ranks {
        let tflops = rank.gemm_tflops.unwrap().0;
        assert!((tflops / 640.0 - 1.0).abs() < 0.01, "{tflops}");
        let bus = rank.bus_gb_s.unwrap().0;
        assert!((bus / 350.0 - 1.0).abs() < 0.05, "{bus}");
        assert!((rank.step_ms_p50.unwrap() / 111.1 - 1.0).abs() < 0.01);
        assert_eq!(rank.state, RankState::Ok);
    }
}

/// The other ranks wait for rank 5. Their long durations must not lower the bandwidth shown, and rank 5 is
/// the late one.
#[test]
fn bandwidth_excludes_waiting_and_the_last_rank_is_the_straggler() {
    let mut simulation = Simulation::new(1, 2, 4);
    simulation.slow = vec![(Rank(5), 1.5)];
    let status = status(&folded(&simulation, 10..=20));
    for rank in &status.ranks {
        let bus = rank.bus_gb_s.unwrap().0;
        assert!((bus / 350.0 - 1.0).abs() < 0.05, "rank {}: {bus}", rank.rank);
        let late = rank.lateness_ms_p50.unwrap();
        assert_eq!(late > 5.0, rank.rank == Rank(5), "rank {}: {late} ms late", rank.rank);
    }
}

#[test]
fn a_snapshot_that_repeats_a_digest_changes_nothing() {
    let simulation = Simulation::new(3, 1, 2);
    let mut jobs = folded(&simulation, 5..=9);
    let before = status(&jobs);
    for frame in simulation.snapshots(9) {
        jobs.fold(&frame);
    }
    assert_eq!(status(&jobs), before);
}

#[test]
fn ranks_of_a_silent_host_are_unknown() {
    let simulation = Simulation::new(3, 2, 4);
    let mut jobs = Jobs::default();
    jobs.fold(&simulation.snapshots(5)[1]);
    let status = status(&jobs);
    assert_eq!((status.world_size, status.coverage.ranks_seen), (8, 4));
    // Unseen ranks are not known to be healthy.
    assert_eq!(status.exit_code(), ExitCode::NoData);
}

/// A viewer that sees only the waiting half of a communicator sees waiting, and no transfer.
#[test]
fn half_a_communicator_gives_no_bandwidth_with_the_reason() {
    let mut simulation = Simulation::new(1, 2, 4);
    simulation.slow = vec![(Rank(5), 1.5)];
    let mut jobs = Jobs::default();
    for second in 10..=20 {
        jobs.fold(&simulation.digests(second)[0]);
    }
    let half = status(&jobs);
    for rank in &half.ranks {
        assert_eq!((rank.bus_gb_s, rank.lateness_ms_p50), (None, None), "rank {}", rank.rank);
    }
    assert_eq!(half.coverage.joined_pct, Some(0.0));
    let seen = jobs.foremost().unwrap().partly_seen().unwrap();
    assert_eq!((seen.ranks, seen.of), (4, 8));
    let whole = folded(&simulation, 10..=20);
    assert_eq!(status(&whole).coverage.joined_pct, Some(100.0));
    assert_eq!(whole.foremost().unwrap().partly_seen(), None);
}

#[test]
fn a_job_that_ended_is_healthy_and_one_with_unreachable_hosts_is_not() {
    let simulation = Simulation::new(3, 2, 2);
    let mut status = status(&folded(&simulation, 5..=9));
    assert_eq!(status.exit_code(), ExitCode::Healthy);
    let why = "no collector listens".to_owned();
    status
        .coverage
        .hosts_unreachable
        .push(crate::status::UnreachableHost { host: "gpu-003".to_owned(), why });
    assert_eq!(status.exit_code(), ExitCode::NoData);
}

#[test]
fn blind_spots_and_refused_processes_are_in_the_document() {
    let simulation = Simulation::new(3, 2, 2);
    let mut jobs = folded(&simulation, 5..=9);
    for (host, mut frame) in simulation.digests(10).into_iter().enumerate() {
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        digest.turned_away = 1 + host as u32;
        digest.ranks[0].blind = vec!["XPU_TOP_SAMPLE is wrong".to_owned()];
        if host == 0 {
            digest.ranks[1].step_source = Some(StepSource::Optimizer);
        }
        jobs.fold(&frame);
    }
    jobs.fold(&Simulation { job: "eval".into(), ..Simulation::new(9, 1, 1) }.snapshots(1)[0]);
    let coverage = status(&jobs).coverage;
    let sources = "steps are marked by the program on 3 ranks, of an optimizer on 1 rank: their numbers may differ; \
        mark them on all ranks, or set XPU_TOP_STEPS";
    assert_eq!(coverage.blind, [sources, "XPU_TOP_SAMPLE is wrong"]);
    assert_eq!(coverage.turned_away, 3);
    assert_eq!(status(&jobs).other_jobs, ["eval".into()]);
}

#[test]
fn a_restarted_rank_starts_from_nothing() {
    let simulation = Simulation::new(3, 1, 2);
    let mut jobs = folded(&simulation, 5..=9);
    let mut frame = simulation.digests(1).remove(0);
    let Body::Digest(digest) = &mut frame.body else { unreachable!() };
    digest.ranks[0].pid = xpu_wire::id::Pid(9);
    digest.ranks[0].step = Some(Step(0));
    digest.ranks[0].gemm_timed_for = Nanoseconds(0);
    jobs.fold(&frame);
    let view = jobs.foremost().unwrap().rank(Rank(0)).unwrap();
    assert_eq!((view.step(), view.gemm_rate()), (Some(Step(0)), None));
}

#[test]
fn a_rank_that_died_is_a_finding_and_one_that_ended_is_not() {
    let simulation = Simulation::new(3, 1, 2);
    let mut jobs = folded(&simulation, 5..=9);
    let report = |jobs: &mut Jobs, rank: u32, life| {
        let event = Event::Life {
            job: simulation.job.clone(),
            rank: Rank(rank),
            pid: xpu_wire::id::Pid(4000 + rank),
            life,
        };
        jobs.fold(&Frame { body: Body::Event(event), ..simulation.digests(9).remove(0) });
    };
    report(&mut jobs, 0, Life::Ended);
    assert_eq!(status(&jobs).exit_code(), ExitCode::Healthy);
    report(&mut jobs, 1, Life::Died);
    let status = status(&jobs);
    assert_eq!(status.exit_code(), ExitCode::Hang);
    assert_eq!(status.findings[0].ranks, [Rank(1)]);
}

#[test]
fn what_stragglers_cost_belongs_to_one_run_of_the_job() {
    let simulation = Simulation::new(1, 1, 2);
    let mut jobs = folded(&simulation, 10..=12);
    let first = simulation.snapshots(12).remove(0);
    let Body::Snapshot(snapshot) = &first.body else { unreachable!() };
    let info = snapshot.jobs[0].ranks[0].info.clone();
    let unknown = JobWhatIf { job: "unknown".into(), ..example::what_if() };
    jobs.fold(&Frame { body: Body::WhatIf(unknown), ..first.clone() });
    assert_eq!(jobs.iter().count(), 1, "a sum makes no job");
    let of = JobWhatIf { job: simulation.job.clone(), at: Moment(info.started.0 + 9), ..example::what_if() };
    assert_eq!(jobs.foremost().unwrap().what_if(), None);
    jobs.fold(&Frame { body: Body::WhatIf(of.clone()), ..first.clone() });
    let revision = jobs.foremost().unwrap().revision();
    // The host repeats it.
    jobs.fold(&Frame { body: Body::WhatIf(of.clone()), ..first.clone() });
    assert_eq!(jobs.foremost().unwrap().revision(), revision);
    // The host of an earlier run repeats an older sum.
    let older = JobWhatIf { at: Moment(of.at.0 - 1), ..of.clone() };
    jobs.fold(&Frame { host: "former".into(), body: Body::WhatIf(older), ..first.clone() });
    assert_eq!(jobs.foremost().unwrap().what_if(), Some(&of));
    let again = RankInfo { pid: xpu_wire::id::Pid(1), started: Moment(of.at.0 + 1), ..info };
    jobs.fold(&Frame { body: Body::Event(Event::Joined(again)), ..first });
    assert_eq!(jobs.foremost().unwrap().what_if(), None);
}

#[test]
fn an_empty_job_has_no_figures_rather_than_zeros() {
    let jobs = Jobs::default();
    let status = Status::of(&jobs, &Job::new("empty".into()), Moment(0));
    assert_eq!((status.steps.min, status.steps.mean_ms), (None, None));
    assert_eq!(status.exit_code(), ExitCode::NoData);
}

#[test]
fn the_median_of_an_even_number_is_between() {
    assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
    assert_eq!(median(vec![]), None);
}

/// A viewer that connects to a job that has hung for hours has the finding at once.
#[test]
fn a_late_viewer_knows_since_when_a_rank_is_stuck() {
    let simulation = Simulation::new(3, 1, 2);
    let moved = Moment(simulation.snapshots(60)[0].now.0 - 40_000_000_000);
    // Digests arrive by another socket than snapshots, and may arrive first.
    for digests in [vec![], simulation.digests(60)] {
        let mut jobs = Jobs::default();
        let is_first = digests.is_empty();
        for frame in &digests {
            jobs.fold(frame);
        }
        for mut frame in simulation.snapshots(60) {
            if let Body::Snapshot(snapshot) = &mut frame.body {
                for rank in snapshot.jobs.iter_mut().flat_map(|job| &mut job.ranks) {
                    rank.advance = Advance { moved, worked: moved, paces: vec![Nanoseconds(7)] };
                }
            }
            jobs.fold(&frame);
        }
        let view = jobs.foremost().unwrap().ranks().next().unwrap().1;
        assert_eq!((view.stalled_for().as_secs(), view.idle_for().as_secs()), (40, 40));
        assert_eq!((view.gemm_rate(), view.step_time()), (None, None), "that was before");
        assert_eq!(view.pace() == Some(Nanoseconds(7)), is_first);
    }
}

/// One step a second until its collector was asked, ten a second from then on: half a minute has 17 seconds
/// of the first and 13 of the second.
#[test]
fn a_late_viewer_averages_over_the_same_half_minute() {
    let simulation = Simulation::new(3, 1, 1);
    let second = |second: u64| Moment(simulation.started.0 + second * 1_000_000_000);
    let mut digests = simulation.digests(60);
    let Body::Digest(digest) = &mut digests[0].body else { unreachable!() };
    let mut reported = digest.ranks.remove(0);
    let mut at = |seconds: u64, steps: u64| {
        (reported.heard, reported.step_at, reported.step) =
            (second(seconds), second(seconds), Some(Step(steps)));
        reported.clone()
    };
    let earlier: Vec<_> = (31..=60).map(|seconds| Progress::of(&at(seconds, seconds))).collect();
    let mut jobs = Jobs::default();
    let mut snapshots = simulation.snapshots(60);
    let Body::Snapshot(snapshot) = &mut snapshots[0].body else { unreachable!() };
    (snapshot.jobs[0].ranks[0].digest, snapshot.jobs[0].ranks[0].earlier) = (at(60, 60), earlier);
    jobs.fold(&snapshots[0]);
    for seconds in 61..=73 {
        let mut frames = simulation.digests(seconds);
        let Body::Digest(digest) = &mut frames[0].body else { unreachable!() };
        digest.ranks[0] = at(seconds, 60 + (seconds - 60) * 10);
        jobs.fold(&frames[0]);
    }
    let view = jobs.foremost().unwrap().rank(Rank(0)).unwrap();
    assert_eq!(view.step_time(), Some(Nanoseconds(30_000_000_000 / (17 + 130))));
}

/// A digest may repeat the last sum although the ledger has advanced. Its steps belong to the next sample.
#[test]
fn steps_counted_between_two_summaries_are_not_lost() {
    let simulation = Simulation::new(3, 1, 1);
    let mut jobs = folded(&simulation, 5..=9);
    let mut repeated = simulation.digests(10);
    let Body::Digest(digest) = &mut repeated[0].body else { unreachable!() };
    digest.ranks[0].heard = Moment(simulation.started.0 + 9_000_000_000);
    jobs.fold(&repeated[0]);
    jobs.fold(&simulation.digests(11)[0]);
    let view = jobs.foremost().unwrap().rank(Rank(0)).unwrap();
    assert_eq!(
        view.pace_samples().map(|sample| sample.steps).collect::<Vec<_>>(),
        [9.0, 9.0, 9.0, 9.0, 18.0]
    );
}

/// A rank's last message may be old when the rank ends. A viewer that connects later cannot know the time.
#[test]
fn the_end_of_a_process_is_reported_where_it_was_seen() {
    let simulation = Simulation::new(3, 1, 2);
    let mut jobs = folded(&simulation, 5..=9);
    let mut frame = simulation.digests(9).remove(0);
    frame.now = Moment(simulation.started.0 + 15_000_000_000);
    frame.body = Body::Event(Event::Life {
        job: simulation.job.clone(),
        rank: Rank(1),
        pid: xpu_wire::id::Pid(4001),
        life: Life::Died,
    });
    jobs.fold(&frame);
    let now = Moment(simulation.started.0 + 17_000_000_000);
    let found = |jobs: &Jobs| crate::finding::examine(jobs.foremost().unwrap(), now).remove(0);
    assert!(found(&jobs).evidence.to_string().contains("exit 2 s ago"), "{}", found(&jobs).evidence);
    let mut jobs = Jobs::default();
    for mut frame in simulation.snapshots(9) {
        let Body::Snapshot(snapshot) = &mut frame.body else { unreachable!() };
        snapshot.jobs[0].ranks[1].digest.life = Life::Died;
        jobs.fold(&frame);
    }
    assert!(
        found(&jobs).evidence.to_string().contains("exit; it last reported 8 s ago"),
        "{}",
        found(&jobs).evidence
    );
}

#[test]
fn a_job_that_is_not_shown_and_lost_a_rank_is_named() {
    let shown = Simulation::new(3, 1, 4);
    let other = Simulation { job: "eval".into(), ..Simulation::new(9, 1, 2) };
    let mut jobs = folded(&shown, 10..=20);
    other.snapshots(19).iter().chain(&other.digests(20)).for_each(|frame| jobs.fold(frame));
    let now = shown.digests(20)[0].now;
    let hang = |jobs: &Jobs| Status::of(jobs, jobs.get(&shown.job).unwrap(), now).other_jobs_hang;
    assert_eq!(hang(&jobs), []);
    let pid = jobs.get(&other.job).unwrap().rank(Rank(1)).unwrap().pid();
    let life = Event::Life { job: other.job.clone(), rank: Rank(1), pid, life: Life::Died };
    let gone = Frame { body: Body::Event(life), ..other.digests(20).remove(0) };
    jobs.fold(&gone);
    let status = Status::of(&jobs, jobs.get(&shown.job).unwrap(), now);
    assert_eq!(
        (&status.other_jobs_hang[..], status.exit_code()),
        (&[other.job.clone()][..], ExitCode::Healthy)
    );
    let pid = jobs.get(&other.job).unwrap().rank(Rank(0)).unwrap().pid();
    let life = Event::Life { job: other.job.clone(), rank: Rank(0), pid, life: Life::Died };
    jobs.fold(&Frame { body: Body::Event(life), ..other.digests(20).remove(0) });
    assert_eq!(hang(&jobs), [], "nobody is left of it: it is over");
}

fn frames() -> Vec<Frame> {
    let simulation = Simulation::new(7, 1, 2);
    let frame = |body| Frame { host: "a".into(), number: 3, now: Moment(9), lost: 1, body };
    let mut all = simulation.snapshots(4);
    all.extend(simulation.digests(5));
    all.extend([
        frame(Body::Exit(example::exit())),
        frame(Body::Stacks(example::stacks::rank(1, &["main", "train"]))),
        frame(Body::CaptureSheet(example::capture::sheet(&[0, 1]))),
        frame(Body::CapturePart(example::capture::part(1, 0))),
    ]);
    all
}

proptest! {
    #[test]
    fn a_frame_with_one_byte_changed_folds_without_a_panic(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let frames = frames();
        let mut bytes = codec::encode(which.get(&frames));
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(frame) = codec::decode(&bytes) {
            Jobs::default().fold(&frame);
        }
    }
}

/// Two stages of a pipeline: rank 0 sends, and rank 1 receives late every other time.
#[test]
fn a_message_has_the_bandwidth_of_the_end_that_came_last() {
    let simulation = Simulation::new(3, 1, 2);
    let mut jobs = Jobs::default();
    let send = |second: u64, frame: &mut Frame, slow: bool| {
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        for (place, rank) in digest.ranks.iter_mut().enumerate() {
            let operation = if place == 0 { Operation::Send } else { Operation::Recv };
            rank.communicators.truncate(1);
            (rank.communicators[0].rank, rank.communicators[0].size) = (place as u32, 8);
            rank.launches.point_to_point = second * 10;
            let message = |number: u64| CollectiveSample {
                communicator: 0,
                sequence: CollectiveSample::sequence_of(1 - place as u32, (second * 10 + number) as u32),
                operation,
                bus_bytes: 100_000_000,
                duration: Nanoseconds(
                    if (number % 2) as usize == place { 1_000_000 } else { 9_000_000 }
                        * if slow { 4 } else { 1 },
                ),
            };
            rank.samples = (0..10).map(message).collect();
        }
    };
    for second in 1..60 {
        for mut frame in simulation.digests(second) {
            send(second, &mut frame, second > 40);
            jobs.fold(&frame);
        }
        if second == 30 {
            for rank in &status(&jobs).ranks {
                assert_eq!(rank.bus_gb_s.map(|rate| rate.0), Some(100.0), "rank {}", rank.rank);
                assert_eq!(rank.lateness_ms_p50, None, "a stage that waits for the other is not late");
            }
        }
    }
    let status = status(&jobs);
    let slow = status.findings.iter().find(|finding| finding.kind == crate::finding::Kind::SlowLink);
    assert_eq!(slow.map(|slow| &slow.ranks[..]), Some(&[Rank(0), Rank(1)][..]), "{:?}", status.findings);
}
