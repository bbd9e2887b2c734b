//! Thins digests for older history: merges those of an interval into one.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use xpu_wire::{
    frame::{Body, CollectiveSample, Frame, HostDigest, RankDigest},
    id::{CommunicatorId, JobName, Rank},
    unit::{Moment, Nanoseconds},
};

/// Timed collectives that a tier keeps per rank. Their number still shows their sampling rate.
pub(super) const SAMPLES: usize = 8;

/// Timed collectives that wait for the end of the interval, as a multiple of those that are kept: a power of
/// two.
const WAITING: usize = 8;

/// Merges the digests of each interval, by the host's clock, into one. It has the totals of the last digest,
/// and combines the values of each interval.
#[derive(Debug)]
pub(super) struct Thinner {
    every: Duration,
    /// Timed collectives kept per rank.
    most: usize,
    number: u64,
    open: BTreeMap<JobName, Open>,
}

/// The digests of one job.
#[derive(Debug)]
struct Open {
    last: Frame,
    ranks: BTreeMap<Rank, Thinned>,
}

#[derive(Debug)]
struct Thinned {
    digest: RankDigest,
    /// Each communicator's timed collectives of smallest priority: one in 2^`rate`.
    samples: Vec<(CommunicatorId, CollectiveSample)>,
    rate: u32,
    /// Medians of steps, and the number of steps of each.
    paces: Vec<(Nanoseconds, u32)>,
}

fn number(at: Moment, every: Duration) -> u64 {
    at.0 / u64::try_from(every.as_nanos()).unwrap_or(u64::MAX)
}

/// The end of the interval in which a moment is.
pub(super) fn end(at: Moment, every: Duration) -> Moment {
    Moment(number(at, every).saturating_add(1).saturating_mul(every.as_nanos() as u64))
}

/// The begin of the interval in which a moment is.
pub(super) fn begin(at: Moment, every: Duration) -> Moment {
    Moment(number(at, every).saturating_mul(every.as_nanos() as u64))
}

/// The begin of the interval before that in which a moment is.
pub(super) fn begin_before(at: Moment, every: Duration) -> Moment {
    Moment(number(at, every).saturating_sub(1).saturating_mul(every.as_nanos() as u64))
}

impl Thinner {
    pub(super) fn new(every: Duration, most: usize) -> Self {
        Self { every, most, number: 0, open: BTreeMap::new() }
    }

    /// Whether `at` is in a later interval than `other`.
    pub(super) fn is_after(&self, at: Moment, other: Moment) -> bool {
        number(at, self.every) > number(other, self.every)
    }

    /// Takes a frame. Returns the merged frames of the interval that ended before it.
    pub(super) fn take(&mut self, frame: &Frame) -> Vec<Frame> {
        self.take_in(number(frame.now, self.every), frame)
    }

    /// Same as [`Self::take`], for the interval of this number.
    pub(super) fn take_in(&mut self, number: u64, frame: &Frame) -> Vec<Frame> {
        let Body::Digest(digest) = &frame.body else { return Vec::new() };
        let ended = if number == self.number { Vec::new() } else { self.end() };
        self.number = number;
        let body = HostDigest { job: digest.job.clone(), ranks: Vec::new(), turned_away: digest.turned_away };
        let last = Frame { body: Body::Digest(body), host: frame.host.clone(), ..*frame };
        let open = match self.open.entry(digest.job.clone()) {
            Entry::Vacant(open) => open.insert(Open { last, ranks: BTreeMap::new() }),
            Entry::Occupied(open) => {
                let open = open.into_mut();
                open.last = last;
                open
            }
        };
        for digest in &digest.ranks {
            match open.ranks.get_mut(&digest.rank).filter(|thinned| thinned.digest.pid == digest.pid) {
                Some(thinned) => thinned.take(digest, self.most),
                None => drop(open.ranks.insert(digest.rank, Thinned::of(digest, self.most))),
            }
        }
        ended
    }

    /// Ends the interval. Returns its merged frames.
    pub(super) fn end(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.open).into_values().map(|open| open.end(self.most)).collect()
    }
}

impl Open {
    fn end(self, most: usize) -> Frame {
        let mut frame = self.last;
        if let Body::Digest(digest) = &mut frame.body {
            digest.ranks = self.ranks.into_values().map(|thinned| thinned.end(most)).collect();
        }
        frame
    }
}

impl Thinned {
    fn of(digest: &RankDigest, most: usize) -> Self {
        let digest_of = RankDigest { samples: Vec::new(), ..digest.clone() };
        let mut thinned = Self { digest: digest_of, samples: Vec::new(), rate: 0, paces: Vec::new() };
        thinned.take(digest, most);
        thinned
    }

    fn take(&mut self, digest: &RankDigest, most: usize) {
        let rate = self.rate;
        let kept = digest.samples.iter().filter(|sample| sample.priority().leading_zeros() >= rate);
        let named = kept.filter_map(|sample| {
            Some((digest.communicators.get(usize::from(sample.communicator))?.id, *sample))
        });
        self.samples.extend(named);
        self.coarsen(WAITING * most);
        self.paces.extend(digest.step_median.map(|median| (median, digest.step_count)));
        self.digest = RankDigest { samples: Vec::new(), ..digest.clone() };
    }

    /// Halves the samples, by the hash that all ranks share, until at most `most` are left. Their sampling
    /// rate stays known.
    fn coarsen(&mut self, most: usize) {
        while self.samples.len() > most && self.rate < u64::BITS {
            self.rate += 1;
            let rate = self.rate;
            self.samples.retain(|(_, sample)| sample.priority().leading_zeros() >= rate);
        }
    }

    fn end(mut self, most: usize) -> RankDigest {
        self.coarsen(most);
        let Self { mut digest, samples, mut paces, .. } = self;
        let place = |id| digest.communicators.iter().position(|state| state.id == id);
        let indexed = samples.into_iter().filter_map(|(id, sample)| {
            Some(CollectiveSample { communicator: u8::try_from(place(id)?).ok()?, ..sample })
        });
        digest.samples = indexed.collect();
        paces.sort_unstable();
        digest.step_count = paces.iter().map(|(_, count)| count).sum();
        let mut below = 0;
        digest.step_median = paces.iter().find_map(|&(median, count)| {
            below += count;
            (2 * below >= digest.step_count).then_some(median)
        });
        digest
    }
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;
    use xpu_wire::id::Sequence;

    use super::*;

    /// The digests of `every` seconds each, with `each` of a hundred collectives timed a second.
    fn thinned(every: u64, seconds: u64, each: u64) -> Vec<RankDigest> {
        let simulation = Simulation::new(1, 1, 1);
        let mut thinner = Thinner::new(Duration::from_secs(every), SAMPLES);
        let mut out = Vec::new();
        for second in 0..=seconds {
            let mut frame = simulation.digests(120 + second).remove(0);
            let Body::Digest(digest) = &mut frame.body else { unreachable!() };
            let sample = digest.ranks[0].samples[0];
            let timed = (0..each).map(|n| Sequence(second * 100 + n));
            digest.ranks[0].samples = timed.map(|sequence| CollectiveSample { sequence, ..sample }).collect();
            digest.ranks[0].step_median = Some(Nanoseconds(100 + second));
            for frame in thinner.take(&frame) {
                let Body::Digest(digest) = frame.body else { unreachable!() };
                out.extend(digest.ranks);
            }
        }
        out
    }

    #[test]
    fn thinning_keeps_one_digest_of_ten_seconds_with_the_last_totals() {
        let digests = thinned(10, 30, 1);
        assert_eq!(digests.len(), 3);
        let all = Simulation::new(1, 1, 1).digests(129).remove(0);
        let Body::Digest(last) = all.body else { unreachable!() };
        assert_eq!((digests[0].step, digests[0].heard), (last.ranks[0].step, last.ranks[0].heard));
        assert_eq!(digests[0].step_median, Some(Nanoseconds(104)), "the middle one of ten");
    }

    /// The rate is a power of two, so that each sample represents a known number of collectives.
    #[test]
    fn thinning_keeps_the_collectives_that_a_coarser_rate_would_time() {
        for every in [10, 60] {
            for digest in thinned(every, 3 * every, 24) {
                let left = &digest.samples;
                assert!((2..=SAMPLES).contains(&left.len()), "{} are left of {every} s", left.len());
                let rate = |sequence: u64| xpu_wire::sampling::priority(sequence).leading_zeros();
                let coarsest = left.iter().map(|sample| rate(sample.sequence.0)).min().unwrap();
                let first = left[0].sequence.0 / (100 * every) * (100 * every);
                let all = (0..every).flat_map(|second| (0..24).map(move |n| first + second * 100 + n));
                let same = all.filter(|&sequence| rate(sequence) >= coarsest).count();
                assert_eq!(left.len(), same, "all of one in 2^{coarsest}, and none beside them");
            }
        }
    }
}
