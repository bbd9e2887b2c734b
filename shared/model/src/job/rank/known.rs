//! The present state of a rank.

use std::time::Duration;

use xpu_wire::{
    frame::{
        CollectiveTotals, CommunicatorState, DeviceReading, GpuProcess, Life, RankDigest, RankExit, RankInfo,
        RankTimes,
    },
    id::{CommunicatorId, HostName, Pid, Step},
    unit::{Moment, Nanoseconds},
};

use super::{Ahead, CpuWait, Load, RATES, RankView, Sample, part};
use crate::job::{Arrivals, PaceSample, Recent, StragglerDelay, median};

/// Digests after which all hosts' reports of one second have arrived.
const SETTLED: usize = 3;

/// Other processes on its GPU are reported once a second; two reports may be lost.
const NEIGHBOURS: Duration = Duration::from_secs(3);

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

    /// Its last digest, without its timings.
    pub fn latest(&self) -> Option<&RankDigest> {
        self.latest.as_ref()
    }

    pub fn life(&self) -> Life {
        self.life
    }

    /// When its process ended, by its host's clock; `None` while it lives, or if it had ended before the
    /// first report.
    pub fn gone(&self) -> Option<Moment> {
        self.gone
    }

    /// Its end, if it failed.
    pub fn exit(&self) -> Option<&RankExit> {
        self.exit.as_deref()
    }

    pub fn is_alive(&self) -> bool {
        matches!(self.life, Life::Alive | Life::Silent)
    }

    /// When it last completed a step, or entered or completed a collective, by its host's clock.
    pub fn moved(&self) -> Moment {
        self.advance.moved
    }

    /// Time without a completed step, and without an entered or completed collective, at the last report: by
    /// its host's clock alone.
    pub fn stalled_for(&self) -> Duration {
        self.last_report().since(self.advance.moved)
    }

    /// Time without a launch, a completed wait for the GPU, or work on its CPU, at the last report.
    pub fn idle_for(&self) -> Duration {
        self.last_report().since(self.advance.worked.max(self.busy_at))
    }

    /// Step time by the last digests with a step, even if they are old.
    pub fn pace(&self) -> Option<Nanoseconds> {
        self.pace
    }

    /// How it arrived at the collectives of each digest, newest first.
    pub fn arrivals(&self) -> impl Iterator<Item = &Arrivals> {
        self.arrival_skew.arrivals().rev()
    }

    /// The time for which the others waited for it alone, over the last 15 digests; `None` while too few
    /// collectives matched.
    pub fn straggler_delay(&self) -> Option<StragglerDelay> {
        self.arrival_skew.straggler_delay()
    }

    /// Same as [`Self::straggler_delay`], over the digests of the last `period`.
    pub fn recent_delay(&self, period: Duration) -> Option<Recent> {
        self.arrival_skew.recent_delay(period)
    }

    /// The shares of the time for which the others waited for it alone: in the last `period`, and in the
    /// `before` preceding it. `None` if that is before the first digest.
    pub fn delay_around(&self, period: Duration, before: Duration) -> Option<(f64, f64)> {
        self.arrival_skew.delay_around(period, before)
    }

    /// Its GPU's last health reading, even if it is old ([`DeviceReading::is_stale`]).
    pub fn device(&self) -> Option<&DeviceReading> {
        self.devices.back()
    }

    /// The last few readings, newest first, each once.
    pub fn device_readings(&self) -> impl Iterator<Item = &DeviceReading> {
        self.devices.iter().rev()
    }

    /// The steps of each digest with any, oldest first; older ones merged per minute.
    pub fn pace_samples(&self) -> impl DoubleEndedIterator<Item = &PaceSample> {
        self.pace_history.pace_samples()
    }

    /// How many launches its host was ahead of its GPU at each of its last digests, newest first.
    pub fn ahead(&self) -> impl Iterator<Item = &Ahead> {
        self.ahead.iter().rev()
    }

    /// The share of the last `length` in which it waited for the CPU.
    pub fn cpu_wait(&self, length: Duration) -> CpuWait {
        self.cpu_waits.over(length, self.last_report())
    }

    /// How its threads spent the last half minute.
    pub fn times(&self) -> Option<&RankTimes> {
        let (at, times) = &**self.times.as_ref()?;
        (self.last_report().since(*at) <= RATES).then_some(times)
    }

    /// What its processes, its GPU and its host last moved and computed.
    pub fn load(&self) -> Option<&Load> {
        self.load.as_deref().filter(|_| self.is_alive())
    }

    /// Other processes that use its GPU, the busiest first.
    pub fn neighbours(&self) -> &[GpuProcess] {
        let current =
            self.neighbours.as_deref().filter(|(at, _)| self.last_report().since(*at) <= NEIGHBOURS);
        current.map_or(&[], |(_, processes)| processes)
    }

    /// The share of the time in which its GPU ran any kernel, by the driver's last readings; `None` without a
    /// current one.
    pub fn gpu_busy(&self) -> Option<f64> {
        let current = self.device_readings().filter(|reading| !reading.is_stale());
        let readings: Vec<_> = current.filter_map(|reading| reading.utilisation).map(f64::from).collect();
        let sum: f64 = readings.iter().sum();
        (!readings.is_empty()).then(|| sum / readings.len() as f64 / 100.0)
    }

    /// Its part, if ranks send to each other: the communicator of its stage.
    pub fn part(&self) -> Option<CommunicatorId> {
        part(self.latest.as_ref()?)
    }

    pub fn last_report(&self) -> Moment {
        self.latest.as_ref().map(|digest| digest.heard).unwrap_or_default()
    }

    pub fn world_size(&self) -> u32 {
        let said = self.latest.as_ref().map(|digest| digest.world_size);
        said.or_else(|| self.info.as_ref().map(|info| info.world_size)).unwrap_or(0)
    }

    /// Steps completed; `None` without a source of steps.
    pub fn step(&self) -> Option<Step> {
        self.latest.as_ref()?.step
    }

    /// The program's last loss, if it is a number.
    pub fn loss(&self) -> Option<f64> {
        self.latest.as_ref()?.work.loss.filter(|loss| loss.is_finite())
    }

    /// Whether its last loss is NaN or infinite: this is reported, but not as a figure.
    pub fn is_loss_invalid(&self) -> bool {
        let said = self.latest.as_ref().and_then(|digest| digest.work.loss);
        said.is_some_and(|loss| !loss.is_finite())
    }

    /// TFLOPS of each interval, oldest first, at most ten minutes of them.
    pub fn gemm_history(&self) -> impl ExactSizeIterator<Item = f32> + DoubleEndedIterator {
        self.history.iter().copied()
    }

    /// Counts up whenever the findings' inputs may have changed.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// Whether it has reported a few digests.
    pub fn is_settled(&self) -> bool {
        self.intervals.len() >= SETTLED
    }

    /// The latest timed collectives, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    /// The latest timed sends and receives, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &Sample> {
        self.messages.iter()
    }

    /// Bytes over the bus of one collective of this kind; `None` if its communicator is closed.
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
