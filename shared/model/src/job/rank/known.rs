//! What is known of a rank now.

use std::time::Duration;

use xpu_wire::{
    frame::{CollectiveTotals, CommunicatorState, DeviceReading, Life, RankDigest, RankExit, RankInfo},
    id::{CommunicatorId, HostName, Pid, Step},
    unit::{Moment, Nanoseconds},
};

use super::{Ahead, CpuWait, RankView, Sample, part};
use crate::job::{Arrivals, PaceSample, Toll, median};

/// Digests after which what all hosts say of one second has come in.
const SETTLED: usize = 3;

impl RankView {
    pub fn host(&self) -> &HostName {
        &self.host
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub fn info(&self) -> Option<&RankInfo> {
        self.info.as_ref()
    }

    /// Its last digest, without what was timed in it.
    pub fn latest(&self) -> Option<&RankDigest> {
        self.latest.as_ref()
    }

    pub fn life(&self) -> Life {
        self.life
    }

    /// When its process ended, by its host's clock; `None` while it lives, or where it had ended before it was first heard of.
    pub fn gone(&self) -> Option<Moment> {
        self.gone
    }

    /// How it ended, where it did not end well.
    pub fn exit(&self) -> Option<&RankExit> {
        self.exit.as_deref()
    }

    pub fn is_alive(&self) -> bool {
        matches!(self.life, Life::Alive | Life::Silent)
    }

    /// When it last made a step, or entered or completed a collective, by its host's clock.
    pub fn moved(&self) -> Moment {
        self.advance.moved
    }

    /// How long it had made no step and entered or completed no collective when it was last heard: by its host's clock alone.
    pub fn stands_for(&self) -> Duration {
        self.heard().since(self.advance.moved)
    }

    /// How long it had launched nothing, and come out of no wait for the GPU, when it was last heard.
    pub fn idle_for(&self) -> Duration {
        self.heard().since(self.advance.worked)
    }

    /// What a step takes, of the last digests that told of one, however long ago.
    pub fn pace(&self) -> Option<Nanoseconds> {
        self.pace
    }

    /// How it came to the collectives of each digest, newest first.
    pub fn arrivals(&self) -> impl Iterator<Item = &Arrivals> {
        self.arrival_skew.arrivals().rev()
    }

    /// What the others wait for it alone, over the last 15 digests; `None` while too little was joined.
    pub fn toll(&self) -> Option<Toll> {
        self.arrival_skew.toll()
    }

    /// Its GPU's health as last read, however long ago ([`DeviceReading::is_stale`]).
    pub fn device(&self) -> Option<&DeviceReading> {
        self.devices.back()
    }

    /// The last few readings, newest first, each once.
    pub fn device_readings(&self) -> impl Iterator<Item = &DeviceReading> {
        self.devices.iter().rev()
    }

    /// The steps of each digest that told of any, oldest first; of minutes ago, of a minute together.
    pub fn pace_samples(&self) -> impl DoubleEndedIterator<Item = &PaceSample> {
        self.pace_history.pace_samples()
    }

    /// How far its host was ahead of its GPU at each of its last digests, newest first.
    pub fn ahead(&self) -> impl Iterator<Item = &Ahead> {
        self.ahead.iter().rev()
    }

    /// How much of the last `length` it waited for the CPU.
    pub fn cpu_wait(&self, length: Duration) -> CpuWait {
        self.cpu_waits.over(length, self.heard())
    }

    /// Whose part it has, where ranks send to each other: the communicator of its stage.
    pub fn part(&self) -> Option<CommunicatorId> {
        part(self.latest.as_ref()?)
    }

    pub fn heard(&self) -> Moment {
        self.latest.as_ref().map(|digest| digest.heard).unwrap_or_default()
    }

    pub fn world_size(&self) -> u32 {
        let said = self.latest.as_ref().map(|digest| digest.world_size);
        said.or_else(|| self.info.as_ref().map(|info| info.world_size)).unwrap_or(0)
    }

    /// Steps completed; `None` when nothing marks them.
    pub fn step(&self) -> Option<Step> {
        self.latest.as_ref()?.step
    }

    /// The last loss the program told of, if it is a number.
    pub fn loss(&self) -> Option<f64> {
        self.latest.as_ref()?.work.loss.filter(|loss| loss.is_finite())
    }

    /// Whether that is none, or infinite: that is news, and no figure.
    pub fn has_lost_its_loss(&self) -> bool {
        let said = self.latest.as_ref().and_then(|digest| digest.work.loss);
        said.is_some_and(|loss| !loss.is_finite())
    }

    /// TFLOPS of each interval, oldest first, at most ten minutes of them.
    pub fn gemm_history(&self) -> impl ExactSizeIterator<Item = f32> + DoubleEndedIterator {
        self.history.iter().copied()
    }

    /// Counts up whenever what findings are made of may have changed.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// Whether it has been heard for a few digests.
    pub fn is_settled(&self) -> bool {
        self.intervals.len() >= SETTLED
    }

    /// The latest timed collectives, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    /// Bytes over the bus of one collective of this kind; `None` if its communicator is not open any more.
    pub fn bus_bytes(&self, total: &CollectiveTotals) -> Option<u64> {
        let known = |state: &&CommunicatorState| state.id == total.communicator;
        let size = self.latest.as_ref()?.communicators.iter().find(known)?.size;
        Some((total.bytes as f64 * total.operation.bus_factor(size)) as u64)
    }

    /// Median duration of the latest timed collectives as this rank saw them, waiting included.
    pub fn collective_time(&self) -> Option<Nanoseconds> {
        median(self.samples.iter().map(|sample| sample.duration.0 as f64).collect())
            .map(|ns| Nanoseconds(ns as u64))
    }
}
