use super::*;
use crate::finding::{
    Confidence, Cost, Evidence, Severity, evidence::hang::Elsewhere, hang::Doing, waited_pct,
};

/// A slow rank of two GPUs, which has lasted for some seconds.
fn slow(rank: u32, pct: f64, since_s: f64) -> Finding {
    Finding {
        kind: Kind::SlowRank,
        class: Class::Host,
        ranks: vec![Rank(rank)],
        confidence: Confidence::Likely,
        severity: Severity::Slow,
        since_s,
        evidence: Evidence::Elsewhere(Elsewhere {
            seen: 2,
            world: 4,
            first: Rank(0),
            doing: Doing::Outside,
            hung_s: since_s,
        }),
        advice: String::new(),
        collective: None,
        cost: Some(Cost::of(pct / 100.0, 0.0, None, 2, since_s)),
    }
}

fn at(second: u64) -> Moment {
    Moment(second * 1_000_000_000)
}

/// GPU-seconds lost to a finding that is present, by a page that reads the log then.
fn lost(log: &Log, finding: &Finding, now: u64, heard: u64) -> f64 {
    let mut present = [finding.clone()];
    log.extend(&mut present, at(now), at(heard));
    (present[0].cost.unwrap().gpu_hours * 3600.0 * 1e6).round() / 1e6
}

/// When a fault has ended, the cost decreases until the finding ends too. What was lost does not.
#[test]
fn an_ended_finding_has_the_figures_of_when_it_cost_most_and_all_that_was_lost() {
    let mut log = Log::default();
    for (seconds, pct, gpu_seconds) in [
        (1..=10, 8.0, 1.6),
        // At first, the newest cost applies to all of the time.
        (11..=41, 10.0, 8.2),
        // From then on, each cost applies until the next.
        (42..=81, 30.0, 31.8),
        (82..=91, 12.0, 34.56),
    ] {
        let until = *seconds.end();
        for second in seconds {
            log.follow(&[slow(1, pct, second as f64)], at(second), at(second));
        }
        assert_eq!(lost(&log, &slow(1, pct, until as f64), until, until), gpu_seconds);
    }
    let finding = slow(1, 1.0, 96.0);
    assert_eq!(lost(&log, &finding, 96, 96), 35.76, "at the cost of the last update");
    log.follow(&[], at(96), at(96));
    let ended: Vec<_> = log.ended().collect();
    assert!(ended.len() == 1 && ended[0].evidence.contains("for 81 s"), "{ended:?}");
    // It was first found at 1, and had lasted for a second then.
    assert_eq!((ended[0].began_at, ended[0].ended_at), (0.0, 96.0));
    assert_eq!(ended[0].lost().as_deref(), Some("0.01 GPU-hours lost"));
    assert!((ended[0].gpu_hours.unwrap() * 3600.0 - 34.56).abs() < 1e-6, "{ended:?}");
}

/// A job that has ended, or whose hosts are silent, loses nothing more.
#[test]
fn nothing_is_lost_after_the_last_report() {
    let mut log = Log::default();
    let finding = slow(1, 10.0, 40.0);
    log.follow(std::slice::from_ref(&finding), at(40), at(40));
    assert_eq!(lost(&log, &finding, 100, 50), 8.0 + 2.0);
    log.follow(std::slice::from_ref(&finding), at(100), at(50));
    log.follow(std::slice::from_ref(&finding), at(1000), at(50));
    assert_eq!(lost(&log, &finding, 2000, 50), 10.0);
    let aged = Finding { evidence: Evidence::Aged(Box::new(finding.evidence.clone()), 60.0), ..finding };
    log.follow(std::slice::from_ref(&aged), at(1100), at(50));
    assert_eq!(lost(&log, &aged, 2000, 900), 10.0, "others report, its host does not");
    log.follow(&[], at(1200), at(50));
    assert_eq!(log.ended().next().map(|ended| ended.began_at), Some(0.0), "its begin stays");
}

#[test]
fn a_hidden_delay_keeps_what_it_has_cost_before() {
    let mut log = Log::default();
    let seen = slow(1, 10.0, 40.0);
    let hidden = |since_s| Finding {
        cost: slow(1, 10.0, since_s).cost.map(|cost| cost.behind(Rank(3))),
        ..slow(1, 10.0, since_s)
    };
    log.follow(std::slice::from_ref(&seen), at(40), at(40));
    log.follow(&[hidden(45.0)], at(45), at(45));
    assert_eq!(lost(&log, &hidden(60.0), 60, 60), 9.0);
    let mut shown = [hidden(60.0)];
    log.extend(&mut shown, at(60), at(60));
    let cost = shown[0].cost.unwrap();
    assert!(cost.to_string().ends_with("once rank 3 is on time, nothing so far"), "{cost}");
    let more = Cost { gpu_hours: 0.3, ..cost };
    assert!(more.to_string().ends_with("rank 3 is on time, nothing now, 0.30 GPU-hours before"), "{more}");
    // Its time behind the other does not count once it is no longer hidden.
    log.follow(&[slow(1, 10.0, 60.0)], at(60), at(60));
    assert_eq!(lost(&log, &slow(1, 10.0, 65.0), 65, 65), 9.0 + 1.0);
}

#[test]
fn a_slow_rank_of_which_the_cause_becomes_known_has_not_ended() {
    let mut log = Log::default();
    log.follow(&[slow(1, 10.0, 40.0)], at(40), at(40));
    let clocks = |since_s| Finding { class: Class::Clocks, ..slow(1, 10.0, since_s) };
    log.follow(&[clocks(50.0)], at(50), at(50));
    assert_eq!(log.entries().map(|entry| entry.what).collect::<Vec<_>>(), [What::Began; 2]);
    assert_eq!((log.ended().count(), log.since(&clocks(50.0))), (0, Some(at(40))));
    assert_eq!(lost(&log, &clocks(50.0), 50, 50), 10.0);
    // A page that asks before the log is updated has the same.
    let other_class = Finding { class: Class::Compute, ..slow(1, 10.0, 51.0) };
    assert_eq!(lost(&log, &other_class, 51, 51), 10.2);
    // That of another rank is another fault.
    log.follow(&[clocks(60.0), slow(2, 10.0, 5.0)], at(60), at(60));
    log.follow(&[slow(2, 10.0, 15.0)], at(70), at(70));
    assert_eq!(log.ended().count(), 1);
}

/// A fault that is found again, or with another rank, has lost nothing a second time.
#[test]
fn what_an_ended_finding_has_lost_is_not_counted_again() {
    let mut log = Log::default();
    log.follow(&[slow(1, 10.0, 40.0)], at(40), at(40));
    log.follow(&[], at(45), at(45));
    let again = Finding { ranks: vec![Rank(1), Rank(2)], ..slow(1, 10.0, 60.0) };
    log.follow(std::slice::from_ref(&again), at(60), at(60));
    assert_eq!(lost(&log, &again, 60, 60), 3.0, "since the end of the other");
    log.follow(&[], at(61), at(61));
    let ended: Vec<_> = log.ended().map(|ended| (ended.began_at, ended.ended_at)).collect();
    assert_eq!(ended, [(45.0, 61.0), (0.0, 45.0)]);
    let steps = Finding { kind: Kind::Regression, class: Class::Step, ranks: vec![], ..slow(1, 10.0, 70.0) };
    log.follow(std::slice::from_ref(&steps), at(70), at(70));
    assert_eq!(lost(&log, &steps, 70, 70), 1.8, "longer steps that then have a culprit");
    let other = slow(3, 10.0, 61.0);
    let mut log = Log::default();
    log.follow(&[slow(1, 10.0, 40.0)], at(40), at(40));
    log.follow(&[], at(45), at(45));
    log.follow(std::slice::from_ref(&other), at(61), at(61));
    assert_eq!(lost(&log, &other, 61, 61), 12.2, "of another rank");
}

#[test]
fn others_wait_for_a_slow_rank_as_long_as_it_has_been_slow() {
    let waited = |finding: Finding, ranks| waited_pct(&[finding], ranks).round();
    assert_eq!(waited(slow(1, 60.0, 60.0), 2), 60.0);
    assert_eq!(waited(slow(1, 60.0, 15.0), 2), 30.0, "half of half a minute");
    let uncertain = Cost { pct_error: 10.0, ..slow(1, 60.0, 60.0).cost.unwrap() };
    assert_eq!(waited(Finding { cost: Some(uncertain), ..slow(1, 60.0, 60.0) }, 2), 50.0);
    // A single rank waits for nobody, and most ranks of three are slow.
    assert_eq!(waited(slow(1, 60.0, 60.0), 1), 0.0);
    assert_eq!(waited(Finding { ranks: vec![Rank(0), Rank(1)], ..slow(1, 60.0, 60.0) }, 3), 0.0);
    let hidden = slow(1, 60.0, 60.0).cost.map(|cost| cost.behind(Rank(0)));
    assert_eq!(waited(Finding { cost: hidden, ..slow(1, 60.0, 60.0) }, 2), 0.0);
    assert_eq!(waited(Finding { kind: Kind::Regression, ..slow(1, 60.0, 60.0) }, 2), 0.0);
}

#[test]
fn a_cost_that_becomes_known_later_counts_since_the_fault_began() {
    let mut log = Log::default();
    log.follow(&[Finding { cost: None, ..slow(1, 10.0, 10.0) }], at(10), at(10));
    log.follow(&[slow(1, 10.0, 60.0)], at(60), at(60));
    assert_eq!(lost(&log, &slow(1, 10.0, 60.0), 60, 60), 12.0);
}
