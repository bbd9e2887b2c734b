//! Keeps the last day's published frames, coarser with age. A viewer that connects later gets them, and then
//! knows as much as one that was always connected.
//!
//! Every digest is kept for ten minutes, one per ten seconds for two hours, and one per minute for a day.
//! They are in memory, compressed, and in recordings in the runtime directory, from which a restarted
//! collector continues. A viewer of many hosts gets no more digests of each rank than it can read: the newest
//! ones, and before them merged ones ([`plan`]).

mod plan;
mod thin;
mod tier;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use plan::Plan;
use thin::Thinner;
use tier::{Extent, Tier};
use xpu_wire::{
    codec,
    frame::{Body, Frame, History, RankDigest},
    id::JobName,
    unit::Moment,
};

/// The finest tier. A rank takes about 60 bytes for each digest: 170 KiB in all tiers. If a collector is
/// killed, frames of this tier that are not yet on disk are lost.
const SECONDS: Extent =
    Extent { kept: Duration::from_mins(10), most_bytes: 32 << 20, block: Duration::from_secs(10) };

/// The coarser tiers. If a collector is killed, frames of these tiers that are not yet on disk are rebuilt
/// from the finer tier, which still has them.
const TENS: (Duration, Extent) = (
    Duration::from_secs(10),
    Extent { kept: Duration::from_hours(2), most_bytes: 32 << 20, block: Duration::from_secs(150) },
);
const MINUTES: (Duration, Extent) = (
    Duration::from_mins(1),
    Extent { kept: Duration::from_hours(24), most_bytes: 64 << 20, block: Duration::from_mins(10) },
);

/// A history with coarser digests still has every digest of this time: rules compare the last half minute
/// with the half minute before.
const FINE: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(crate) struct Past {
    seconds: Tier,
    /// One digest of each ten seconds, and of each minute.
    coarse: [(Thinner, Tier); 2],
}

impl Past {
    /// Continues where the previous collector ended. Without files, if none can be written.
    pub(crate) fn open(path: &Path, now: Moment) -> Self {
        let coarse = |(every, extent), name| {
            (Thinner::new(every, thin::SAMPLES), Tier::open(&beside(path, name), extent, now))
        };
        let seconds = Tier::open(path, SECONDS, now);
        let mut coarse = [coarse(TENS, "tens"), coarse(MINUTES, "minutes")];
        // Each tier is filled from the finer ones.
        for at in 0..coarse.len() {
            let (finer, rest) = coarse.split_at_mut(at);
            let [(thinner, tier), ..] = rest else { continue };
            let known = tier.newest();
            let mut from = known;
            for above in finer.iter().map(|(_, tier)| tier).rev().chain([&seconds]) {
                let mut newest = from;
                above.each(|frame, bytes| {
                    if frame.now > from && thinner.is_after(frame.now, known) {
                        take(thinner, tier, frame, bytes, frame.now);
                        newest = newest.max(frame.now);
                    }
                });
                from = newest;
            }
        }
        Self { seconds, coarse }
    }

    /// Keeps a published frame.
    pub(crate) fn keep(&mut self, frame: &Frame, bytes: &[u8], now: Moment) {
        self.seconds.keep(bytes, now);
        for (thinner, tier) in &mut self.coarse {
            take(thinner, tier, frame, bytes, now);
        }
    }

    /// Compresses and writes what is old enough.
    pub(crate) fn tend(&mut self, now: Moment) {
        self.seconds.tend(now);
        self.coarse.iter_mut().for_each(|(_, tier)| tier.tend(now));
    }

    /// The history of these jobs, of this length, in parts. If it is longer than the finest tier, each tier
    /// gives the same share of its frames.
    pub(crate) fn of(&mut self, jobs: &[(JobName, Moment)], length: Duration, now: Moment) -> Vec<History> {
        self.settle();
        let mut parts = Parts::default();
        let share = (length.as_secs_f64() / MINUTES.1.kept.as_secs_f64()).min(1.0);
        self.each(jobs, length, share, now, |_, bytes| parts.push(bytes));
        parts.end()
    }

    /// The history of these jobs, of this length, in parts, with at most this many digests per rank: the newest
    /// as they were published, and before them merged ones.
    pub(crate) fn thinned(
        &mut self,
        jobs: &[(JobName, Moment)],
        length: Duration,
        digests: u32,
        now: Moment,
    ) -> Vec<History> {
        self.settle();
        let began = jobs.iter().map(|&(_, started)| started).min().unwrap_or(now);
        let plan = Plan::new(length.min(MINUTES.1.kept).min(now.since(began)), digests, now);
        let (mut parts, mut thinner) = (Parts::default(), Thinner::new(Duration::ZERO, RankDigest::SAMPLES));
        self.each(jobs, length, 1.0, now, |frame, bytes| {
            let Some((span, merges)) = plan.span(frame.now) else { return };
            match &frame.body {
                Body::Digest(_) if merges => {
                    thinner.take_in(span, frame).iter().for_each(|thin| parts.push(&codec::encode(thin)));
                }
                Body::Digest(_) => {
                    thinner.end().iter().for_each(|thin| parts.push(&codec::encode(thin)));
                    parts.push(bytes);
                }
                Body::Event(_) => parts.push(bytes),
                // Of the others, a viewer keeps only the newest.
                _ if plan.is_newest(frame.now) => parts.push(bytes),
                _ => {}
            }
        });
        thinner.end().iter().for_each(|thin| parts.push(&codec::encode(thin)));
        parts.end()
    }

    /// Compresses everything, which may push out the oldest blocks.
    fn settle(&mut self) {
        self.seconds.settle();
        self.coarse.iter_mut().for_each(|(_, tier)| tier.settle());
    }

    /// Passes the frames of these jobs of the last `length` to `see`, oldest first. If that is longer than the
    /// finest tier, each tier gives this share of its time.
    fn each(
        &self,
        jobs: &[(JobName, Moment)],
        length: Duration,
        share: f64,
        now: Moment,
        mut see: impl FnMut(&Frame, &[u8]),
    ) {
        let [(_, tens), (_, minutes)] = &self.coarse;
        // A coarser tier ends where a finer one begins, so that no collective occurs twice.
        let begins = |kept: Duration, every: Duration| {
            let given = kept.mul_f64(share).max(FINE);
            let from = Moment(now.0.saturating_sub(given.as_nanos() as u64));
            if length <= SECONDS.kept { Moment::default() } else { thin::begin(from, every) }
        };
        let seconds_from = self.seconds.first().unwrap_or(now).max(begins(SECONDS.kept, TENS.0));
        let tens_from = tens.first().map_or(seconds_from, |first| thin::begin_before(first, TENS.0));
        let tens_from = tens_from.max(begins(TENS.1.kept, MINUTES.0));
        let tiers = [
            (minutes, MINUTES.0, Moment::default(), tens_from.min(seconds_from)),
            (tens, TENS.0, tens_from, seconds_from),
            (&self.seconds, Duration::ZERO, seconds_from, now),
        ];
        for (tier, every, from, until) in tiers {
            tier.each(|frame, bytes| {
                let is_coarse = !every.is_zero();
                let is_covered = is_coarse && thin::end(frame.now, every) > until;
                if !is_covered && frame.now >= from && now.since(frame.now) <= length && is_of(frame, jobs) {
                    see(frame, bytes);
                }
            });
        }
    }
}

/// Frames in parts of at most [`History::PART`] bytes.
#[derive(Default)]
struct Parts(Vec<History>);

impl Parts {
    fn push(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(part) if part.frames.len() + bytes.len() <= History::PART => part.frames.push(bytes),
            _ => {
                let mut part = History::default();
                part.frames.push(bytes);
                self.0.push(part);
            }
        }
    }

    /// At least one part, so that there is an answer.
    fn end(mut self) -> Vec<History> {
        match self.0.split_last_mut() {
            Some((_, former)) => former.iter_mut().for_each(|part| part.more = true),
            None => self.0.push(History::default()),
        }
        self.0
    }
}

fn take(thinner: &mut Thinner, tier: &mut Tier, frame: &Frame, bytes: &[u8], now: Moment) {
    for thin in thinner.take(frame) {
        tier.keep(&codec::encode(&thin), now);
    }
    // Every single event is kept.
    if matches!(frame.body, Body::Event(_)) {
        tier.keep(bytes, now);
    }
}

/// Whether the frame is from the present run of one of the jobs. An earlier run of the same name is another
/// job.
fn is_of(frame: &Frame, jobs: &[(JobName, Moment)]) -> bool {
    let job = match &frame.body {
        Body::Digest(digest) => &digest.job,
        Body::Cpu(cpu) => &cpu.job,
        Body::Times(times) => &times.job,
        Body::Work(work) => &work.job,
        Body::Neighbours(neighbours) => &neighbours.job,
        Body::Event(event) => event.job(),
        _ => return false,
    };
    jobs.iter().any(|(name, started)| name == job && *started <= frame.now)
}

/// The file of a coarser tier.
fn beside(path: &Path, tier: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{tier}.xpurec"))
}

#[cfg(test)]
#[path = "history/late_viewer_tests.rs"]
mod late_viewer_tests;
#[cfg(test)]
#[path = "history/tests.rs"]
mod tests;
