use std::{
    process::{self, Child, Stdio, id},
    time::Instant,
};

use xpu_wire::{
    collective::Operation,
    frame::{
        CollectiveSample, CommunicatorState, DeviceReading, Inside, Launches, Progress, RankDigest, RankExit,
        RankStacks, StepSource, Steps, ThreadStack, TimedBy, Work, example,
    },
    histogram::Histogram,
    id::{CommunicatorId, DeviceUuid, Pid, Sequence, Step},
    ledger::{Call, LedgerPage, Writers},
    unit::Nanoseconds,
};

use super::*;

fn at(seconds: f64) -> Moment {
    Moment(1_000_000_000_000 + (seconds * 1e9) as u64)
}

fn who(name: &str) -> Identity {
    Identity(name.as_bytes().to_vec())
}

fn info(job: &str, rank: u32) -> RankInfo {
    RankInfo {
        job: job.into(),
        rank: Rank(rank),
        world_size: 2,
        local_rank: None,
        pid: Pid(id()),
        started: at(0.0),
        program: "python train.py".to_owned(),
        version: "1".to_owned(),
        ledger: None,
    }
}

fn steps(completed: u64, milliseconds: u64) -> Summary {
    let mut durations = Histogram::new();
    durations.record(Nanoseconds(milliseconds * 1_000_000));
    let steps = Steps {
        source: StepSource::Marked,
        completed: Step(completed),
        at: at(1.0),
        durations,
        timed_by: TimedBy::Host,
        optimizer: String::new(),
        work: Work::default(),
    };
    Summary { interval: Nanoseconds(1_000_000_000), steps: Some(steps), ..Summary::default() }
}

fn state(id: u64) -> CommunicatorState {
    CommunicatorState {
        id: CommunicatorId(id),
        parent: None,
        name: String::new(),
        rank: 0,
        size: 2,
        entered: 1,
        enqueued: 1,
        completed: 1,
        last_operation: Some(Operation::AllReduce),
        last_bytes: 4,
    }
}

fn lives(effects: &[Effect]) -> Vec<Life> {
    let life = |effect: &Effect| match effect {
        Effect::Publish(body) => match **body {
            Body::Event(Event::Life { life, .. }) => Some(life),
            _ => None,
        },
        _ => None,
    };
    effects.iter().filter_map(life).collect()
}

#[test]
fn an_unknown_worker_is_asked_to_introduce_itself_once() {
    let mut roster = Roster::default();
    let asked = [Effect::Command(who("x"), Command::Introduce)];
    assert_eq!(roster.summary(&who("x"), 5, steps(1, 1), at(0.0)), asked);
    assert_eq!(roster.summary(&who("x"), 6, steps(2, 1), at(1.0)), []);
    assert_eq!(roster.summary(&who("x"), 7, steps(3, 1), at(6.0)), asked);
}

#[test]
fn a_digest_covers_every_summary_once() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    roster.summary(&who("x"), 1, steps(1, 10), at(1.0));
    roster.summary(&who("x"), 2, steps(2, 30), at(1.1));
    let digest = roster.digests(at(99.0))[0].ranks[0].clone();
    assert_eq!((digest.step, digest.step_count), (Some(Step(2)), 2));
    let again = roster.digests(at(99.0))[0].ranks[0].clone();
    assert_eq!((again.step_count, again.step_median, again.heard), (0, None, digest.heard));
}

/// A program destroys its communicators before it ends. Their last timed collectives are still published.
#[test]
fn the_last_samples_of_a_closed_communicator_are_reported() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    let sample = CollectiveSample {
        communicator: 0,
        sequence: Sequence(3),
        operation: Operation::AllReduce,
        bus_bytes: 8,
        duration: Nanoseconds(5),
    };
    let open = Summary { communicators: vec![state(7)], samples: vec![sample], ..steps(1, 1) };
    roster.summary(&who("x"), 1, open, at(1.0));
    roster.summary(&who("x"), 2, steps(2, 1), at(1.1));
    let last = roster.digests(at(99.0))[0].ranks[0].clone();
    assert_eq!((&last.samples[..], &last.communicators[..]), (&[sample][..], &[state(7)][..]));
    assert_eq!(roster.digests(at(99.0))[0].ranks[0].communicators, []);
    assert_eq!(roster.snapshot()[0].ranks[0].digest.samples, []);
    roster.goodbye(&who("x"), at(2.0));
    let late = roster.snapshot()[0].ranks[0].digest.clone();
    assert_eq!(
        (late.samples, late.communicators, late.step),
        (last.samples, last.communicators, Some(Step(2)))
    );
}

#[test]
fn a_gap_in_a_workers_frames_triggers_a_request() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    assert!(
        !roster.summary(&who("x"), 1, steps(1, 1), at(1.0)).iter().any(|e| matches!(e, Effect::Command(..)))
    );
    let after_gap = roster.summary(&who("x"), 9, steps(9, 1), at(2.0));
    assert!(after_gap.contains(&Effect::Command(who("x"), Command::Introduce)));
}

#[test]
fn silence_is_reported_until_the_rank_reports_again() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    assert_eq!(roster.check(at(4.9)), []);
    assert_eq!(lives(&roster.check(at(5.0))), [Life::Silent]);
    assert_eq!(roster.check(at(6.0)), []);
    assert_eq!(lives(&roster.summary(&who("x"), 1, steps(1, 1), at(7.0))), [Life::Alive]);
    assert_eq!(roster.living(), 1);
}

/// The rank's process is in another container, and cannot be seen from here.
#[test]
fn a_rank_considered_dead_lives_when_it_reports_again() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, RankInfo { pid: Pid(u32::MAX), ..info("j", 0) }, at(0.0));
    assert_eq!(lives(&roster.check(at(61.0))), [Life::Died]);
    let end = RankExit { job: "j".into(), rank: Rank(0), pid: Pid(u32::MAX), ..example::exit() };
    roster.keep_exit(&end);
    assert_eq!((roster.living(), roster.exits()), (0, vec![end]));
    assert_eq!(lives(&roster.summary(&who("x"), 1, steps(1, 1), at(62.0))), [Life::Alive]);
    let digest = roster.digests(at(63.0))[0].ranks[0].clone();
    assert_eq!((digest.life, digest.step, roster.living()), (Life::Alive, Some(Step(1)), 1));
    assert_eq!(roster.exits(), []);
}

/// What the hook has taken since the process began belongs to no interval that a new collector knows.
#[test]
fn the_first_summary_says_nothing_about_the_overhead() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    let mut overhead_with = |number: u64, spent: u64| {
        let mut summary = steps(number, 1);
        summary.hook.spent = Nanoseconds(spent);
        roster.summary(&who("x"), number, summary, at(number as f64));
        roster.digests(at(number as f64 + 0.5))[0].ranks[0].overhead_ppm
    };
    assert_eq!(overhead_with(1, 3_200_000_000), 0);
    assert_eq!(overhead_with(2, 3_200_100_000), 100);
}

/// A rank hangs with its hook's thread stopped. Its last operations are in its ledger page.
#[test]
fn a_silent_rank_is_read_from_its_ledger() {
    let page = LedgerPage::create().unwrap();
    let line = &page.ledger().communicators[0];
    line.open(CommunicatorId(7), 0, 2);
    let mut roster = Roster::default();
    let ledger = page.descriptor().map(|fd| fd as u32);
    roster.hello(&who("x"), 0, RankInfo { ledger, ..info("j", 0) }, at(0.0));
    roster.summary(&who("x"), 1, Summary { communicators: vec![state(7)], ..steps(3, 1) }, at(1.0));
    page.ledger().step(Step(9), at(1.5));
    line.enter(CommunicatorId(7), 5, Operation::Broadcast, 64, at(1.6), Writers::One);
    line.enqueue(CommunicatorId(7), 4, Writers::One);
    assert!(page.ledger().threads[0].claim(42));
    page.ledger().threads[0].enter(Call::StreamSynchronize, at(2.0));
    roster.check(at(7.0));
    let digest = roster.digests(at(99.0))[0].ranks[0].clone();
    assert_eq!((digest.life, digest.step), (Life::Silent, Some(Step(9))));
    let reported = &digest.communicators[0];
    assert_eq!((reported.entered, reported.enqueued, reported.completed), (5, 4, 1));
    assert_eq!((reported.last_operation, reported.last_bytes), (Some(Operation::Broadcast), 64));
    let waited = Nanoseconds(97_000_000_000);
    assert_eq!(digest.inside, [Inside { thread: 42, call: Call::StreamSynchronize, waited }]);
}

/// A process that has this page open as descriptor 9 but, as after `exec`, not mapped. It waits until its
/// input ends.
fn without_mapping(page: &LedgerPage) -> Child {
    let script = format!("exec cat 9< /proc/{}/fd/{}", id(), page.descriptor().unwrap());
    let child = process::Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    let is_cat = || std::fs::read(format!("/proc/{}/comm", child.id())).is_ok_and(|name| name == b"cat\n");
    let until = Instant::now() + Duration::from_secs(20);
    while !is_cat() {
        assert!(Instant::now() < until, "sh has not executed cat");
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_process_that_executes_itself_again_is_no_hang() {
    let (old, new) = (LedgerPage::create().unwrap(), LedgerPage::create().unwrap());
    let mut roster = Roster::default();
    let mut child = without_mapping(&old);
    let rank = RankInfo { pid: Pid(child.id()), ledger: Some(9), ..info("j", 0) };
    roster.hello(&who("x"), 0, rank, at(0.0));
    assert_eq!(lives(&roster.check(at(4.0))), []);
    assert_eq!(lives(&roster.check(at(6.0))), [Life::Ended]);
    drop(child.stdin.take());
    child.wait().unwrap();
    // The page is mapped in this process, which then puts another page under the same number.
    let ledger = old.descriptor().map(|fd| fd as u32);
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, RankInfo { ledger, ..info("j", 0) }, at(0.0));
    // SAFETY: both are open, and the second is only looked up in /proc.
    assert!(unsafe { libc::dup2(new.descriptor().unwrap(), old.descriptor().unwrap()) } >= 0);
    new.ledger().step(Step(3), at(1.0));
    assert_eq!(roster.hello(&who("z"), 0, RankInfo { ledger, ..info("j", 0) }, at(2.0)), []);
    assert_eq!(lives(&roster.check(at(8.0))), [Life::Silent]);
    assert_eq!(roster.digests(at(99.0))[0].ranks[0].step, Some(Step(3)));
}

#[test]
fn a_goodbye_sends_the_last_counts_once() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    roster.summary(&who("x"), 1, steps(40, 10), at(1.0));
    let effects = roster.goodbye(&who("x"), at(1.1));
    assert_eq!(lives(&effects), [Life::Ended]);
    let Some(Effect::Publish(body)) = effects.last() else { panic!("{effects:?}") };
    let Body::Digest(digest) = &**body else { panic!("{body:?}") };
    assert_eq!((digest.ranks[0].step, digest.ranks[0].life), (Some(Step(40)), Life::Ended));
    assert_eq!(roster.digests(at(99.0)), []);
    assert_eq!(roster.living(), 0);
    assert_eq!(roster.snapshot()[0].ranks[0].digest.life, Life::Ended);
    roster.check(at(700.0));
    assert_eq!(roster.snapshot(), []);
}

/// `os._exit` sends no last summary.
#[test]
fn a_goodbye_includes_calls_since_the_last_summary() {
    let page = LedgerPage::create().unwrap();
    let line = &page.ledger().communicators[0];
    line.open(CommunicatorId(7), 0, 2);
    let mut roster = Roster::default();
    let ledger = page.descriptor().map(|fd| fd as u32);
    roster.hello(&who("x"), 0, RankInfo { ledger, ..info("j", 0) }, at(0.0));
    roster.summary(&who("x"), 1, Summary { communicators: vec![state(7)], ..steps(3, 1) }, at(1.0));
    line.enter(CommunicatorId(7), 5, Operation::Broadcast, 64, at(1.6), Writers::One);
    let effects = roster.goodbye(&who("x"), at(1.7));
    let Some(Effect::Publish(body)) = effects.last() else { panic!("{effects:?}") };
    let Body::Digest(digest) = &**body else { panic!("{body:?}") };
    assert_eq!(digest.ranks[0].communicators[0].entered, 5);
}

#[test]
fn a_living_rank_keeps_its_slot_and_a_dead_one_frees_it() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    let other = RankInfo { pid: Pid(1), ..info("j", 0) };
    let refused = roster.hello(&who("y"), 0, other.clone(), at(1.0));
    assert!(
        matches!(&refused[..], [Effect::Complain(_, text)] if text.contains("--job NAME")),
        "{refused:?}"
    );
    assert_eq!(roster.summary(&who("y"), 1, steps(1, 1), at(1.1)), []);
    roster.goodbye(&who("x"), at(2.0));
    let joined = Body::Event(Event::Joined(other.clone()));
    assert_eq!(roster.hello(&who("y"), 2, other, at(3.0)), [publish(joined)]);
    assert_eq!(
        roster.summary(&who("x"), 9, steps(1, 1), at(4.0)),
        [Effect::Command(who("x"), Command::Introduce)]
    );
}

#[test]
fn the_same_process_may_come_again_under_another_identity() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    roster.summary(&who("x"), 1, steps(5, 1), at(1.0));
    assert_eq!(roster.hello(&who("z"), 0, info("j", 0), at(2.0)), []);
    roster.summary(&who("z"), 1, steps(6, 1), at(3.0));
    assert_eq!(roster.digests(at(99.0))[0].ranks[0].step, Some(Step(6)));
    assert_eq!(roster.identities(&"j".into()), [who("z")]);
}

#[test]
fn a_new_process_with_a_reused_pid_starts_at_zero() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    let with = |gemms| Summary { launches: Launches { gemms, ..Launches::default() }, ..steps(1, 1) };
    roster.summary(&who("x"), 1, with(100), at(1.0));
    roster.summary(&who("x"), 2, with(3), at(2.0));
    assert_eq!(roster.digests(at(99.0))[0].ranks[0].launches.gemms, 3);
}

#[test]
fn a_smaller_second_run_does_not_show_the_ranks_of_the_first() {
    let mut roster = Roster::default();
    for rank in 0..4 {
        roster.hello(&who(&rank.to_string()), 0, info("j", rank), at(0.0));
        roster.goodbye(&who(&rank.to_string()), at(1.0));
    }
    roster.hello(&who("new"), 0, info("j", 0), at(2.0));
    assert_eq!(roster.snapshot()[0].ranks.len(), 1);
}

#[test]
fn two_jobs_are_kept_apart() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("a", 0), at(0.0));
    roster.hello(&who("y"), 0, info("b", 0), at(0.0));
    let jobs: Vec<_> = roster.digests(at(99.0)).into_iter().map(|digest| digest.job.0).collect();
    assert_eq!(jobs, ["a", "b"]);
    assert_eq!(roster.identities(&"a".into()), [who("x")]);
}

#[test]
fn hostile_texts_are_cleaned_for_topics_and_terminals() {
    let mut roster = Roster::default();
    let program = "\x1b[2J".repeat(1000);
    roster.hello(&who("x"), 0, RankInfo { program, ..info("a/o\x1b", 0) }, at(0.0));
    let snapshot = roster.snapshot();
    assert_eq!(snapshot[0].job.as_str(), "a_o_");
    let program = &snapshot[0].ranks[0].info.program;
    assert!(program.len() <= LONGEST_TEXT && !program.contains('\x1b'));
}

#[test]
fn a_flood_of_ranks_and_of_unknown_workers_is_bounded() {
    let mut roster = Roster::default();
    for n in 0..PLACES as u32 + 10 {
        let name = who(&n.to_string());
        let effects = roster.hello(&name, 0, info("j", n), at(0.0));
        assert_eq!(matches!(effects[0], Effect::Complain("no room", _)), n >= PLACES as u32);
    }
    assert_eq!(roster.places.len(), PLACES);
    roster.goodbye(&who("17"), at(1.0));
    roster.hello(&who("late"), 0, info("k", 0), at(2.0));
    assert_eq!(roster.identities(&"k".into()), [who("late")]);
    for n in 0..UNKNOWN_SENDERS * 3 {
        roster.summary(&who(&format!("s{n}")), 0, steps(0, 1), at(3.0));
    }
    assert!(roster.strangers.len() <= UNKNOWN_SENDERS);
}

/// A second job of the same name would be invisible. So the digests of the first job count its living
/// processes.
#[test]
fn a_refused_process_is_counted_as_long_as_it_sends() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    let other = |pid| RankInfo { pid: Pid(pid), ..info("j", 0) };
    roster.hello(&who("y"), 0, other(1), at(1.0));
    roster.hello(&who("z"), 0, other(2), at(1.0));
    roster.hello(&who("z"), 1, other(2), at(2.0));
    assert_eq!(roster.digests(at(99.0))[0].turned_away, 2);
    for second in 2..20 {
        roster.summary(&who("x"), second, steps(second, 1), at(second as f64));
        roster.summary(&who("y"), second, steps(second, 1), at(second as f64));
    }
    roster.check(at(20.0));
    assert_eq!(roster.digests(at(99.0))[0].turned_away, 1);
    assert_eq!(roster.snapshot()[0].turned_away, 1);
    roster.goodbye(&who("x"), at(21.0));
    roster.hello(&who("y"), 30, other(1), at(22.0));
    assert_eq!(roster.digests(at(99.0))[0].turned_away, 0);
}

#[path = "roster/reports_tests.rs"]
mod reports;
