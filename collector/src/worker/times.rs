//! How a rank's threads spent the last half minute, and whether the rank's GPU may wait for its host.

use std::{collections::VecDeque, time::Duration};

use xpu_wire::{
    frame::{BlockingCall, MainThread, Progress, RankDigest, RankTimes, Summary},
    unit::{Moment, Nanoseconds},
};

use super::Worker;

/// Least time for which shares are computed.
const LEAST: Duration = Duration::from_secs(3);

/// The name of a program's span that counts as its data loading.
const DATA: &str = "data";

/// The host is suspected if this share of the time is neither GEMM nor communication: a loader that costs less
/// is named by its delay alone.
const SUSPECTED: f64 = 0.25;

/// The time over which a host is suspected. It is short, so that a fault that began some seconds ago counts
/// in full.
const RECENTLY: Duration = Duration::from_secs(6);

/// Time for which sampling waits until the behaviour no longer changes.
const SETTLES: Duration = Duration::from_secs(10);

/// Samples of a rank's main thread are published for this long, unless the rank's behaviour changes.
const SEEN: Duration = Duration::from_mins(5);

/// The behaviour has changed if the share of the time in which the GPU waits differs by this much, or the
/// step time by this factor.
const OTHER_SHARE: f64 = 0.15;
const OTHER_STEP: f64 = 1.4;

#[derive(Debug, Default)]
pub(super) struct Times {
    /// One reading per digest of the last half minute, oldest first.
    readings: VecDeque<Reading>,
    /// When the behaviour began to change; `None` if it has settled.
    changes_since: Option<Moment>,
    main: Option<Sampled>,
}

/// What the rank's main thread did, when it was sampled, and the rank's behaviour then.
#[derive(Debug)]
struct Sampled {
    at: Moment,
    pace: Option<Pace>,
    main: MainThread,
}

/// A rank's behaviour. `idle` is the share of the time that is neither GEMM nor exposed communication. The step
/// time, in seconds, is within `shortest` and `longest`, because a period begins and ends in the middle of a
/// step.
#[derive(Clone, Copy, Debug)]
struct Pace {
    idle: f64,
    shortest: f64,
    longest: f64,
}

impl Pace {
    fn is_like(self, other: Self) -> bool {
        let is_same_step = self.shortest.max(other.shortest) < OTHER_STEP * self.longest.min(other.longest);
        (self.idle - other.idle).abs() < OTHER_SHARE && is_same_step
    }
}

/// Totals since the rank started.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Moment,
    steps: u64,
    flops: f64,
    timed_flops: f64,
    timed_for: Nanoseconds,
    exposed: Option<Nanoseconds>,
    synchronizing: Nanoseconds,
    copying: Nanoseconds,
    launching: Nanoseconds,
    loading: Option<Nanoseconds>,
    collecting: Option<Nanoseconds>,
}

impl Reading {
    fn of(digest: &RankDigest, summary: &Summary) -> Self {
        let waited = |calls: &[BlockingCall]| {
            let within = summary.blocked.iter().filter(|blocked| calls.contains(&blocked.call));
            Nanoseconds(within.map(|blocked| blocked.waited.0).sum())
        };
        let data = summary.spans.iter().find(|span| span.name == DATA);
        Self {
            at: digest.heard,
            steps: digest.step.map_or(0, |step| step.0),
            flops: digest.gemm_flops,
            timed_flops: digest.gemm_timed_flops,
            timed_for: digest.gemm_timed_for,
            exposed: digest.exposed_for.or_else(|| digest.is_alone().then_some(Nanoseconds(0))),
            synchronizing: waited(&[
                BlockingCall::StreamSynchronize,
                BlockingCall::DeviceSynchronize,
                BlockingCall::EventSynchronize,
            ]),
            copying: waited(&[BlockingCall::Copy]),
            launching: waited(&[BlockingCall::Launch]),
            loading: summary.python.map(|python| python.loading).or_else(|| data.map(|span| span.took)),
            collecting: summary.python.map(|python| python.collecting),
        }
    }
}

impl Reading {
    /// Seconds per FLOP of the GEMMs timed since `first`.
    fn timed_since(&self, first: &Self) -> Option<f64> {
        let flops = self.timed_flops - first.timed_flops;
        (flops > 0.0).then(|| (self.timed_for.seconds() - first.timed_for.seconds()) / flops)
    }
}

impl Times {
    pub(super) fn take(&mut self, digest: &RankDigest, summary: &Summary) {
        self.take_reading(Reading::of(digest, summary));
    }

    fn take_reading(&mut self, reading: Reading) {
        let at = reading.at;
        match self.readings.back() {
            Some(last) if last.at >= reading.at => return,
            // Totals decrease only if the rank has restarted.
            Some(last) if last.flops > reading.flops => self.readings.clear(),
            _ => {}
        }
        self.readings.push_back(reading);
        if self.readings.len() > Progress::WINDOW {
            self.readings.pop_front();
        }
        let same = match (self.pace_over(LEAST), self.pace()) {
            (Some(latest), Some(recent)) => latest.is_like(recent),
            (None, None) => true,
            _ => false,
        };
        self.changes_since = if same { None } else { self.changes_since.or(Some(at)) };
    }

    fn ends(&self) -> Option<(&Reading, &Reading)> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        (last.at.since(first.at) >= LEAST).then_some((first, last))
    }

    /// The rank's recent behaviour. `None` if it completes no steps.
    fn pace(&self) -> Option<Pace> {
        self.pace_over(RECENTLY)
    }

    fn pace_over(&self, period: Duration) -> Option<Pace> {
        let last = self.readings.back()?;
        let mut recent = self.readings.iter().rev();
        let first =
            recent.find(|first| last.at.since(first.at) >= period).or_else(|| self.readings.front())?;
        if last.at.since(first.at) < LEAST || first.steps >= last.steps {
            return None;
        }
        let passed = last.at.since(first.at).as_secs_f64();
        // If steps take seconds, hardly any GEMM is timed in so short a time.
        let timed = last.timed_since(first).or_else(|| last.timed_since(self.readings.front()?))?;
        let gemms = (last.flops - first.flops) * timed / passed;
        let exposed = last.exposed?.0.checked_sub(first.exposed?.0)?;
        let exposed = Nanoseconds(exposed).seconds() / passed;
        let idle = 1.0 - gemms - exposed;
        let steps = (last.steps - first.steps) as f64;
        let (shortest, longest) = (passed / (steps + 1.0), passed / (steps - 1.0));
        let is_suspected = gemms > 0.0 && idle >= SUSPECTED;
        is_suspected.then_some(Pace { idle, shortest, longest })
    }

    /// The samples that still describe the rank's behaviour.
    fn main(&self, now: Moment) -> Option<&MainThread> {
        let seen = self.main.as_ref().filter(|seen| now.since(seen.at) < SEEN)?;
        self.pace()?.is_like(seen.pace?).then_some(&seen.main)
    }
}

impl Worker {
    /// How the threads spent their time. `None` in the rank's first seconds.
    pub(crate) fn times(&self, now: Moment) -> Option<RankTimes> {
        let (first, last) = self.times.ends()?;
        let grown = |of: fn(&Reading) -> Nanoseconds| Nanoseconds(of(last).0.saturating_sub(of(first).0));
        let grown_if = |of: fn(&Reading) -> Option<Nanoseconds>| {
            // The figure is unknown until the first such event has ended, and counts as zero before.
            let before = of(first).unwrap_or_default();
            Some(Nanoseconds(of(last)?.0.saturating_sub(before.0)))
        };
        Some(RankTimes {
            rank: self.info.rank,
            pid: self.info.pid,
            interval: last.at.since(first.at).into(),
            synchronizing: grown(|reading| reading.synchronizing),
            copying: grown(|reading| reading.copying),
            launching: grown(|reading| reading.launching),
            loading: grown_if(|reading| reading.loading),
            collecting: grown_if(|reading| reading.collecting),
            main: self.times.main(now).cloned(),
        })
    }

    /// The share of the time in which the rank's GPU may wait for its host, if that is large.
    pub(crate) fn idles(&self) -> Option<f64> {
        self.times.pace().filter(|_| self.is_there()).map(|pace| pace.idle)
    }

    /// Whether there are samples of its main thread that still describe the rank's behaviour.
    pub(crate) fn is_sampled(&self, now: Moment) -> bool {
        self.times.main(now).is_some()
    }

    /// Whether samples taken now would describe its behaviour: it has settled, or keeps changing.
    pub(crate) fn has_settled(&self, now: Moment) -> bool {
        self.times.changes_since.is_none_or(|since| now.since(since) >= SETTLES)
    }

    pub(crate) fn see_main_thread(&mut self, main: MainThread, now: Moment) {
        self.times.main = Some(Sampled { at: now, pace: self.times.pace(), main });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading each second of a rank whose steps take this long; GEMMs take this share of the time.
    fn steps(times: &mut Times, from: u64, seconds: u64, (step, gemms): (f64, f64)) {
        let start = times.readings.back().map_or(0, |last| last.steps);
        for second in from..from + seconds {
            let flops = times.readings.back().map_or(0.0, |last| last.flops) + gemms;
            let steps = start + ((second + 1 - from) as f64 / step) as u64;
            let at = Moment(second * 1_000_000_000);
            let zero = Nanoseconds(0);
            times.take_reading(Reading {
                at,
                steps,
                flops,
                timed_flops: flops,
                timed_for: Nanoseconds((flops * 1e9) as u64),
                exposed: Some(zero),
                synchronizing: zero,
                copying: zero,
                launching: zero,
                loading: None,
                collecting: None,
            });
        }
    }

    /// On real GPUs, samples taken three seconds after a fault began were soon invalid, and the budget was spent.
    #[test]
    fn a_change_settles_once_only_the_new_behaviour_is_recent() {
        let mut times = Times::default();
        steps(&mut times, 0, 20, (0.01, 0.1));
        assert_eq!(times.changes_since, None);
        steps(&mut times, 20, 2, (0.05, 0.1));
        assert_eq!(times.changes_since, Some(Moment(21_000_000_000)));
        steps(&mut times, 22, 2, (0.05, 0.1));
        assert!(times.changes_since.is_some());
        steps(&mut times, 24, 2, (0.05, 0.1));
        assert_eq!(times.changes_since, None);
        let settled = times.pace().unwrap();
        steps(&mut times, 26, 10, (0.05, 0.1));
        assert!(times.pace().unwrap().is_like(settled));
        // Most ranks are limited by their GPUs before a fault of their hosts, and then have no such pace.
        let mut times = Times::default();
        steps(&mut times, 0, 20, (0.01, 0.9));
        assert!(times.pace().is_none() && times.changes_since.is_none());
        steps(&mut times, 20, 4, (0.05, 0.1));
        assert!(times.changes_since.is_some());
        steps(&mut times, 24, 4, (0.05, 0.1));
        assert!(times.pace().is_some() && times.changes_since.is_none());
    }

    #[test]
    fn a_rank_that_is_not_in_gemms_for_a_quarter_of_the_time_is_suspected() {
        let pace = |gemms| {
            let mut times = Times::default();
            steps(&mut times, 0, 20, (0.01, gemms));
            times.pace().is_some()
        };
        assert!(pace(0.7) && !pace(0.8));
    }

    /// With a thread that holds the GIL, on real GPUs: one or two steps end in three seconds.
    #[test]
    fn steps_of_two_seconds_settle_and_stay_alike() {
        let mut times = Times::default();
        steps(&mut times, 0, 20, (0.01, 0.1));
        steps(&mut times, 20, 8, (2.1, 0.001));
        assert!(times.changes_since.is_none());
        let settled = times.pace().unwrap();
        for second in 28..60 {
            steps(&mut times, second, 1, (if second % 2 == 0 { 1.0 } else { 2.0 }, 0.001));
            assert!(times.pace().unwrap().is_like(settled) && times.changes_since.is_none(), "{second}");
        }
    }
}
