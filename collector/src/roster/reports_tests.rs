//! Tests of a rank's published state.

use super::*;

#[test]
fn blind_spots_of_a_hook_are_reported_briefly() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    let mut summary = steps(1, 1);
    summary.hook.blind = vec!["a\x1b[2J".repeat(100), "b".to_owned(), "c".to_owned()];
    roster.summary(&who("x"), 1, summary, at(1.0));
    let blind = roster.digests(at(99.0))[0].ranks[0].blind.clone();
    assert_eq!((blind.len(), blind[1].as_str()), (RankDigest::BLIND, "b"));
    assert!(blind[0].len() <= RankDigest::LONGEST_BLIND && !blind[0].contains('\x1b'));
}

#[test]
fn what_stragglers_cost_is_kept_by_the_host_of_rank_0_until_the_job_starts_again() {
    let mut roster = Roster::default();
    let of = example::what_if();
    roster.hello(&who("x"), 0, info("j", 1), at(0.0));
    assert!(!roster.keep_what_if(&of) && roster.what_ifs().is_empty());
    roster.hello(&who("y"), 0, info("j", 0), at(0.0));
    assert!(roster.keep_what_if(&of));
    assert_eq!(roster.what_ifs(), [of]);
    roster.goodbye(&who("x"), at(1.0));
    roster.goodbye(&who("y"), at(1.0));
    assert_eq!(roster.what_ifs().len(), 1, "a viewer may come after the end");
    roster.hello(&who("z"), 0, RankInfo { pid: Pid(1), ..info("j", 0) }, at(2.0));
    assert!(roster.what_ifs().is_empty());
}

/// A viewer that requests only one snapshot has no earlier data from which to compute rates.
#[test]
fn a_snapshot_has_earlier_digests_of_a_rank() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    for second in 1..=40_u32 {
        let now = at(f64::from(second));
        roster.summary(&who("x"), u64::from(second), steps(second.into(), 10), now);
        roster.digests(now);
        // Without a new summary, this adds no second entry.
        roster.digests(now);
    }
    let snapshot = &roster.snapshot()[0].ranks[0];
    assert_eq!((snapshot.earlier[0].heard, snapshot.digest.heard), (at(11.0), at(40.0)));
}

#[test]
fn a_snapshot_has_the_time_of_the_last_progress() {
    let mut roster = Roster::default();
    roster.hello(&who("x"), 0, info("j", 0), at(0.0));
    for second in 1..=60_u32 {
        let now = at(f64::from(second));
        roster.summary(&who("x"), u64::from(second), steps(second.min(20).into(), 10), now);
        roster.digests(now);
    }
    let snapshot = &roster.snapshot()[0].ranks[0];
    assert_eq!((snapshot.advance.moved, snapshot.digest.heard), (at(20.0), at(60.0)));
    assert_eq!(snapshot.advance.paces.len(), Progress::WINDOW);
}

#[test]
fn a_rank_has_the_health_of_the_gpu_it_named_until_it_leaves() {
    let mut roster = Roster::default();
    let uuid = DeviceUuid([7; 16]);
    for (name, rank, device_uuid) in [("a", 0, Some(uuid)), ("b", 1, None)] {
        roster.hello(&who(name), 0, info("j", rank), at(0.0));
        roster.summary(&who(name), 1, Summary { device_uuid, ..steps(1, 100) }, at(0.5));
    }
    let mut asked = Vec::new();
    roster.take_devices(|uuid| {
        asked.push(uuid);
        Some(DeviceReading { temperature: Some(61), ..DeviceReading::unknown(uuid, at(0.9)) })
    });
    assert_eq!(asked, [uuid]);
    let degrees = |ranks: &[RankDigest]| -> Vec<_> {
        ranks.iter().map(|rank| rank.device.as_ref().and_then(|device| device.temperature)).collect()
    };
    assert_eq!(degrees(&roster.digests(at(1.0))[0].ranks), [Some(61), None]);
    roster.goodbye(&who("a"), at(1.5));
    roster.take_devices(|_| panic!("who has left uses no GPU"));
}

/// Reading stacks takes a while. A thread that left a call meanwhile is not reported as inside it.
#[test]
fn a_call_is_reported_with_the_stacks_only_if_it_lasted_all_the_while() {
    let page = LedgerPage::create().unwrap();
    let threads = &page.ledger().threads;
    for (line, thread) in [(0, 42), (1, 43), (2, 44)] {
        assert!(threads[line].claim(thread));
        threads[line].enter(Call::StreamSynchronize, at(2.0));
    }
    let mut roster = Roster::default();
    let ledger = page.descriptor().map(|fd| fd as u32);
    roster.hello(&who("x"), 0, RankInfo { ledger, ..info("j", 0) }, at(0.0));
    let FoundStacks { targets, .. } = roster.stacks(&"j".into(), &[], false, false, at(5.0)).unwrap();
    threads[1].leave();
    threads[2].leave();
    threads[2].enter(Call::StreamSynchronize, at(5.5));
    let mut stacks = RankStacks::unread("j".into(), Rank(0), targets[0].pid, String::new());
    stacks.threads = targets[0].inside.iter().map(|inside| thread_in(*inside)).collect();
    roster.keep(&mut stacks, targets[0].looked);
    let reported: Vec<_> =
        stacks.threads.iter().map(|thread| (thread.thread, thread.inside.is_some())).collect();
    assert_eq!(reported, [(Some(42), true), (Some(43), false), (Some(44), false)]);
}

fn thread_in(inside: Inside) -> ThreadStack {
    ThreadStack {
        thread: Some(inside.thread),
        name: String::new(),
        main: false,
        owns_gil: false,
        inside: Some(inside),
        task: None,
        frames: Vec::new(),
        more_frames: 0,
    }
}
