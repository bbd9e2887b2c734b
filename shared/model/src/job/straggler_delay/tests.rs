use xpu_wire::{id::Sequence, sampling::Rate};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// An entry of the last of two ranks: it is late by the time that the other waits.
fn entry(sequence: u64, coarsest: Rate, gap: u64, waited: u64) -> Entry {
    let (communicator, sequence) = (CommunicatorId(1), Sequence(sequence));
    let (gap, waited) = (Nanoseconds(gap), Nanoseconds(waited));
    Entry { communicator, sequence, coarsest, gap, waited, late: gap }
}

/// A hundred collectives a second. One in ten keeps the others waiting for 10 ms: a tenth of the time.
fn estimate(rate: Rate, first: u64) -> Option<StragglerDelay> {
    let mut window = Window::default();
    for second in 0..=DIGESTS as u64 {
        window.begin(Moment((100 + second) * SECOND), None);
        for number in (0..100).map(|n| first + second * 100 + n).filter(|&number| rate.times(number)) {
            let gap = if number % 10 == 0 { 10_000_000 } else { 0 };
            let waited = if gap == 0 { 1_000_000 } else { 0 };
            window.take(entry(number, rate, gap, waited));
        }
    }
    window.straggler_delay()
}

#[test]
fn the_delay_is_exact_if_all_collectives_are_timed() {
    let delay = estimate(Rate::EVERY, 0).unwrap();
    assert!((delay.cost - 0.1).abs() < 1e-9 && delay.error == 0.0, "{delay:?}");
    assert!((delay.waited - 0.09).abs() < 1e-9 && delay.average.is_none(), "{delay:?}");
    assert_eq!((delay.joined, delay.last), (1500, 150));
}

#[test]
fn a_sample_has_no_bias_and_its_error_is_reported() {
    for k in [1, 2, 4] {
        let all: Vec<_> = (0..200).map(|n| estimate(Rate(k), n * 77_777).unwrap()).collect();
        let mean = all.iter().map(|delay| delay.cost).sum::<f64>() / 200.0;
        let error = all.iter().map(|delay| delay.error).sum::<f64>() / 200.0;
        let spread = (all.iter().map(|delay| (delay.cost - mean).powi(2)).sum::<f64>() / 200.0).sqrt();
        assert!((mean / 0.1 - 1.0).abs() < 0.05, "one in 2^{k}: {mean}");
        assert!((error / spread - 1.0).abs() < 0.25, "one in 2^{k}: told {error}, is {spread}");
    }
}

/// A collector that was restarted reported nothing for twelve seconds of a rank that costs a tenth of the
/// time.
#[test]
fn a_time_without_reports_costs_as_much_as_the_time_around_it() {
    let mut window = Window::default();
    for second in (0..60).filter(|second| !(40..52).contains(second)) {
        window.begin(Moment((100 + second) * SECOND), None);
        for number in 0..100 {
            let (gap, waited) =
                if second >= 20 && number % 10 == 0 { (10_000_000, 0) } else { (0, 1_000_000) };
            window.take(entry(100 * second + number, Rate::EVERY, gap, waited));
        }
        if second >= 40 {
            let delay = window.straggler_delay().unwrap();
            assert!((delay.cost - 0.1).abs() < 0.01, "second {second}: {delay:?}");
            assert!((delay.since.0 / SECOND).abs_diff(119) < 8, "second {second}: {delay:?}");
        }
    }
}

/// A digest that was late has all collectives of its time.
#[test]
fn a_late_digest_is_no_time_without_reports() {
    let mut window = Window::default();
    for second in (0..60).filter(|second| !(40..52).contains(second)) {
        window.begin(Moment((100 + second) * SECOND), None);
        let from = if second == 52 { 40 } else { second };
        for number in 100 * from..100 * (second + 1) {
            let (gap, waited) = if number % 10 == 0 { (10_000_000, 0) } else { (0, 1_000_000) };
            window.take(entry(number, Rate::EVERY, gap, waited));
        }
    }
    let delay = window.straggler_delay().unwrap();
    assert!((delay.cost - 0.1).abs() < 0.01, "{delay:?}");
}

/// Ten collectives a second. Every five seconds, since a minute and a half ago, the first one keeps the
/// others waiting for a second.
#[test]
fn a_loss_every_few_seconds_is_averaged_since_it_began() {
    for end in 150..160 {
        let mut window = Window::default();
        for second in 0..end {
            window.begin(Moment((100 + second) * SECOND), None);
            for number in 0..10 {
                let late = second >= 60 && second % 5 == 0 && number == 0;
                let (gap, waited) = if late { (SECOND, 0) } else { (0, 10_000_000) };
                window.take(entry(10 * second + number, Rate::EVERY, gap, waited));
            }
        }
        let delay = window.straggler_delay().unwrap();
        assert!((delay.average.unwrap() - 0.2).abs() < 0.01, "second {end}: {delay:?}");
    }
}

/// Steps of two seconds with five collectives each; the first one keeps the others waiting for a second. The
/// rate becomes finer in the middle, and earlier launches are reported later.
#[test]
fn a_rate_that_changes_meanwhile_has_no_bias() {
    let estimate = |first: u64| {
        let mut window = Window::default();
        for second in 0..=DIGESTS as u64 {
            window.begin(Moment((100 + second) * SECOND), None);
            let timed = if second < 10 { Rate(2) } else { Rate::EVERY };
            let numbers = (0..5).map(|n| 5 * (first + second / 2) + n).filter(|_| second % 2 == 0);
            for number in numbers.filter(|&number| timed.times(number)) {
                let gap = if number % 5 == 0 { SECOND } else { 0 };
                window.take(entry(number, Rate(2), gap, 0));
            }
        }
        window.straggler_delay()
    };
    let all: Vec<f64> = (0..400).filter_map(|n| Some(estimate(n * 1_111)?.cost)).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    assert!(all.len() > 300 && (0.42..0.58).contains(&mean), "{mean} of {}", all.len());
}

/// The start is known to an eighth of its age, in a few kilobytes.
#[test]
fn the_begin_of_a_delay_is_known_for_a_day() {
    for hours in [1, 5, 20] {
        let mut window = Window::default();
        for second in 0..3600 * (hours + 3) {
            window.begin(Moment((1_000_000 + second) * SECOND), None);
            let late = second >= 3 * 3600;
            let (gap, waited) = if late { (100_000_000, 0) } else { (0, 10_000_000) };
            for sequence in [2 * second, 2 * second + 1] {
                window.take(entry(sequence, Rate::EVERY, gap, waited));
            }
        }
        let ago = (1_000_000 + 3600 * (hours + 3)) - window.straggler_delay().unwrap().since.0 / SECOND;
        let off = ago.abs_diff(3600 * hours) as f64 / (3600 * hours) as f64;
        assert!(off < 0.125, "{hours} hours ago, told {ago} s");
    }
}

/// The rank costs nothing for two minutes, and a tenth of the time from then on.
#[test]
fn the_begin_of_a_delay_is_known_for_minutes() {
    for rate in [Rate::EVERY, Rate(3)] {
        let mut window = Window::default();
        for second in 0..400 {
            window.begin(Moment((100 + second) * SECOND), None);
            for number in (0..100).map(|n| second * 100 + n).filter(|&number| rate.times(number)) {
                let late = second >= 120 && number % 10 == 0;
                let (gap, waited) = if late { (10_000_000, 0) } else { (0, 1_000_000) };
                window.take(entry(number, rate, gap, waited));
            }
        }
        let since = window.straggler_delay().unwrap().since.0 / SECOND - 100;
        assert!((105..=135).contains(&since), "{rate:?}: since second {since}");
    }
}

/// A rank that costs a tenth of the time, and all of the time in the job's first seconds.
#[test]
fn the_losses_around_a_change_are_known_for_long() {
    let mut window = Window::default();
    for second in 0..900 {
        window.begin(Moment((100 + second) * SECOND), None);
        for number in (0..100).map(|n| second * 100 + n) {
            let is_late = second < 8 || second >= 120 && number % 10 == 0;
            window.take(entry(number, Rate::EVERY, if is_late { 10_000_000 } else { 0 }, 0));
        }
        let age = (second + 1).saturating_sub(120);
        if [12, 60, 200, 500, 780].contains(&age) {
            let (period, before) = (Duration::from_secs(age), Duration::from_secs(10));
            let (now, before) = window.around(period, before).unwrap();
            assert!((now - 0.1).abs() < 0.01 && before < 0.05, "after {age} s: {now}, {before}");
        }
    }
    assert_eq!(window.around(Duration::from_secs(880), Duration::from_mins(1)), None);
}

/// A collective in each step of six seconds.
#[test]
fn a_window_of_long_steps_covers_as_many() {
    let mut window = Window::default();
    for second in 0..120 {
        window.begin(Moment((100 + second) * SECOND), Some(Step(FIRST + second / 6)));
        if second % 6 == 5 {
            window.take(entry(second / 6, Rate::EVERY, 3 * SECOND, 0));
        }
        if second >= 6 * (LEAST as u64 + 1) {
            let delay = window.straggler_delay().expect("five steps ended");
            assert!((0.4..=0.6).contains(&delay.cost), "second {second}: {delay:?}");
        }
    }
    assert_eq!(window.straggler_delay().unwrap().step, Some(Nanoseconds(6 * SECOND)));
    let digests: usize = window.digests.iter().map(|tally| tally.digests).sum();
    assert!((25..=36).contains(&digests), "{digests}");
    for second in 120..400 {
        window.begin(Moment((100 + second) * SECOND), None);
    }
    assert_eq!(window.straggler_delay(), None, "none were matched for minutes");
}

#[test]
fn too_few_samples_give_no_delay() {
    let mut window = Window::default();
    for second in 0..4 {
        window.begin(Moment((100 + second) * SECOND), None);
        window.take(entry(second, Rate::EVERY, 5, 0));
    }
    assert_eq!(window.straggler_delay(), None);
}
