//! A rank's activity per second.

use std::time::Duration;

use xpu_wire::{
    frame::{Advance, Progress, Work},
    unit::{Moment, Nanoseconds, Tflops},
};

use super::{super::PaceSample, RankView, intervals::WINDOW};

/// Time without progress after which a rank has no current shares of its time.
const STALLED: Duration = Duration::from_secs(10);

/// Share of FLOPs that is none: launches of CUDA graphs are counted a moment before their time is known.
const ROUNDED: f64 = 0.01;

impl RankView {
    /// TFLOPS of each of the last digests with timed GEMMs, newest first, and its time.
    pub fn gemm_rates(&self) -> impl Iterator<Item = (Moment, Tflops)> {
        self.intervals.active().rev().filter_map(|activity| {
            Some((activity.heard, Tflops::from_work(activity.gemm_flops, activity.gemm_time)?))
        })
    }

    /// When progress was last reported, which is the time of its rates.
    pub fn active_at(&self) -> Option<Moment> {
        self.intervals.active().next_back().map(|activity| activity.heard)
    }

    /// When any progress was last reported: a step, a collective, a launch, or a timed GEMM.
    pub fn last_progress(&self) -> Moment {
        let Advance { moved, worked, .. } = self.advance;
        let last_progress = moved.max(worked).max(self.active_at().unwrap_or_default());
        // A restarted collector has not seen the rank's progress.
        if last_progress == Moment::default() { self.last_report() } else { last_progress }
    }

    /// GEMM FLOPs per second over `digests` with progress, without the last `skip`, and the seconds covered.
    pub fn arithmetic(&self, skip: usize, digests: usize) -> Option<(f64, f64)> {
        let mut latest_first = self.intervals.active().rev().skip(skip);
        let last = latest_first.next().filter(|_| !self.is_gpu_of_several())?;
        let first = latest_first.nth(digests.checked_sub(1)?)?;
        let seconds = last.heard.since(first.heard).as_secs_f64();
        (seconds > 0.0).then(|| ((last.arithmetic - first.arithmetic) / seconds, seconds))
    }

    /// GEMM FLOPs per second over the last `length` of digests with progress. Some digests have nothing new,
    /// so the same number of digests of two ranks may cover different times. Also the share by which the
    /// figure of another rank with the same work may differ because its digests end at other times: twice the
    /// excess of the largest digest over the mean second.
    pub fn arithmetic_of_last(&self, length: Duration) -> Option<(f64, f64)> {
        let mut latest_first = self.intervals.active().rev();
        let last = latest_first.next()?;
        let (mut first, mut largest) = (last, 0.0);
        for one in latest_first.take_while(|one| last.heard.since(one.heard) <= length) {
            largest = f64::max(largest, first.arithmetic - one.arithmetic);
            first = one;
        }
        let seconds = last.heard.since(first.heard).as_secs_f64();
        let all = last.arithmetic - first.arithmetic;
        (2.0 * seconds > length.as_secs_f64() && all > 0.0)
            .then(|| (all / seconds, 2.0 * (largest / all - 1.0 / seconds).max(0.0)))
    }

    /// Collectives a second over the last half minute.
    pub fn collectives_per_second(&self) -> Option<f64> {
        let (first, last) = self.intervals.ends()?;
        let seconds = last.progress.heard.since(first.progress.heard).as_secs_f64();
        let launched = last.collectives.checked_sub(first.collectives)?;
        (seconds > 0.0 && launched > 0).then(|| launched as f64 / seconds)
    }

    /// Step time: elapsed time over the steps of the last half minute. It includes the time between steps,
    /// and is not distorted by bursts of a program that runs ahead of its GPU.
    pub fn step_time(&self) -> Option<Nanoseconds> {
        let (passed, steps) = self.steps_measured()?;
        passed.0.checked_div(steps).map(Nanoseconds)
    }

    /// The mean step of the last three digests with steps, which follows a change within seconds; `None` with
    /// fewer digests.
    pub fn latest_step_time(&self) -> Option<Nanoseconds> {
        const DIGESTS: usize = 3;
        let latest: Vec<_> = self.pace_samples().rev().take(DIGESTS).collect();
        let sum = |of: fn(&PaceSample) -> f32| latest.iter().map(|one| f64::from(of(one))).sum::<f64>();
        let (span, steps) = (sum(|one| one.span), sum(|one| one.steps));
        (latest.len() == DIGESTS && steps > 0.0).then(|| Nanoseconds((span / steps * 1e9) as u64))
    }

    /// The longest step in the last half minute, as far as digests show. A step that has not ended counts.
    pub fn longest_step(&self) -> Option<Nanoseconds> {
        let known = |progress: &Progress| Some((progress.step?, progress.step_at));
        let mut steps = self.intervals.progress().filter_map(known);
        let (mut before, mut longest) = (steps.next()?, Nanoseconds(0));
        for one in steps.filter(|(_, at)| *at > Moment::default()) {
            if let Some(passed) = one.0.0.checked_sub(before.0.0).filter(|steps| *steps > 0) {
                longest = longest.max(Nanoseconds(one.1.since(before.1).as_nanos() as u64 / passed));
            }
            before = one;
        }
        Some(longest.max(Nanoseconds(self.last_report().since(before.1).as_nanos() as u64)))
    }

    /// The total time of its last steps, and their number: those of the last half minute.
    pub fn steps_measured(&self) -> Option<(Nanoseconds, u64)> {
        let known = |progress: &Progress| Some((progress.step?, progress.step_at));
        let mut latest_first = self.intervals.progress().rev().filter_map(known);
        let last = latest_first.next()?;
        let mut first = last;
        for one in latest_first {
            // A restarted count cannot be combined with the previous one.
            if one.0 > first.0 {
                break;
            }
            first = one;
        }
        let steps = last.0.0 - first.0.0;
        let passed = last.1.0.checked_sub(first.1.0)?;
        (steps > 0).then_some((Nanoseconds(passed), steps))
    }

    /// Median of the single steps of the last half minute, by the clock in
    /// [`xpu_wire::frame::RankDigest::steps_timed_by`].
    pub fn step_p50(&self) -> Option<Nanoseconds> {
        self.latest.as_ref()?.step_p50
    }

    pub fn step_p99(&self) -> Option<Nanoseconds> {
        self.latest.as_ref()?.step_p99
    }

    /// The part of the last half minute for which there are reports.
    pub fn listened(&self) -> Duration {
        let ends = self.intervals.ends();
        ends.map_or(Duration::ZERO, |(first, last)| last.progress.heard.since(first.progress.heard))
    }

    /// FLOPs of the timed GEMMs of the last half minute over their time.
    pub fn gemm_rate(&self) -> Option<Tflops> {
        let flops = self.intervals.window().map(|interval| interval.gemm_flops).sum();
        let time = self.intervals.window().map(|interval| interval.gemm_time.0).sum();
        Tflops::from_work(flops, Nanoseconds(time))
    }

    /// Share of the last half minute in which the GPU ran GEMMs, if the untimed GEMMs ran like the timed
    /// ones.
    pub fn gemms_share(&self) -> Option<f64> {
        let (first, last) = self.intervals.ends()?;
        let seconds = last.progress.heard.since(first.progress.heard).as_secs_f64();
        let busy = (last.arithmetic - first.arithmetic) / (self.gemm_rate()?.0 * 1e12);
        (seconds > 0.0 && busy.is_finite()).then(|| busy / seconds)
    }

    /// Shares of the last half minute: the GPU in CUDA graphs with more than GEMMs in them, and in all other GEMMs, if
    /// the untimed ones ran like the timed ones.
    pub fn graphs_and_gemms(&self) -> Option<(f64, f64)> {
        let (first, last) = self.intervals.ends()?;
        let seconds = last.progress.heard.since(first.progress.heard).as_secs_f64();
        let (mut in_graphs, mut flops_in_graphs) = (0.0, 0.0);
        for interval in self.intervals.window().skip(1) {
            in_graphs += f64::from(interval.in_graphs.0);
            flops_in_graphs += f64::from(interval.in_graphs.1);
        }
        let all = last.arithmetic - first.arithmetic;
        let others = all - flops_in_graphs;
        let gemms = if others > ROUNDED * all { others / (self.gemm_rate()?.0 * 1e12) } else { 0.0 };
        (seconds > 0.0 && gemms.is_finite()).then(|| (in_graphs / seconds, gemms / seconds))
    }

    /// Tokens and samples a second over the last half minute, between steps. `None` if the program does not
    /// report them.
    pub fn tokens_per_second(&self) -> Option<f64> {
        self.worked(|work| work.tokens)
    }

    pub fn samples_per_second(&self) -> Option<f64> {
        self.worked(|work| work.samples)
    }

    fn worked(&self, of: impl Fn(&Work) -> u64) -> Option<f64> {
        let (first, last) = self.progress_ends()?;
        // Before the first step, nothing is known.
        let first = self.intervals.progress().find(|progress| progress.step_at.0 > 0).unwrap_or(first);
        let work = of(&last.work).checked_sub(of(&first.work))?;
        let seconds = last.step_at.since(first.step_at).as_secs_f64();
        (of(&last.work) > 0 && seconds > 0.0).then(|| work as f64 / seconds)
    }

    /// Model FLOPs utilisation: the share of the last half minute in which the GEMMs' FLOPs could have been
    /// done at the GPU's peak. The time includes everything: steps, what lies between them, and waiting.
    pub fn utilisation(&self) -> Option<f64> {
        let (first, last) = self.progress_ends()?;
        // The peak is known from the first GEMMs on.
        let first =
            self.intervals.progress().find(|progress| progress.gemm_at_peak.is_some()).unwrap_or(first);
        let busy = last.gemm_at_peak?.0.checked_sub(first.gemm_at_peak?.0)?;
        let passed = last.heard.since(first.heard).as_nanos() as f64;
        (passed > 0.0).then(|| busy as f64 / passed)
    }

    /// FLOPs of all GEMMs per second of the last half minute, those in CUDA graphs included. The time includes
    /// everything, as in [`Self::utilisation`].
    pub fn achieved(&self) -> Option<Tflops> {
        let (first, last) = self.intervals.ends()?;
        let flops = last.arithmetic - first.arithmetic;
        let passed = last.progress.heard.since(first.progress.heard);
        Tflops::from_work(flops, passed.into()).filter(|_| flops > 0.0)
    }

    /// Its GPU's peak for its mix of GEMMs since the rank started. `None` for a GPU whose peak is unknown.
    pub fn gemm_peak(&self) -> Option<Tflops> {
        let latest = self.latest.as_ref().filter(|latest| latest.gemm_flops > 0.0)?;
        Tflops::from_work(latest.gemm_flops, latest.gemm_at_peak?)
    }

    /// Time that threads spent in calls that wait for the GPU, as a share of the last half minute; several
    /// threads may make it more than one. Unknown if a process uses several GPUs.
    pub fn blocked(&self) -> Option<f64> {
        let (first, last) = self.progress_ends().filter(|_| !self.is_gpu_of_several())?;
        share(last.blocked_for.0.checked_sub(first.blocked_for.0)?, last.heard.since(first.heard))
    }

    /// Same as [`Self::blocked`], over `digests` with progress, without the last `skip`.
    pub fn blocked_before(&self, skip: usize, digests: usize) -> Option<f64> {
        let mut latest_first = self.intervals.active().rev().skip(skip);
        let last = latest_first.next()?;
        let first = latest_first.take(digests).last().unwrap_or(last);
        share(last.blocked_for.0.checked_sub(first.blocked_for.0)?, last.heard.since(first.heard))
    }

    /// Exposed communication: the share of the last half minute in which it held up GEMMs, estimated from a
    /// sample; waiting for other ranks is included. `None` if it is unknown, and if the rank launched no
    /// GEMM, because then no GEMM was held up.
    pub fn exposed(&self) -> Option<f64> {
        let (first, last) = self.progress_ends()?;
        let is_stuck = self.intervals.len() == WINDOW
            && self.intervals.ends().is_some_and(|(first, last)| first.arithmetic == last.arithmetic)
            || self.stalled_for() >= STALLED;
        // Exposed communication is known from the first communication on.
        let first =
            self.intervals.progress().find(|progress| progress.exposed_for.is_some()).unwrap_or(first);
        let held = last.exposed_for?.0.checked_sub(first.exposed_for?.0)?;
        // A long wait is reported only once it is over.
        share(held, last.heard.since(first.heard)).filter(|_| !is_stuck).map(|share| share.min(1.0))
    }

    /// The same share, over the last `digests` only.
    pub fn exposed_for(&self, digests: usize) -> Option<f64> {
        let mut latest_first =
            self.intervals.progress().rev().filter(|progress| progress.exposed_for.is_some());
        let last = latest_first.next()?;
        let first = latest_first.take(digests).last()?;
        let held = last.exposed_for?.0.checked_sub(first.exposed_for?.0)?;
        share(held, last.heard.since(first.heard)).map(|share| share.min(1.0))
    }

    /// Whether it is one of several GPUs of its process, so that figures of the process are not its own.
    pub(super) fn is_gpu_of_several(&self) -> bool {
        self.latest.as_ref().is_some_and(|digest| digest.rank.gpu().is_some())
    }

    fn progress_ends(&self) -> Option<(&Progress, &Progress)> {
        let mut all = self.intervals.progress();
        let first = all.next()?;
        Some((first, all.next_back().unwrap_or(first)))
    }

    /// Calls that waited for the GPU, per step, over the last half minute.
    pub fn blocked_calls(&self) -> Option<f64> {
        let (first, last) = self.progress_ends().filter(|_| !self.is_gpu_of_several())?;
        let steps = last.step?.0.checked_sub(first.step?.0).filter(|steps| *steps > 0)?;
        Some(last.blocked_calls.checked_sub(first.blocked_calls)? as f64 / steps as f64)
    }

    /// The time that threads were blocked, as a share of the last `digests`.
    pub fn blocked_for(&self, digests: usize) -> Option<f64> {
        self.blocked_before(0, digests)
    }
}

fn share(of: u64, passed: Duration) -> Option<f64> {
    (!passed.is_zero()).then(|| of as f64 / passed.as_nanos() as f64)
}
