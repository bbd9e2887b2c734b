//! The data of ranks whose captures arrive. What never becomes whole is dropped: a rank may die while it
//! sends, or a part may be lost.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use xpu_analysis::{
    behaviour,
    capture::{Capture, RankCapture, Sampled},
};
use xpu_wire::{
    frame::{Body, CaptureOrder, CapturePart, CaptureSheet, Frame, HostDigest, PythonSamples, RankFunctions},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use super::Data;

/// Ranks whose data arrives at the same time. A host has tens.
const RANKS: usize = 256;

/// Operations, labels, samples, and parts of one rank. A hook records 65,536 operations, and about as many
/// kernels.
const ENTRIES: usize = 1 << 20;

/// Data to which nothing was added for this time is dropped. Rare samples need many minutes to fill a part.
const KEPT: Duration = Duration::from_mins(15);

/// Same after the end of the capture: ranks that still record then send what they have.
const ENDS: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Arriving {
    ranks: BTreeMap<(JobName, Rank), Coming>,
}

/// The data of a rank that has arrived so far.
struct Coming {
    /// The number of the capture. A rank has one at a time, so a new one replaces one that did not end.
    number: u64,
    capture: Capture,
    awaits_samples: bool,
    /// Above the limit, the capture is empty.
    entries: usize,
    touched: Instant,
    /// How long it is kept without further data.
    kept: Duration,
}

impl Arriving {
    pub(super) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Takes data, and returns the functions of its rank if that is whole now.
    pub(super) fn take(&mut self, data: Data, now: Instant) -> Option<RankFunctions> {
        let (number, job, rank, entries) = match &data {
            Data::Operations(part, ..) => (part.number, part.job.clone(), part.rank, of_part(part)),
            Data::Samples(part) => (part.number, part.job.clone(), part.rank, of_samples(part)),
            Data::End(number) => {
                let its = self.ranks.values_mut().filter(|its| its.number == *number);
                its.for_each(|its| (its.touched, its.kept) = (now, ENDS));
                return None;
            }
        };
        let place = (job, rank);
        if self.ranks.get(&place).is_none_or(|its| its.number != number) {
            self.ranks.remove(&place);
            self.make_room();
            self.ranks.insert(place.clone(), begin(number, &place.0, rank, now));
        }
        let its = self.ranks.get_mut(&place)?;
        its.touched = now;
        its.entries = its.entries.saturating_add(entries);
        if its.entries > ENTRIES {
            its.capture = Capture::default();
            return None;
        }
        match data {
            Data::Operations(part, digest, samples) => {
                its.awaits_samples = samples;
                let ranks = digest.into_iter().map(|digest| *digest).collect();
                let digest = HostDigest { job: place.0.clone(), ranks, turned_away: 0 };
                take(&mut its.capture, Body::Digest(digest));
                take(&mut its.capture, Body::CapturePart(part));
            }
            Data::Samples(part) => take(&mut its.capture, Body::PythonSamples(part)),
            Data::End(_) => {}
        }
        if !its.is_whole(rank) {
            return None;
        }
        let Coming { capture, .. } = self.ranks.remove(&place)?;
        behaviour::functions(&capture, rank).map(behaviour::brief)
    }

    /// Drops the oldest data if there are too many ranks.
    fn make_room(&mut self) {
        if self.ranks.len() >= RANKS
            && let Some((place, _)) = self.ranks.iter().min_by_key(|(_, its)| its.touched)
        {
            let place = place.clone();
            self.ranks.remove(&place);
        }
    }

    /// Drops data to which nothing was added for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        self.ranks.retain(|_, its| now.saturating_duration_since(its.touched) < its.kept);
    }
}

impl Coming {
    fn is_whole(&self, rank: Rank) -> bool {
        let has_ended = |sampled: &Sampled| sampled.account.is_some();
        self.capture.ranks.get(&rank).is_some_and(RankCapture::is_whole)
            && (!self.awaits_samples || self.capture.sampled.get(&rank).is_some_and(has_ended))
    }
}

/// Number of entries. The part itself counts, because it may be empty.
fn of_part(part: &CapturePart) -> usize {
    1 + part.labels.len() + part.operations.len()
}

fn of_samples(part: &PythonSamples) -> usize {
    1 + part.threads.len() + part.frames.len() + part.stacks.len() + part.samples.len()
}

/// A capture of one rank, before its data.
fn begin(number: u64, job: &JobName, rank: Rank, now: Instant) -> Coming {
    let order = CaptureOrder { number, ..CaptureOrder::default() };
    let (job, ranks) = (job.clone(), vec![rank]);
    let mut capture = Capture::default();
    let sheet = CaptureSheet { order, job, ranks, closed: false, missing: Vec::new(), stall: None };
    take(&mut capture, Body::CaptureSheet(sheet));
    Coming { number, capture, awaits_samples: false, entries: 0, touched: now, kept: KEPT }
}

fn take(capture: &mut Capture, body: Body) {
    capture.take(&Frame { host: HostName::default(), number: 0, now: Moment(0), lost: 0, body });
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::example::capture::{ORDER, part};

    use super::*;

    /// One of two parts, the other of which may never come.
    fn half(rank: u32, number: u32) -> Data {
        let CapturePart { account, operations, .. } = part(rank, 0);
        let account = account.filter(|_| number == 0);
        let part = CapturePart { part: number, parts: 2, account, operations, ..part(rank, 0) };
        Data::Operations(part, None, false)
    }

    #[test]
    fn data_that_never_becomes_whole_is_dropped() {
        let (mut arriving, began) = (Arriving::default(), Instant::now());
        assert_eq!(arriving.take(half(3, 0), began), None);
        arriving.expire(began + KEPT / 2);
        assert!(!arriving.is_empty());
        arriving.expire(began + KEPT);
        assert!(arriving.is_empty());
    }

    #[test]
    fn after_the_end_of_a_capture_its_ranks_may_still_send_for_some_seconds() {
        let (mut arriving, began) = (Arriving::default(), Instant::now());
        arriving.take(half(3, 0), began);
        arriving.take(half(4, 0), began);
        assert_eq!(arriving.take(Data::End(ORDER.number), began), None);
        assert!(arriving.take(half(4, 1), began + ENDS / 2).is_some());
        arriving.expire(began + ENDS);
        assert!(arriving.is_empty());
    }

    #[test]
    fn of_too_many_ranks_the_oldest_is_dropped() {
        let (mut arriving, began) = (Arriving::default(), Instant::now());
        for rank in 0..=RANKS as u32 {
            // The first ranks by number are the newest.
            arriving.take(half(1000 - rank, 0), began + Duration::from_secs(rank.into()));
        }
        assert_eq!(arriving.ranks.len(), RANKS);
        let later = began + Duration::from_secs(RANKS as u64 + 1);
        assert_eq!(arriving.take(half(1000, 1), later), None, "it was dropped");
        assert!(arriving.take(half(1000 - RANKS as u32, 1), later).is_some());
    }

    #[test]
    fn a_rank_that_sends_too_much_is_not_kept() {
        let (mut arriving, now) = (Arriving::default(), Instant::now());
        let labels = vec![part(3, 0).labels.remove(0); 1 << 16];
        for number in 0..=(ENTRIES / labels.len()) as u32 {
            let part = CapturePart { part: number, parts: u32::MAX, labels: labels.clone(), ..part(3, 0) };
            assert_eq!(arriving.take(Data::Operations(part, None, false), now), None);
        }
        assert!(arriving.ranks.values().all(|its| its.capture.is_empty() && its.entries > ENTRIES));
    }
}
