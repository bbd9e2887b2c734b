use super::*;
use crate::what_if::StepTimes;

/// Two ranks. The second loses `lost_ms` of each step, and other causes 1 ms.
fn estimate(first: u64, last: u64, lost_ms: f64) -> Estimate {
    let loss = |cause, lost_ms: f64| Loss {
        cause,
        ranks: Vec::new(),
        host: None,
        stage: None,
        repaired_ms: 100.0,
        lost_ms,
    };
    let simulated_ms = 100.0 + lost_ms;
    Estimate {
        at: 0.0,
        first: Step(first),
        last: Step(last),
        ranks: 2,
        slowdown: simulated_ms / 99.0,
        waste: 0.0,
        m_w: None,
        m_s: None,
        step: StepTimes { measured_ms: simulated_ms, simulated_ms, ideal_ms: 99.0 },
        losses: vec![
            loss(Cause::All, lost_ms + 1.0),
            Loss { ranks: vec![Rank(1)], ..loss(Cause::Ranks, lost_ms) },
        ],
        sentences: Vec::new(),
    }
}

#[track_caller]
fn near(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-12, "{one} is not {other}");
}

#[test]
fn steps_between_two_estimates_lose_the_mean_of_both() {
    let mut account = Account::default();
    account.add(estimate(11, 15, 0.0));
    account.add(estimate(1011, 1015, 36.0));
    let total = account.total("2 EUR".parse().ok());
    assert_eq!((total.estimates, total.failed, total.steps), (2, 0, 1005));
    // 500 of the 1,000 steps lose 36 ms on each of two GPUs.
    let of = |cause| total.lost[&cause];
    near(of(Cause::Ranks).gpu_hours, 500.0 * 2.0 * 36.0 / 3.6e6);
    near(of(Cause::All).gpu_hours, (500.0 * 37.0 + 505.0) * 2.0 / 3.6e6);
    near(total.gpu_hours, (500.0 * 136.0 + 505.0 * 100.0) * 2.0 / 3.6e6);
    assert_eq!(of(Cause::Ranks).money.map(|money| money.to_string()), Some("0.02 EUR".to_owned()));
    assert_eq!(total.ranks, [RankLost { rank: Rank(1), lost: of(Cause::Ranks) }]);
}

#[test]
fn the_frame_has_the_sum_and_the_result_of_the_last_capture() {
    let mut account = Account::default();
    let estimate = Estimate { sentences: vec!["Slow.".to_owned()], ..estimate(11, 15, 36.0) };
    account.add(estimate.clone());
    let of = |last| account.frame("j".into(), Moment(1), Moment(2), last);
    let (good, bad) = (of(Ok(&estimate)), of(Err(&"hangs".to_owned())));
    let lost = account.total(None).lost[&Cause::Ranks].gpu_hours;
    assert_eq!((good.estimates, good.steps, &good.lost[1]), (1, 5, &(Cause::Ranks, lost)));
    assert_eq!((&good.ranks[..], &good.sentences[..]), (&[(Rank(1), lost)][..], &["Slow.".to_owned()][..]));
    assert_eq!((bad.sentences.len(), bad.why.as_str(), bad.steps), (0, "hangs", 5));
}

#[test]
fn restarted_jobs_and_failed_captures_add_no_unseen_steps() {
    let mut account = Account::default();
    account.add(estimate(1001, 1005, 36.0));
    account.fail();
    account.add(estimate(3, 7, 36.0));
    let total = account.total(None);
    assert_eq!((total.estimates, total.failed, total.steps), (2, 1, 10));
    near(total.lost[&Cause::Ranks].gpu_hours, 10.0 * 2.0 * 36.0 / 3.6e6);
    assert_eq!(account.last().map(|last| last.last), Some(Step(7)));
}

#[test]
fn ranks_that_are_slow_together_share_what_they_cost() {
    let mut account = Account::default();
    let mut both = estimate(1, 10, 36.0);
    both.losses[1].ranks = vec![Rank(0), Rank(1)];
    account.add(both);
    let total = account.total(None);
    let each = total.lost[&Cause::Ranks].gpu_hours / 2.0;
    let ranks: Vec<_> = total.ranks.iter().map(|of| (of.rank, of.lost.gpu_hours)).collect();
    assert_eq!(ranks, [(Rank(0), each), (Rank(1), each)]);
}
