//! Where a rank's time goes in a running job, from digests. Only a capture has the whole breakdown.

use std::collections::BTreeMap;

use xpu_wire::{
    frame::RankTimes,
    id::{CommunicatorId, Rank},
    unit::Nanoseconds,
};

use super::{Job, RankView, Sample, median};

/// Shares of the last half minute; `None` if unknown. They overlap, because communication may run at the same
/// time as GEMMs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Breakdown {
    /// The GPU in GEMMs: the FLOPs of all GEMMs, at the rate of the timed ones.
    pub gemms: Option<f64>,
    /// The time that the GEMMs would take at the GPU's peak, at its highest clock.
    pub at_peak: Option<f64>,
    /// The GPU's clock, as a share of its highest clock.
    pub clock: Option<f64>,
    /// The GPU in collectives: all of them, each as long as the timed ones. Waiting for others is included.
    pub collectives: Option<f64>,
    /// The part in which the rank waited for others, if the times of all ranks are known.
    pub waiting: Option<f64>,
    /// The time in which communication held up GEMMs: the part that nothing hides.
    pub exposed: Option<f64>,
    /// Threads of the program blocked until the GPU was done. With several threads, it may exceed one.
    pub blocked: Option<f64>,
    /// The parts of `blocked` in calls that synchronize, and in copies that are not asynchronous.
    pub synchronizing: Option<f64>,
    pub copying: Option<f64>,
    /// Waiting for the next batch; Python's garbage collections.
    pub loading: Option<f64>,
    pub collecting: Option<f64>,
    /// The GPU in any kernel, by the driver.
    pub busy: Option<f64>,
}

impl Breakdown {
    /// For each share, the median over ranks.
    pub fn middle(known: &[Self]) -> Self {
        let of = |share: fn(&Self) -> Option<f64>| median(known.iter().filter_map(share).collect());
        Self {
            gemms: of(|one| one.gemms),
            at_peak: of(|one| one.at_peak),
            clock: of(|one| one.clock),
            collectives: of(|one| one.collectives),
            waiting: of(|one| one.waiting),
            exposed: of(|one| one.exposed),
            blocked: of(|one| one.blocked),
            synchronizing: of(|one| one.synchronizing),
            copying: of(|one| one.copying),
            loading: of(|one| one.loading),
            collecting: of(|one| one.collecting),
            busy: of(|one| one.busy),
        }
    }
}

/// What the threads of a rank did instead of launching, as shares of the last half minute; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostShares {
    pub synchronizing: Option<f64>,
    pub copying: Option<f64>,
    pub loading: Option<f64>,
    pub collecting: Option<f64>,
}

impl RankView {
    pub fn host_shares(&self) -> HostShares {
        let times = self.times().filter(|times| times.interval.0 > 0);
        let share = |of: &dyn Fn(&RankTimes) -> Option<Nanoseconds>| {
            times.and_then(|times| Some(of(times)?.seconds() / times.interval.seconds()))
        };
        let sampled = times.and_then(|times| times.main.as_ref()).filter(|main| main.samples > 0);
        HostShares {
            synchronizing: share(&|times| Some(times.synchronizing)),
            copying: share(&|times| Some(times.copying)),
            loading: share(&|times| times.loading)
                .or_else(|| sampled.map(|main| f64::from(main.loading) / f64::from(main.samples))),
            collecting: share(&|times| times.collecting),
        }
    }
}

impl Job {
    pub fn breakdown(&self, rank: Rank) -> Option<Breakdown> {
        let view = self.rank(rank)?;
        let collectives = collectives(view);
        let waited = self.waited(view.samples());
        let gemms = view.gemms_share();
        let of_peak = view.gemm_rate().zip(view.gemm_peak()).map(|(rate, peak)| rate.0 / peak.0);
        let clocks = view.device().filter(|reading| !reading.is_stale());
        let clocks = clocks.and_then(|reading| reading.sm_clock.zip(reading.sm_clock_max));
        let HostShares { synchronizing, copying, loading, collecting } = view.host_shares();
        Some(Breakdown {
            gemms,
            at_peak: gemms.zip(of_peak).map(|(gemms, of_peak)| gemms * of_peak.min(1.0)),
            clock: clocks.filter(|&(_, most)| most > 0).map(|(now, most)| f64::from(now) / f64::from(most)),
            collectives,
            waiting: collectives.zip(waited).map(|(share, waited)| share * waited),
            exposed: view.exposed(),
            blocked: view.blocked(),
            synchronizing,
            copying,
            loading,
            collecting,
            busy: view.gpu_busy(),
        })
    }

    /// The part of these collectives' time that was waiting for the last rank.
    fn waited<'a>(&self, samples: impl Iterator<Item = &'a Sample>) -> Option<f64> {
        let known = samples.filter_map(|sample| Some((sample.duration, self.complete(sample)?.transfer())));
        let (all, waited) =
            known.fold((0, 0), |(all, waited), (duration, transfer): (Nanoseconds, Nanoseconds)| {
                (all + duration.0, waited + duration.0.saturating_sub(transfer.0))
            });
        (all > 0).then(|| waited as f64 / all as f64)
    }
}

/// Each communicator has its own sampling rate, so its mean is weighted by its number of collectives.
fn collectives(view: &RankView) -> Option<f64> {
    let mut means: BTreeMap<CommunicatorId, (u64, u64)> = BTreeMap::new();
    for sample in view.samples() {
        let (time, number) = means.entry(sample.communicator).or_default();
        (*time, *number) = (*time + sample.duration.0, *number + 1);
    }
    let states = &view.latest()?.communicators;
    let used = states.iter().filter_map(|state| Some((state.entered as f64, means.get(&state.id)?)));
    let (mut entered, mut time) = (0.0, 0.0);
    for (count, &(sum, number)) in used {
        entered += count;
        time += count * sum as f64 / number as f64;
    }
    (entered > 0.0).then(|| view.collectives_per_second().map(|rate| rate * time / entered / 1e9)).flatten()
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;

    use super::*;
    use crate::job::Jobs;

    #[test]
    fn the_awaited_rank_does_not_wait_and_the_others_do() {
        let simulation = Simulation { slow: vec![(Rank(3), 1.4)], ..Simulation::new(1, 1, 8) };
        let mut jobs = Jobs::default();
        for second in 100..130 {
            simulation.digests(second).iter().for_each(|frame| jobs.fold(frame));
        }
        let job = jobs.foremost().unwrap();
        let [slow, other] = [Rank(3), Rank(0)].map(|rank| job.breakdown(rank).unwrap());
        // A simulated second has only whole steps, and GEMMs take a share of 0.71 of them.
        assert!((0.4..0.7).contains(&other.gemms.unwrap()), "{other:?}");
        assert!(slow.gemms.unwrap() > 1.3 * other.gemms.unwrap(), "{slow:?} {other:?}");
        assert!(other.collectives.unwrap() > 5.0 * slow.collectives.unwrap(), "{slow:?} {other:?}");
        assert!(other.waiting.unwrap() > 0.8 * other.collectives.unwrap(), "{other:?}");
        let hidden = 1.0 - other.exposed.unwrap() / other.collectives.unwrap();
        assert!((0.0..0.2).contains(&hidden) && slow.exposed < other.exposed, "{other:?} {slow:?}");
        assert!(slow.waiting.unwrap() < 0.2 * other.waiting.unwrap(), "{slow:?}");
        assert_eq!(job.breakdown(Rank(99)), None);
    }
}
