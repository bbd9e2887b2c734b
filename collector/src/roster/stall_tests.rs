use std::process::id;

use xpu_wire::{
    frame::{RankInfo, StepSource, Steps, Summary, TimedBy, Work},
    histogram::Histogram,
    id::{Pid, Step},
    unit::Nanoseconds,
};

use super::*;
use crate::address::Identity;

fn at(seconds: f64) -> Moment {
    Moment(1_000_000_000_000 + (seconds * 1e9) as u64)
}

fn who(rank: u32) -> Identity {
    Identity(vec![rank as u8])
}

fn info(rank: u32, ranks: u32) -> RankInfo {
    RankInfo {
        job: "a".into(),
        rank: Rank(rank),
        world_size: ranks,
        local_rank: None,
        pid: Pid(id()),
        started: at(0.0),
        program: String::new(),
        version: String::new(),
        ledger: None,
    }
}

/// A job's ranks, which completed their first step at 0 s.
fn trained(ranks: u32, milliseconds: u64) -> Roster {
    let mut roster = Roster::default();
    for rank in 0..ranks {
        roster.hello(&who(rank), 0, info(rank, ranks), at(0.0));
        step(&mut roster, rank, 1, milliseconds, at(0.0));
    }
    roster.digests(at(0.5));
    roster
}

fn step(roster: &mut Roster, rank: u32, completed: u64, milliseconds: u64, now: Moment) {
    let mut durations = Histogram::new();
    durations.record(Nanoseconds(milliseconds * 1_000_000));
    let source = StepSource::Marked;
    let steps = Steps {
        source,
        completed: Step(completed),
        at: now,
        durations,
        timed_by: TimedBy::Host,
        optimizer: String::new(),
        work: Work::default(),
    };
    let mut summary = Summary { steps: Some(steps), ..Summary::default() };
    summary.hook.enabled = true;
    roster.summary(&who(rank), completed, summary, now);
}

fn read(roster: &mut Roster, rank: u32, now: Moment) {
    let stacks = RankStacks::unread("a".into(), Rank(rank), Pid(id()), String::new());
    let held_for_native = Some(Nanoseconds(1_000_000));
    roster.keep(&mut RankStacks { read_at: now, held_for_native, why: Vec::new(), ..stacks }, now);
}

fn fail(roster: &mut Roster, rank: u32, now: Moment) {
    let stacks = RankStacks::unread("a".into(), Rank(rank), Pid(id()), "it took too long".to_owned());
    roster.keep(&mut RankStacks { read_at: now, ..stacks }, now);
}

fn stalled(roster: &Roster, seconds: f64) -> Vec<u32> {
    roster.stalled(at(seconds)).into_iter().map(|target| target.rank.0).collect()
}

#[test]
fn all_ranks_of_a_hung_job_are_read_once() {
    let mut roster = trained(2, 100);
    assert_eq!(stalled(&roster, 9.0), [0_u32; 0]);
    assert_eq!(stalled(&roster, 10.0), [0, 1]);
    (0..2).for_each(|rank| read(&mut roster, rank, at(10.0)));
    assert_eq!(stalled(&roster, 1000.0), [0_u32; 0]);
}

fn read_by_hand(roster: &mut Roster, rank: u32, now: Moment) {
    let stacks = RankStacks::unread("a".into(), Rank(rank), Pid(id()), String::new());
    roster.keep(&mut RankStacks { read_at: now, why: Vec::new(), ..stacks }, now);
}

/// A request early in a hang reads Python frames; native ones are still read, and kept.
#[test]
fn a_dump_by_hand_does_not_replace_the_dump_of_a_stall() {
    let mut roster = trained(1, 100);
    read_by_hand(&mut roster, 0, at(3.0));
    assert_eq!(stalled(&roster, 10.0), [0]);
    let asked = |roster: &Roster, natively| {
        let FoundStacks { known, .. } = roster.stacks(&"a".into(), &[], true, natively, at(11.0)).unwrap();
        known.iter().map(|stacks| stacks.read_at).collect::<Vec<_>>()
    };
    assert_eq!((asked(&roster, false), asked(&roster, true)), (vec![at(3.0)], vec![]));
    read(&mut roster, 0, at(10.0));
    read_by_hand(&mut roster, 0, at(10.5));
    assert_eq!((stalled(&roster, 1000.0), asked(&roster, true)), (vec![], vec![at(10.0)]));
    // Once the rank has moved, earlier stacks are out of date.
    step(&mut roster, 0, 2, 100, at(20.0));
    read_by_hand(&mut roster, 0, at(21.0));
    assert_eq!(roster.stacks(&"a".into(), &[], true, false, at(500.0)).unwrap().known[0].read_at, at(21.0));
}

#[test]
fn a_rank_that_could_not_be_read_is_read_again_twice() {
    let mut roster = trained(2, 100);
    read(&mut roster, 0, at(10.0));
    fail(&mut roster, 1, at(10.0));
    assert_eq!((stalled(&roster, 24.0), stalled(&roster, 25.0)), (vec![], vec![1]));
    fail(&mut roster, 1, at(30.0));
    assert_eq!((stalled(&roster, 44.0), stalled(&roster, 45.0)), (vec![], vec![1]));
    fail(&mut roster, 1, at(50.0));
    assert_eq!(stalled(&roster, 1000.0), [0_u32; 0], "it has failed three times");
    // In the next hang, it has as many attempts.
    step(&mut roster, 1, 2, 100, at(1000.0));
    assert_eq!(stalled(&roster, 1012.0), [0, 1]);
    read(&mut roster, 0, at(1012.0));
    fail(&mut roster, 1, at(1012.0));
    assert_eq!(stalled(&roster, 1027.0), [1]);
    read(&mut roster, 1, at(1028.0));
    assert_eq!(stalled(&roster, 2000.0), [0_u32; 0], "it was read");
}

#[test]
fn a_rank_with_progress_prevents_a_hang() {
    let mut roster = trained(2, 100);
    step(&mut roster, 1, 2, 100, at(8.0));
    assert_eq!(stalled(&roster, 10.0), [0_u32; 0]);
    assert_eq!(stalled(&roster, 18.0), [0, 1]);
}

#[test]
fn slow_steps_have_a_longer_patience() {
    let roster = trained(1, 4000);
    assert_eq!((stalled(&roster, 19.0), stalled(&roster, 21.0)), (vec![], vec![0]));
}

#[test]
fn a_job_that_hangs_repeatedly_is_read_once_a_minute() {
    let mut roster = trained(1, 100);
    read(&mut roster, 0, at(10.0));
    step(&mut roster, 0, 2, 100, at(20.0));
    assert_eq!(stalled(&roster, 40.0), [0_u32; 0]);
    assert_eq!(stalled(&roster, 71.0), [0]);
}

#[test]
fn a_dump_since_the_last_progress_is_reused_for_requests_that_accept_it() {
    let mut roster = trained(2, 100);
    read(&mut roster, 0, at(10.0));
    let asked = |roster: &Roster, kept, seconds| {
        let FoundStacks { known, targets } =
            roster.stacks(&"a".into(), &[], kept, false, at(seconds)).unwrap();
        let known: Vec<_> = known.iter().map(|stacks| stacks.rank.0).collect();
        (known, targets.iter().map(|target| target.rank.0).collect::<Vec<_>>())
    };
    assert_eq!(asked(&roster, true, 500.0), (vec![0], vec![1]));
    assert_eq!(asked(&roster, false, 500.0), (vec![], vec![0, 1]));
    // Another rank moved, so this is another hang.
    step(&mut roster, 1, 2, 100, at(600.0));
    assert_eq!(asked(&roster, true, 601.0), (vec![], vec![0, 1]));
    read(&mut roster, 0, at(601.0));
    step(&mut roster, 1, 3, 100, at(602.0));
    assert_eq!(asked(&roster, true, 603.0), (vec![0], vec![1]), "it is recent");
}

#[test]
fn stacks_read_before_the_end_remain_after_it() {
    let mut roster = trained(1, 100);
    read(&mut roster, 0, at(10.0));
    roster.goodbye(&who(0), at(11.0));
    let FoundStacks { known, targets } = roster.stacks(&"a".into(), &[], true, false, at(60.0)).unwrap();
    assert_eq!((known.len(), targets.len()), (1, 0));
    assert!(roster.stacks(&"a".into(), &[], false, false, at(60.0)).is_none());
    assert!(roster.stacks(&"b".into(), &[], true, false, at(60.0)).is_none());
}

#[test]
fn stacks_of_another_process_are_not_kept() {
    let mut roster = trained(1, 100);
    roster.keep(&mut RankStacks::unread("a".into(), Rank(0), Pid(1), String::new()), at(60.0));
    assert_eq!(roster.stacks(&"a".into(), &[], true, false, at(60.0)).unwrap().known, []);
}

/// A second fault in the same hang: no rank has moved, but stacks read before the fault are out of date.
#[test]
fn remaining_ranks_are_read_again_after_a_rank_is_gone() {
    let mut roster = trained(2, 100);
    (0..2).for_each(|rank| read(&mut roster, rank, at(10.0)));
    roster.goodbye(&who(1), at(40.0));
    let asked = |roster: &Roster, seconds| {
        let FoundStacks { known, targets } =
            roster.stacks(&"a".into(), &[], true, false, at(seconds)).unwrap();
        let known: Vec<_> = known.iter().map(|stacks| stacks.rank.0).collect();
        (known, targets.iter().map(|target| target.rank.0).collect::<Vec<_>>())
    };
    assert_eq!(asked(&roster, 41.0), (vec![1], vec![0]), "of who is gone there is nothing newer");
    read(&mut roster, 0, at(42.0));
    assert_eq!(asked(&roster, 43.0), (vec![0, 1], vec![]));
}

/// Reading the GPUs of a rank ends it, and with it the job.
#[test]
fn gpus_are_read_only_of_a_job_none_of_whose_ranks_advances() {
    let mut roster = trained(2, 100);
    let asked = |roster: &Roster, ranks: &[Rank], seconds| {
        let FoundStacks { known: refused, targets } =
            roster.gpu_stacks(&"a".into(), ranks, at(seconds)).unwrap();
        let why = refused.first().map(|stacks| stacks.why[0].clone()).unwrap_or_default();
        (why, targets.iter().map(|target| (target.rank.0, target.gpus.is_some())).collect::<Vec<_>>())
    };
    let (why, targets) = asked(&roster, &[], 5.0);
    assert!(why.starts_with("it makes progress") && targets.is_empty(), "{why} {targets:?}");
    assert_eq!(asked(&roster, &[], 20.0), (String::new(), vec![(0, true), (1, true)]));
    // The other rank continues.
    step(&mut roster, 1, 2, 100, at(20.0));
    let (why, targets) = asked(&roster, &[Rank(0)], 21.0);
    assert!(why.starts_with("it makes progress") && targets.is_empty(), "{why} {targets:?}");
    assert_eq!(asked(&roster, &[Rank(0)], 40.0), (String::new(), vec![(0, true)]));
    // With the hook paused, steps are not seen.
    let mut summary = Summary::default();
    summary.hook.enabled = false;
    roster.summary(&who(1), 3, summary, at(40.0));
    let (why, targets) = asked(&roster, &[], 60.0);
    assert!(why.contains("its hook is off") && targets.is_empty(), "{why} {targets:?}");
    assert!(roster.gpu_stacks(&"b".into(), &[], at(60.0)).is_none());
}

#[test]
fn gpus_of_a_program_without_steps_and_communicators_are_not_read() {
    let mut roster = Roster::default();
    roster.hello(&who(0), 0, info(0, 1), at(0.0));
    let mut summary = Summary::default();
    summary.hook.enabled = true;
    roster.summary(&who(0), 1, summary, at(1.0));
    let FoundStacks { known: refused, targets } = roster.gpu_stacks(&"a".into(), &[], at(600.0)).unwrap();
    assert!(targets.is_empty() && refused[0].why[0].contains("no steps"), "{refused:?}");
}
