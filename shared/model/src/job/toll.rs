//! What a rank costs the others by being last: estimated from the timed collectives.
//!
//! A collective's selection for timing depends only on a hash of its number, so its probability is known, and
//! each timed one stands for as many as its probability implies; if ranks changed their rates meanwhile, for
//! the actual number. The sum over them is unbiased, and its variance is that of a sample of independent
//! draws (Horvitz and Thompson): `sum(gap / p)`, `sum(gap^2 * (1 - p) / p^2)`.

use std::{collections::VecDeque, time::Duration};

use xpu_wire::{
    id::{CommunicatorId, Sequence, Step},
    sampling::{self, Rate},
    unit::{Moment, Nanoseconds},
};

use super::rank::push_bounded;

/// Digests of an estimate: half of the time within which a slow rank is to be named.
const DIGESTS: usize = 15;

/// Digests with matched collectives that it needs, so that a single one is no more than a fifth. With steps of many
/// seconds it looks back further for them, over this many digests at most: five steps of 24 s.
const LEAST: usize = 5;
const MOST: usize = 120;

/// Digests over which a cost that comes in single ones is averaged, if it began as long ago: two minutes, in which
/// pauses of several seconds are some dozen.
const AVERAGED: usize = 120;

/// Steps that compile and warm up: their loss does not recur.
const FIRST: u64 = 10;

/// This many collectives of a digest reveal their sampling rate: that all lie in the lower half of the hash
/// by chance happens once in 2^8.
const TELLING: u32 = 8;

/// Segments of these lengths, by the host's clock, are kept, and this many of each: the same for all viewers,
/// whenever they connected. Ten minutes, two hours, a day.
const SEGMENTS: [(Duration, usize); 3] =
    [(Duration::from_secs(15), 40), (Duration::from_mins(2), 60), (Duration::from_mins(15), 96)];

/// Shares of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Toll {
    /// The others' wait for this rank alone, and its standard error.
    pub cost: f64,
    pub error: f64,
    /// If it comes in few digests, the same over the time since it began, two minutes at most: of pauses every five
    /// seconds three or four are in the last 15.
    pub average: Option<f64>,
    /// The same without the digest of the largest loss: a single event leaves nothing.
    pub steady: f64,
    /// When it began, a day ago at most.
    pub since: Moment,
    /// Its own wait for others.
    pub waited: f64,
    /// Step time meanwhile; `None` if unknown.
    pub step: Option<Nanoseconds>,
    /// Collectives timed and matched, and those it was last into.
    pub joined: u32,
    pub last: u32,
    /// Relative standard error of the sum of its lateness after the first rank.
    pub late_error: f64,
}

#[derive(Debug, Default)]
pub(super) struct Window {
    /// Each with matched collectives, but the last.
    digests: VecDeque<Tally>,
    /// Before the first of them, and its step then.
    from: Moment,
    from_step: Option<Step>,
    former: Former,
    /// The losses of the last digests before them, oldest first.
    retired: VecDeque<Segment>,
}

/// Earlier losses, in segments that are longer the older they are; each oldest first.
#[derive(Debug, Default)]
struct Former([VecDeque<Segment>; SEGMENTS.len()]);

/// The loss from a moment on, both in seconds: with ten thousand ranks a day is kept. It ends where the next
/// one begins.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: u32,
    lost: f32,
}

impl Segment {
    fn began(self) -> Moment {
        Moment(u64::from(self.from) * 1_000_000_000)
    }
}

impl Former {
    /// The loss from a moment on.
    fn take(&mut self, segment: Segment) {
        let mut next = Some(segment);
        for (kept, (length, most)) in self.0.iter_mut().zip(SEGMENTS) {
            let Some(segment) = next.take() else { return };
            let number = |of: Segment| u64::from(of.from) / length.as_secs();
            if let Some(last) = kept.back_mut().filter(|last| number(**last) == number(segment)) {
                last.lost += segment.lost;
                continue;
            }
            next = if kept.len() == most { kept.pop_front() } else { None };
            push_bounded(kept, segment, most);
        }
    }

    /// Newest first.
    fn segments(&self) -> impl Iterator<Item = Segment> {
        self.0.iter().flat_map(|kept| kept.iter().rev().copied())
    }
}

/// The matched collectives of one digest, which followed some without.
#[derive(Debug, Default)]
struct Tally {
    /// With those before it.
    digests: usize,
    at: Moment,
    step: Option<Step>,
    communicators: Vec<Counts>,
}

/// Those of one communicator. Nanoseconds.
#[derive(Debug)]
struct Counts {
    id: CommunicatorId,
    joined: u32,
    last: u32,
    /// At least one in 2^k was timed, by the hashes of those that were.
    rate: u32,
    /// At most one in 2^k, by their ranks' reports.
    coarsest: u32,
    /// Numbers of the first and the last of them.
    first: Sequence,
    latest: Sequence,
    gaps: f64,
    squares: f64,
    waited: f64,
    late: f64,
    late_squares: f64,
}

/// How a rank entered a collective.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// The least that the others waited for it, if it was the last.
    pub(super) gap: Nanoseconds,
    /// Its wait for the last rank.
    pub(super) waited: Nanoseconds,
    /// Its lateness after the first rank.
    pub(super) late: Nanoseconds,
}

impl Window {
    /// A digest begins, with `step` steps done.
    pub(super) fn begin(&mut self, at: Moment, step: Option<Step>) {
        if step.is_some_and(|step| step.0 < FIRST) {
            *self = Self { from: at, from_step: step, ..Self::default() };
        }
        if self.digests.is_empty() && self.from == Moment::default() {
            // The first digest covers an unknown time.
            (self.from, self.from_step) = (at, step);
        }
        if let Some(last) = self.digests.back_mut().filter(|last| last.communicators.is_empty()) {
            // The first only begins it.
            let before = if last.at == self.from { 0 } else { last.digests };
            (last.digests, last.at, last.step) = (before + 1, at, step);
        } else {
            self.digests.push_back(Tally { digests: 1, at, step, communicators: Vec::new() });
        }
        while self.reaches_too_far() {
            self.retire();
        }
    }

    fn reaches_too_far(&self) -> bool {
        let digests: usize = self.digests.iter().map(|tally| tally.digests).sum();
        let without_oldest = self.matched().saturating_sub(1);
        digests > MOST || (digests > DIGESTS && without_oldest >= LEAST)
    }

    /// Digests with matched collectives.
    fn matched(&self) -> usize {
        self.digests.iter().filter(|tally| !tally.communicators.is_empty()).count()
    }

    /// The oldest digest counts towards a segment from now on.
    fn retire(&mut self) {
        let Some(gone) = self.digests.front() else { return };
        let (lost, at, step) = (self.lost(gone), gone.at, gone.step);
        let from = u32::try_from(self.from.0 / 1_000_000_000).unwrap_or(u32::MAX);
        let segment = Segment { from, lost: (lost / 1e9) as f32 };
        self.former.take(segment);
        push_bounded(&mut self.retired, segment, AVERAGED);
        (self.from, self.from_step) = (at, step);
        self.digests.pop_front();
    }

    /// The estimated loss in a digest.
    fn lost(&self, tally: &Tally) -> f64 {
        tally.communicators.iter().map(|counts| counts.gaps * self.stands_for(counts)).sum()
    }

    /// Collectives per timed one.
    fn stands_for(&self, counts: &Counts) -> f64 {
        if counts.joined >= TELLING { one_in(counts.rate) } else { self.few_stand_for(counts.id) }
    }

    /// Since when this share of the time has been lost, as far as kept: from then on most segments exceed
    /// half of it. A segment with few timed collectives may by chance show less.
    fn since(&self, share: f64) -> Moment {
        let (mut since, mut end) = (self.from, self.from);
        let (mut excess, mut most) = (0.0, 0.0);
        for segment in self.former.segments() {
            let began = segment.began();
            excess += f64::from(segment.lost) - share * end.since(began).as_secs_f64() / 2.0;
            end = began;
            if excess > most {
                (most, since) = (excess, began);
            }
        }
        since
    }

    pub(super) fn take(
        &mut self,
        (id, sequence, coarsest): (CommunicatorId, Sequence, Rate),
        Entry { gap, waited, late }: Entry,
    ) {
        let Some(tally) = self.digests.back_mut().filter(|tally| tally.at > self.from) else { return };
        let place = tally.communicators.iter().position(|counts| counts.id == id).unwrap_or_else(|| {
            tally.communicators.push(Counts::new(id, sequence));
            tally.communicators.len() - 1
        });
        let counts = &mut tally.communicators[place];
        let (gap, waited, late) = (gap.0 as f64, waited.0 as f64, late.0 as f64);
        counts.joined += 1;
        counts.last += u32::from(waited == 0.0);
        counts.rate = counts.rate.min(sampling::priority(sequence.0).leading_zeros());
        counts.coarsest = counts.coarsest.max(u32::from(coarsest.0));
        counts.first = counts.first.min(sequence);
        counts.latest = counts.latest.max(sequence);
        counts.gaps += gap;
        counts.squares += gap * gap;
        counts.waited += waited;
        counts.late += late;
        counts.late_squares += late * late;
    }

    /// `None` while too few collectives matched.
    pub(super) fn toll(&self) -> Option<Toll> {
        let passed = self.digests.back()?.at.since(self.from).as_nanos() as f64;
        if self.matched() < LEAST || passed <= 0.0 {
            return None;
        }
        let mut toll = Toll { since: self.from, ..Toll::default() };
        let mut lost = vec![0.0; self.digests.len()];
        let (mut late, mut late_error) = (0.0, 0.0);
        for (tally, lost) in self.digests.iter().zip(&mut lost) {
            for counts in &tally.communicators {
                let stands_for = self.stands_for(counts);
                *lost += counts.gaps * stands_for;
                toll.error += counts.squares * stands_for * (stands_for - 1.0);
                toll.waited += counts.waited * stands_for;
                late += counts.late * stands_for;
                late_error += counts.late_squares * stands_for * (stands_for - 1.0);
                toll.joined += counts.joined;
                toll.last += counts.last;
            }
        }
        let (sum, most) = (lost.iter().sum::<f64>(), lost.iter().copied().fold(0.0, f64::max));
        // The first digest with at least half of the mean loss.
        let began = lost.iter().position(|lost| 2.0 * lost > sum / self.digests.len() as f64).unwrap_or(0);
        toll.since = if began == 0 { self.since(sum / passed) } else { self.digests[began - 1].at };
        toll.average = self.average(&lost, sum / passed);
        let steps =
            self.digests.back()?.step.zip(self.from_step).and_then(|(to, from)| to.0.checked_sub(from.0));
        toll.step = steps.filter(|steps| *steps > 0).map(|steps| Nanoseconds((passed / steps as f64) as u64));
        let share = |time: f64| time / passed;
        let (cost, steady) = (share(sum), share(sum - most));
        let late_error = if late > 0.0 { late_error.sqrt() / late } else { 0.0 };
        let (error, waited) = (share(toll.error.sqrt()), share(toll.waited));
        Some(Toll { cost, error, steady, waited, late_error, ..toll })
    }

    /// The loss of this share of the time over all that is kept since it began, if it comes in few of these digests:
    /// from the first digest with a loss, which is not counted, to the last one.
    fn average(&self, lost: &[f64], share: f64) -> Option<f64> {
        let ends = self.digests.iter().map(|tally| tally.at.since(self.from).as_secs_f64());
        let ends: Vec<f64> = ends.collect();
        let now = ends.last().copied().unwrap_or(0.0);
        let recent = ends.iter().zip(lost).rev().map(|(end, lost)| (*end, lost / 1e9));
        let mut end = 0.0;
        let retired = self.retired.iter().rev().map(|segment| {
            let (ended, began) = (end, -self.from.since(segment.began()).as_secs_f64());
            end = began;
            (ended, f64::from(segment.lost))
        });
        // A digest is a second or longer.
        let parts: Vec<(f64, f64)> = recent.chain(retired).take(AVERAGED).collect();
        let begins = |at: usize| parts.get(at + 1).map_or(end, |(end, _)| *end);
        let has_lost = |at: &usize| parts[*at].1 > share * (parts[*at].0 - begins(*at)) / 2.0;
        let few = (0..lost.len()).filter(has_lost).count() * 2 < lost.len();
        let (mut excess, mut most, mut first) = (0.0, 0.0, 0);
        for (at, (ended, lost)) in parts.iter().enumerate() {
            excess += lost - share * (ended - begins(at)) / 2.0;
            if excess > most {
                (most, first) = (excess, at);
            }
        }
        let last = (0..parts.len()).find(has_lost).filter(|last| few && *last < first)?;
        let sum: f64 = parts[last..first].iter().map(|(_, lost)| lost).sum();
        let span = parts[last].0 - parts[first].0;
        // If the next one is late, it has become less.
        let usual = span / (last..first).filter(has_lost).count() as f64;
        Some(sum / (span + (now - parts[last].0 - usual).max(0.0)))
    }

    /// Collectives per timed one, over all digests of a communicator with few timed ones.
    fn few_stand_for(&self, id: CommunicatorId) -> f64 {
        let (mut joined, mut launched, mut before) = (0, 0, None);
        let (mut finest, mut coarsest) = (u32::MAX, 0);
        for counts in self.digests.iter().flat_map(|tally| &tally.communicators).filter(|one| one.id == id) {
            if counts.joined < TELLING {
                joined += u64::from(counts.joined);
                // One digest's may be reported in the next.
                launched += counts
                    .latest
                    .0
                    .saturating_sub(before.unwrap_or_else(|| counts.first.0.saturating_sub(1)));
                finest = finest.min(counts.rate);
                coarsest = coarsest.max(counts.coarsest);
            }
            before = before.max(Some(counts.latest.0));
        }
        if finest >= coarsest {
            return one_in(finest);
        }
        // Some were timed at a finer rate. A group has several numbers, and is timed once: the rate is the
        // limit.
        (launched as f64 / joined.max(1) as f64).clamp(1.0, one_in(coarsest))
    }
}

impl Counts {
    fn new(id: CommunicatorId, first: Sequence) -> Self {
        Self {
            id,
            joined: 0,
            last: 0,
            rate: u32::MAX,
            coarsest: 0,
            first,
            latest: first,
            gaps: 0.0,
            squares: 0.0,
            waited: 0.0,
            late: 0.0,
            late_squares: 0.0,
        }
    }
}

fn one_in(rate: u32) -> f64 {
    2_f64.powi(rate.min(30) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Of two ranks, the last is late by what the other waits.
    fn entry(gap: u64, waited: u64) -> Entry {
        Entry { gap: Nanoseconds(gap), waited: Nanoseconds(waited), late: Nanoseconds(gap) }
    }

    /// A hundred collectives a second, of which one in ten keeps the others waiting for 10 ms: a tenth of the
    /// time.
    fn estimate(rate: Rate, first: u64) -> Option<Toll> {
        let mut window = Window::default();
        for second in 0..=DIGESTS as u64 {
            window.begin(Moment((100 + second) * SECOND), None);
            for number in (0..100).map(|n| first + second * 100 + n).filter(|&number| rate.times(number)) {
                let gap = if number % 10 == 0 { 10_000_000 } else { 0 };
                let waited = if gap == 0 { 1_000_000 } else { 0 };
                window.take((CommunicatorId(1), Sequence(number), rate), entry(gap, waited));
            }
        }
        window.toll()
    }

    #[test]
    fn where_all_are_timed_it_is_what_was_lost() {
        let toll = estimate(Rate::EVERY, 0).unwrap();
        assert!((toll.cost - 0.1).abs() < 1e-9 && toll.error == 0.0, "{toll:?}");
        assert!((toll.waited - 0.09).abs() < 1e-9 && toll.average.is_none(), "{toll:?}");
        assert_eq!((toll.joined, toll.last), (1500, 150));
    }

    #[test]
    fn a_sample_has_no_bias_and_its_error_is_reported() {
        for k in [1, 2, 4] {
            let all: Vec<_> = (0..200).map(|n| estimate(Rate(k), n * 77_777).unwrap()).collect();
            let mean = all.iter().map(|toll| toll.cost).sum::<f64>() / 200.0;
            let error = all.iter().map(|toll| toll.error).sum::<f64>() / 200.0;
            let spread = (all.iter().map(|toll| (toll.cost - mean).powi(2)).sum::<f64>() / 200.0).sqrt();
            assert!((mean / 0.1 - 1.0).abs() < 0.05, "one in 2^{k}: {mean}");
            assert!((error / spread - 1.0).abs() < 0.25, "one in 2^{k}: told {error}, is {spread}");
        }
    }

    /// Ten collectives a second, the first of which keeps the others waiting for a second, every five seconds; begun a
    /// minute and a half ago.
    #[test]
    fn a_loss_every_few_seconds_is_averaged_since_it_began() {
        for end in 150..160 {
            let mut window = Window::default();
            for second in 0..end {
                window.begin(Moment((100 + second) * SECOND), None);
                for number in 0..10 {
                    let late = second >= 60 && second % 5 == 0 && number == 0;
                    let (gap, waited) = if late { (SECOND, 0) } else { (0, 10_000_000) };
                    let collective = (CommunicatorId(1), Sequence(10 * second + number), Rate::EVERY);
                    window.take(collective, entry(gap, waited));
                }
            }
            let toll = window.toll().unwrap();
            assert!((toll.average.unwrap() - 0.2).abs() < 0.01, "second {end}: {toll:?}");
        }
    }

    /// Five collectives a step of two seconds, of which the first keeps the others waiting for a second; the
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
                    let collective = (CommunicatorId(1), Sequence(number), Rate(2));
                    window.take(collective, entry(gap, 0));
                }
            }
            window.toll()
        };
        let all: Vec<f64> = (0..400).filter_map(|n| Some(estimate(n * 1_111)?.cost)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!(all.len() > 300 && (0.42..0.58).contains(&mean), "{mean} of {}", all.len());
    }

    /// To an eighth of its age, and in a few kilobytes.
    #[test]
    fn since_when_it_costs_is_known_for_a_day() {
        for hours in [1, 5, 20] {
            let mut window = Window::default();
            for second in 0..3600 * (hours + 3) {
                window.begin(Moment((1_000_000 + second) * SECOND), None);
                let late = second >= 3 * 3600;
                let (gap, waited) = if late { (100_000_000, 0) } else { (0, 10_000_000) };
                for sequence in [2 * second, 2 * second + 1] {
                    let collective = (CommunicatorId(1), Sequence(sequence), Rate::EVERY);
                    window.take(collective, entry(gap, waited));
                }
            }
            let ago = (1_000_000 + 3600 * (hours + 3)) - window.toll().unwrap().since.0 / SECOND;
            let off = ago.abs_diff(3600 * hours) as f64 / (3600 * hours) as f64;
            assert!(off < 0.125, "{hours} hours ago, told {ago} s");
        }
    }

    /// It costs nothing for two minutes, and a tenth of the time from then on.
    #[test]
    fn since_when_it_costs_is_known_for_minutes() {
        for rate in [Rate::EVERY, Rate(3)] {
            let mut window = Window::default();
            for second in 0..400 {
                window.begin(Moment((100 + second) * SECOND), None);
                for number in (0..100).map(|n| second * 100 + n).filter(|&number| rate.times(number)) {
                    let late = second >= 120 && number % 10 == 0;
                    let (gap, waited) = if late { (10_000_000, 0) } else { (0, 1_000_000) };
                    window.take((CommunicatorId(1), Sequence(number), rate), entry(gap, waited));
                }
            }
            let since = window.toll().unwrap().since.0 / SECOND - 100;
            assert!((105..=135).contains(&since), "{rate:?}: since second {since}");
        }
    }

    /// A collective in each step of six seconds.
    #[test]
    fn of_long_steps_as_many_are_looked_at() {
        let mut window = Window::default();
        for second in 0..120 {
            window.begin(Moment((100 + second) * SECOND), Some(Step(FIRST + second / 6)));
            if second % 6 == 5 {
                let collective = (CommunicatorId(1), Sequence(second / 6), Rate::EVERY);
                window.take(collective, entry(3 * SECOND, 0));
            }
            if second >= 6 * (LEAST as u64 + 1) {
                let toll = window.toll().expect("five steps ended");
                assert!((0.4..=0.6).contains(&toll.cost), "second {second}: {toll:?}");
            }
        }
        assert_eq!(window.toll().unwrap().step, Some(Nanoseconds(6 * SECOND)));
        let digests: usize = window.digests.iter().map(|tally| tally.digests).sum();
        assert!((25..=36).contains(&digests), "{digests}");
        for second in 120..400 {
            window.begin(Moment((100 + second) * SECOND), None);
        }
        assert_eq!(window.toll(), None, "none were matched for minutes");
    }

    #[test]
    fn of_too_little_nothing_is_said() {
        let mut window = Window::default();
        for second in 0..4 {
            window.begin(Moment((100 + second) * SECOND), None);
            window.take((CommunicatorId(1), Sequence(second), Rate::EVERY), entry(5, 0));
        }
        assert_eq!(window.toll(), None);
    }
}
