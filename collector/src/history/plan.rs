//! Divides the past into a given number of spans, each of which a rank's digests are merged into one.

use std::time::Duration;

use xpu_wire::unit::Moment;

use super::{MINUTES, SECONDS, TENS, thin};

/// The share of the digests that are the newest ones, unmerged; and their limits. An estimate of a straggler's
/// delay takes 15 digests, and two more until the other ranks have reported the same collectives.
const NEWEST: f64 = 0.55;
const FEWEST: f64 = 18.0;
const MOST: f64 = 120.0;

/// From this moment until the next span begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub from: Moment,
    /// Whether it may have several digests.
    pub merges: bool,
}

/// The spans, oldest first, and the begin of the time after them, of which every digest is sent. The spans
/// grow in proportion to their age, so that the begin of a fault is known as a share of its age.
#[derive(Debug)]
pub(super) struct Plan {
    spans: Vec<Span>,
    newest: Moment,
}

/// The interval between the digests of the finest tier that reaches back for so long.
fn interval(age: f64) -> Duration {
    match Duration::from_secs_f64(age) {
        age if age < SECONDS.kept => Duration::from_secs(1),
        age if age < TENS.1.kept => TENS.0,
        _ => MINUTES.0,
    }
}

impl Plan {
    /// Of a past of this length, with at most this many digests per rank.
    pub(super) fn new(length: Duration, digests: u32, now: Moment) -> Self {
        let (length, digests) = (length.as_secs_f64(), f64::from(digests));
        let before = |age: f64| Moment(now.0.saturating_sub((age * 1e9) as u64));
        let age = |at: Moment| now.since(at).as_secs_f64();
        let newest = thin::begin(before((digests * NEWEST).clamp(FEWEST, MOST)), interval(0.0));
        let (mut spans, mut until) = (Vec::new(), newest);
        let mut left = digests - age(newest).floor();
        while left >= 1.0 && age(until) < length {
            let grown = before(age(until) * (length / age(until)).powf(1.0 / left));
            let finest = interval(age(until));
            let next = Moment(until.0.saturating_sub(finest.as_nanos() as u64));
            let interval = interval(age(grown.min(next)));
            // The nearest begin of a digest.
            let from = thin::begin(grown.after(interval / 2), interval).min(thin::begin(next, interval));
            spans.push(Span { from, merges: until.since(from) > finest });
            (until, left) = (from, left - 1.0);
        }
        spans.reverse();
        Self { spans, newest }
    }

    /// The number of the span in which a moment is, and whether its digests are merged. `None` before all
    /// spans.
    pub(super) fn span(&self, at: Moment) -> Option<(u64, bool)> {
        if at >= self.newest {
            return Some((self.spans.len() as u64 + 1, false));
        }
        let begun = self.spans.partition_point(|span| span.from <= at);
        let span = self.spans.get(begun.checked_sub(1)?)?;
        Some((begun as u64, span.merges))
    }

    /// Whether every frame of a moment is sent.
    pub(super) fn is_newest(&self, at: Moment) -> bool {
        at >= self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1_800_000_123_400_000_000);

    /// The ages at which the spans begin, in seconds, newest first.
    fn ages(length: Duration, digests: u32) -> Vec<f64> {
        let plan = Plan::new(length, digests, NOW);
        let begins = plan.spans.iter().rev().map(|span| span.from);
        [plan.newest].into_iter().chain(begins).map(|from| NOW.since(from).as_secs_f64()).collect()
    }

    #[test]
    fn spans_grow_with_their_age_and_cover_the_whole_length() {
        for (digests, share) in [(32, 0.9), (200, 0.12), (660, 0.04), (1320, 0.02)] {
            for length in [Duration::from_mins(8), Duration::from_hours(2), Duration::from_hours(24)] {
                let ages = ages(length, digests);
                let oldest = *ages.last().unwrap();
                assert!((oldest - length.as_secs_f64()).abs() <= 31.0, "{ages:?}");
                let sent = ages[0].ceil() as usize + ages.len() - 1;
                assert!(sent <= digests as usize + 1, "{sent} digests");
                assert!(ages.is_sorted_by(|a, b| a < b), "{ages:?}");
                for pair in ages.windows(2) {
                    let longest = (share * pair[1]).max(interval(pair[1]).as_secs_f64());
                    let span = pair[1] - pair[0];
                    // A span ends at a digest of its tier.
                    assert!(span <= longest + interval(pair[1]).as_secs_f64(), "{digests}: {pair:?}");
                }
            }
        }
    }

    #[test]
    fn a_day_without_thinning_has_the_digests_of_each_tier() {
        let plan = Plan::new(Duration::from_hours(24), 3000, NOW);
        let merging: Vec<_> = plan.spans.iter().filter(|span| span.merges).collect();
        // Two have digests of two tiers.
        assert!(merging.len() <= 2, "{} {merging:?}", plan.spans.len());
        let plan = Plan::new(Duration::from_mins(1), 32, NOW);
        assert_eq!(plan.span(Moment(NOW.0 - 70_000_000_000)), None);
        assert_eq!(plan.span(NOW), Some((plan.spans.len() as u64 + 1, false)));
    }

    /// Fewer digests than an estimate needs are not asked for, and a young job has no spans.
    #[test]
    fn the_newest_digests_are_always_sent() {
        assert_eq!(ages(Duration::from_hours(24), 0).len(), 1);
        assert_eq!(ages(Duration::from_secs(5), 200).len(), 1);
        assert!(ages(Duration::from_hours(24), 0)[0] >= FEWEST);
    }
}
