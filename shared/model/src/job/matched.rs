//! The results from matched collectives: bus bandwidth, arrival skew, and the share of collectives that are
//! matched.

use xpu_wire::{
    id::Rank,
    unit::{GigabytesPerSecond, Nanoseconds},
};

use super::{Job, RankView, Sample, join::Join, median, rank::SAMPLES};

/// The seen part of a partly seen communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartlySeen {
    pub ranks: u32,
    pub of: u32,
}

impl Job {
    /// Bus bandwidth of the collectives in which this rank took part: the median over its latest timed ones.
    /// Each is computed from the transfer, the shortest duration of any rank. `None` until all ranks of a
    /// communicator have reported one.
    ///
    /// If a rank sends and receives more bytes than its collectives move, this is the bandwidth of its
    /// messages. Their transfer is the shorter of the durations at the two ends.
    pub fn bus_bandwidth(&self, rank: Rank) -> Option<GigabytesPerSecond> {
        let view = self.ranks.get(&rank)?;
        if sends_most(view) {
            return self.bus_bandwidth_of(view.messages());
        }
        self.bus_bandwidth_of(view.samples())
    }

    /// Same as [`Self::bus_bandwidth`], over some of a rank's timed collectives.
    pub fn bus_bandwidth_of<'a>(
        &self,
        samples: impl Iterator<Item = &'a Sample>,
    ) -> Option<GigabytesPerSecond> {
        let rates = samples.filter_map(|sample| rate(sample, self.complete(sample)?));
        median(rates.collect()).map(GigabytesPerSecond)
    }

    /// The communicator with the most ranks seen, among those that are only partly seen.
    ///
    /// A new rank is left out, because the reports of the other hosts may still be on their way.
    pub fn partly_seen(&self) -> Option<PartlySeen> {
        self.ranks.values().filter(|view| view.is_settled()).find_map(|view| {
            let mut most = None;
            for join in view.samples().filter_map(|sample| self.join(sample)) {
                if join.is_complete() {
                    return None;
                }
                most = most.max(Some(join.seen()));
            }
            most.map(|(ranks, of)| PartlySeen { ranks, of })
        })
    }

    /// The share of the ranks' timed collectives that every rank of the communicator has reported. `None`
    /// while none was timed.
    pub fn joined(&self) -> Option<f64> {
        let samples = || self.views().flat_map(RankView::samples);
        let joined =
            samples().filter_map(|sample| self.join(sample)).filter(|join| join.is_complete()).count();
        let all = samples().count();
        (all > 0).then(|| joined as f64 / all as f64)
    }

    /// The median time by which this rank enters its collectives later than the first rank.
    pub fn arrival_skew(&self, rank: Rank) -> Option<Nanoseconds> {
        self.arrival_skew_of(self.ranks.get(&rank)?.samples())
    }

    /// Bus bandwidth and arrival skew of a rank of this job. Both use the same collectives, which are looked
    /// up once.
    pub fn bus_and_skew(&self, view: &RankView) -> (Option<GigabytesPerSecond>, Option<Nanoseconds>) {
        let (mut rates, mut late) = (Vec::with_capacity(SAMPLES), Vec::with_capacity(SAMPLES));
        for sample in view.samples() {
            let Some(join) = self.complete(sample) else { continue };
            late.push(late_by(sample, join));
            rates.extend(rate(sample, join));
        }
        if sends_most(view) {
            rates = view.messages().filter_map(|sample| rate(sample, self.complete(sample)?)).collect();
        }
        let late = median(late).map(|nanoseconds| Nanoseconds(nanoseconds as u64));
        (median(rates).map(GigabytesPerSecond), late)
    }

    /// Same as [`Self::arrival_skew`], over some of a rank's timed collectives.
    pub fn arrival_skew_of<'a>(&self, samples: impl Iterator<Item = &'a Sample>) -> Option<Nanoseconds> {
        let late = samples.filter_map(|sample| Some(late_by(sample, self.complete(sample)?)));
        median(late.collect()).map(|nanoseconds| Nanoseconds(nanoseconds as u64))
    }

    pub(super) fn join(&self, sample: &Sample) -> Option<&Join> {
        self.joins.get(sample.place, sample.participants, sample.sequence)
    }

    /// The collective as all its ranks saw it; `None` while a rank is missing. Without the last rank, the
    /// shortest duration includes waiting, so it is no transfer.
    pub(super) fn complete(&self, sample: &Sample) -> Option<&Join> {
        self.join(sample).filter(|join| join.is_complete())
    }
}

/// Whether most of its recently timed bytes were in sends and receives.
fn sends_most(view: &RankView) -> bool {
    let messages: u64 = view.messages().map(|sample| sample.bus_bytes).sum();
    messages > 0 && messages > view.samples().map(|sample| sample.bus_bytes).sum()
}

/// Bus bandwidth in GB/s, once all ranks had entered.
fn rate(sample: &Sample, join: &Join) -> Option<f64> {
    GigabytesPerSecond::from_work(sample.bus_bytes as f64, join.transfer()).map(|rate| rate.0)
}

/// Nanoseconds after the first rank.
fn late_by(sample: &Sample, join: &Join) -> f64 {
    join.longest().0.saturating_sub(sample.duration.0) as f64
}
