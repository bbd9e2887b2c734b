//! The state of one rank.

mod ahead;
mod cpu_wait;
mod detail;
mod intervals;
mod known;
mod rates;
mod stalls;

use std::{collections::VecDeque, time::Duration};

pub use ahead::Ahead;
pub use cpu_wait::CpuWait;
use cpu_wait::CpuWaits;
use detail::Detail;
use intervals::{Interval, Intervals, WINDOW};
use stalls::Stalls;
use xpu_wire::{
    collective::Operation,
    frame::{
        Advance, DeviceReading, GpuProcess, HostLoad, HostUse, Life, NcclReport, Progress, RankCpu,
        RankDigest, RankExit, RankInfo, RankLoad, RankNeighbours, RankTimes, Summary,
    },
    id::{CommunicatorId, HostName, Pid, Sequence},
    sampling::Rate,
    unit::{Moment, Nanoseconds, Tflops},
};

use super::{ArrivalSkew, Joins, PaceHistory, Place, Route, Transfers};

/// The time of [`WINDOW`] digests at the usual rate.
const RATES: Duration = Duration::from_secs(WINDOW as u64);

/// Timed collectives kept of a rank.
pub(super) const SAMPLES: usize = 64;

/// Readings of its GPU that are kept.
const READINGS: usize = 5;

/// Rates kept for a sparkline: ten minutes at the usual rate.
pub(super) const HISTORY: usize = 600;

/// One rank of a job.
#[derive(Debug)]
pub struct RankView {
    host: HostName,
    pid: Pid,
    info: Option<RankInfo>,
    latest: Option<RankDigest>,
    life: Life,
    /// When its end was observed, if it was.
    gone: Option<Moment>,
    /// Its end, if it failed.
    exit: Option<Box<RankExit>>,
    intervals: Intervals,
    samples: VecDeque<Sample>,
    /// Timed sends and receives.
    messages: VecDeque<Sample>,
    arrival_skew: ArrivalSkew,
    /// Sampling rates of collectives in its last digests.
    collective_rates: VecDeque<Rate>,
    pace_history: PaceHistory,
    ahead: VecDeque<Ahead>,
    stalls: Stalls,
    advance: Advance,
    /// When it was first heard, if no snapshot had arrived before; the start of its pause is then an
    /// estimate.
    guessed: Option<Moment>,
    /// The median of the step times in `advance`.
    pace: Option<Nanoseconds>,
    devices: VecDeque<DeviceReading>,
    cpu_waits: CpuWaits,
    /// How its threads spent their time, and when that was reported.
    times: Option<Box<(Moment, RankTimes)>>,
    load: Option<Box<Load>>,
    /// Other processes on its GPU, and when they were last reported.
    neighbours: Option<Box<(Moment, Vec<GpuProcess>)>>,
    /// When it last worked on its CPU instead of making progress.
    busy_at: Moment,
    history: VecDeque<f32>,
    /// The details of a watched rank.
    detail: Option<Box<Detail>>,
    /// The job's revision at the last change of the findings' inputs.
    pub(super) changed: u64,
}

/// One timed collective of the rank.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub communicator: CommunicatorId,
    /// The ranks among which it is matched: the communicator, or the two ends of a send or receive.
    pub participants: CommunicatorId,
    pub sequence: Sequence,
    pub operation: Operation,
    /// Position of the joined collective with the others' durations.
    pub place: Place,
    pub bus_bytes: u64,
    pub duration: Nanoseconds,
}

/// The last load of a rank's processes, its GPU and its host, and the time of the report by the host's clock.
#[derive(Clone, Debug)]
pub struct Load {
    pub at: Moment,
    pub interval: Nanoseconds,
    pub host: HostUse,
    pub rank: RankLoad,
}

impl RankView {
    pub(super) fn new(host: HostName, pid: Pid) -> Self {
        Self {
            host,
            pid,
            info: None,
            latest: None,
            life: Life::Alive,
            gone: None,
            exit: None,
            intervals: Intervals::default(),
            samples: VecDeque::new(),
            messages: VecDeque::new(),
            arrival_skew: ArrivalSkew::default(),
            collective_rates: VecDeque::new(),
            ahead: VecDeque::new(),
            pace_history: PaceHistory::default(),
            stalls: Stalls::default(),
            advance: Advance::default(),
            guessed: None,
            pace: None,
            devices: VecDeque::new(),
            cpu_waits: CpuWaits::default(),
            times: None,
            neighbours: None,
            load: None,
            busy_at: Moment::default(),
            history: VecDeque::new(),
            detail: None,
            changed: 0,
        }
    }

    /// Starts again if another process took the rank's place: nothing of the old one applies.
    fn restart_if_other(&mut self, host: &HostName, pid: Pid) {
        if (&self.host, self.pid) != (host, pid) {
            *self = Self::new(host.clone(), pid);
        }
    }

    /// A snapshot repeats this every two seconds, mostly unchanged.
    pub(super) fn introduce(&mut self, host: &HostName, info: &RankInfo, revision: u64) {
        self.restart_if_other(host, info.pid);
        if self.info.as_ref() != Some(info) {
            self.info = Some(info.clone());
            self.changed = revision;
        }
    }

    /// Its totals before the first local digest, oldest first, and when it last made progress.
    pub(super) fn remember(&mut self, earlier: &[Progress], advance: &Advance) -> bool {
        let is_new = self.intervals.is_empty() || self.advance == Advance::default();
        self.intervals.begin_with(earlier);
        if self.advance == Advance::default() {
            let Advance { moved, worked, ref paces } = *advance;
            let paces = paces.iter().rev().take(WINDOW).rev().copied().collect();
            self.advance = Advance { moved, worked, paces };
            self.pace = self.advance.pace();
        }
        is_new | self.correct(advance)
    }

    /// Corrects the start of a pause by a snapshot: a digest before any snapshot does not show it.
    fn correct(&mut self, reported: &Advance) -> bool {
        let Some(guessed) = self.guessed.filter(|_| *reported != Advance::default()) else { return false };
        self.guessed = None;
        for (mine, reported) in
            [(&mut self.advance.moved, reported.moved), (&mut self.advance.worked, reported.worked)]
        {
            if *mine == guessed {
                *mine = reported.min(guessed);
            }
        }
        if self.last_report().since(reported.moved.max(reported.worked)) > RATES {
            self.intervals.forget_figures();
        }
        true
    }

    pub(super) fn digest(
        &mut self,
        host: &HostName,
        now: Moment,
        digest: &RankDigest,
        revision: u64,
        joins: &mut Joins,
        transfers: &mut Transfers,
    ) {
        self.restart_if_other(host, digest.pid);
        let before = self.latest.as_ref();
        // Snapshots and digests arrive by two sockets, so one may have overtaken the other.
        if before.is_some_and(|before| digest.heard < before.heard) {
            return;
        }
        // A restarted collector has not heard from the rank yet, so the known state is kept.
        if digest.is_blank() && before.is_some_and(|before| !before.is_blank()) {
            return self.live(digest.life, now);
        }
        // A snapshot repeats the last digest, whose interval must not count twice.
        let fresh = before.is_none_or(|before| digest.heard > before.heard);
        if fresh || before.is_some_and(|before| has_more(before, digest)) {
            self.changed = revision;
        }
        if fresh {
            if let Some(ahead) = before.and_then(|before| Ahead::between(before, digest)) {
                push_bounded(&mut self.ahead, ahead, ahead::REMEMBERED);
            }
            let mut interval = Interval::between(before, digest);
            // Timings in the first report are not current if the rank has paused since then.
            if before.is_none() && self.was_stalled_before(digest) {
                interval = interval.without_figures();
            }
            if let Some(rate) = Tflops::from_work(interval.gemm_flops, interval.gemm_time) {
                push_bounded(&mut self.history, rate.0 as f32, HISTORY);
            }
            self.take_motion(digest);
            interval.active = self.advance.moved == digest.heard || interval.gemm_time.0 > 0;
            self.intervals.take(interval);
            self.pace_history.take(digest);
            self.take_samples(digest, joins, transfers);
        }
        self.live(digest.life, now);
        match &mut self.latest {
            // Its timings have been taken.
            Some(latest) => latest.follow(digest),
            None => self.latest = Some(RankDigest { samples: Vec::new(), ..digest.clone() }),
        }
        self.take_device(digest.device.as_ref());
    }

    /// A reading is repeated until there is a newer one, with only its age increased.
    fn take_device(&mut self, reading: Option<&DeviceReading>) {
        let Some(reading) = reading else { return self.devices.clear() };
        match self.devices.back_mut() {
            Some(last) if last.uuid != reading.uuid => self.devices.clear(),
            Some(last) if last.read >= reading.read => return *last = reading.clone(),
            _ => {}
        }
        push_bounded(&mut self.devices, reading.clone(), READINGS);
    }

    fn take_motion(&mut self, digest: &RankDigest) {
        // A snapshot has covered its first digest too.
        if self.latest.is_some() || self.advance == Advance::default() {
            if self.latest.is_none() {
                self.guessed = Some(digest.heard);
            }
            let stalled = self.stalled_for();
            self.stalls.take(self.latest.as_ref(), digest, stalled);
            self.advance.take(self.latest.as_ref(), digest);
            self.pace = self.advance.pace();
        }
    }

    /// Whether its collector has seen it pause for as long as the window of rates.
    fn was_stalled_before(&self, digest: &RankDigest) -> bool {
        let Advance { moved, worked, .. } = self.advance;
        self.advance != Advance::default() && digest.heard.since(moved.max(worked)) > RATES
    }

    /// The expected wait in such an operation of this communicator, from earlier waits that ended.
    pub fn usual_stall(&self, id: CommunicatorId, operation: Option<Operation>) -> Duration {
        self.stalls.usual(id, operation)
    }

    fn take_samples(&mut self, digest: &RankDigest, joins: &mut Joins, transfers: &mut Transfers) {
        let part = part(digest);
        // Collectives reported now were launched earlier, at the rate of that time.
        push_bounded(&mut self.collective_rates, digest.collective_rate, WINDOW);
        let rate = self.collective_rates.iter().max().copied().unwrap_or_default();
        for sample in &digest.samples {
            let Some(communicator) = digest.communicators.get(usize::from(sample.communicator)) else {
                continue;
            };
            let route = sample.peer().map(|peer| Route::of(communicator, sample.operation, peer));
            let (participants, size) =
                route.map_or((communicator.id, communicator.size), |route| (route.participants(), 2));
            let (place, whole) = joins.report(participants, sample.number(), size, rate, sample.duration);
            let taken = Sample {
                communicator: communicator.id,
                participants,
                sequence: sample.number(),
                operation: sample.operation,
                place,
                bus_bytes: sample.bus_bytes,
                duration: sample.duration,
            };
            if let Some(join) = whole {
                transfers.take(&taken, route, &join, digest.heard);
            }
            if route.is_some() {
                // One end waits for the other by design, so this is no arrival skew.
                push_bounded(&mut self.messages, taken, SAMPLES);
                continue;
            }
            push_bounded(&mut self.samples, taken, SAMPLES);
            // The stages of a pipeline end one after the other, so arrival skew between stages belongs to the
            // stage, not to a rank.
            if part.is_none_or(|part| part == taken.communicator) {
                self.arrival_skew.note(taken);
            }
        }
        self.arrival_skew.judge(joins, digest.heard, digest.step);
    }

    /// A rank that was alive at the last report but is not at `now` ended at `now`. One that was never alive
    /// may have ended long ago.
    fn live(&mut self, life: Life, now: Moment) {
        let is_over = |life| matches!(life, Life::Ended | Life::Died);
        match is_over(life) {
            true if self.latest.is_some() && !is_over(self.life) => self.gone = Some(now),
            true => {}
            // The rank counted as dead, but reports again.
            false => (self.gone, self.exit) = (None, None),
        }
        self.life = life;
    }

    /// Takes its wait for the CPU, which only explains other findings.
    pub(super) fn take_cpu(&mut self, cpu: &RankCpu, at: Moment) -> bool {
        if self.pid == cpu.pid {
            self.cpu_waits.take(cpu, at);
        }
        false
    }

    /// Takes how its threads spent their time. No finding depends on it.
    pub(super) fn take_times(&mut self, times: &RankTimes, at: Moment) -> bool {
        let is_newer = self.times.as_ref().is_none_or(|known| known.0 < at);
        if self.pid == times.pid && is_newer {
            self.times = Some(Box::new((at, times.clone())));
        }
        false
    }

    /// Takes what it, its GPU and its host moved. No finding depends on it.
    pub(super) fn take_load(&mut self, load: &HostLoad, rank: &RankLoad, at: Moment) -> bool {
        if self.pid == rank.pid && self.load.as_ref().is_none_or(|known| known.at < at) {
            let (interval, host) = (load.interval, load.host);
            self.load = Some(Box::new(Load { at, interval, host, rank: rank.clone() }));
        }
        false
    }

    /// Other processes use its GPU, which matters only if its GEMMs are slow.
    pub(super) fn take_neighbours(&mut self, of: &RankNeighbours, at: Moment) -> bool {
        if self.pid == of.pid && self.neighbours.as_ref().is_none_or(|known| known.0 < at) {
            self.neighbours = Some(Box::new((at, of.processes.clone())));
        }
        false
    }

    /// Notes that the rank worked on its CPU, which matters only if others wait for it.
    pub(super) fn take_work(&mut self, pid: Pid, at: Moment) -> bool {
        if self.pid == pid {
            self.busy_at = self.busy_at.max(at);
        }
        false
    }

    pub(super) fn set_life(&mut self, pid: Pid, life: Life, now: Moment) {
        if self.pid == pid {
            self.live(life, now);
            if let Some(latest) = &mut self.latest {
                latest.life = life;
            }
        }
    }

    pub(super) fn take_exit(&mut self, exit: Option<&RankExit>) {
        if let Some(exit) = exit.filter(|exit| exit.pid == self.pid && self.exit.as_deref() != Some(exit)) {
            self.exit = Some(Box::new(exit.clone()));
        }
    }

    pub(super) fn detail(&mut self, summary: &Summary) {
        self.detail.get_or_insert_default().take(summary);
    }

    pub(super) fn take_nccl(&mut self, report: &NcclReport) {
        self.detail.get_or_insert_default().nccl = report.clone();
    }

    pub(super) fn forget_detail(&mut self) {
        self.detail = None;
    }
}

/// Whether a repeated digest has more data than before: it may have arrived by two paths.
fn has_more(before: &RankDigest, again: &RankDigest) -> bool {
    let said = |digest: &RankDigest| {
        let RankDigest { life, enabled, step, gemm_flops, launches, world_size, .. } = *digest;
        (life, enabled, step, gemm_flops, launches, world_size)
    };
    said(before) != said(again) || before.communicators != again.communicators
}

/// The largest communicator that does not include all ranks; `None` if the rank sends nothing.
fn part(digest: &RankDigest) -> Option<CommunicatorId> {
    let some =
        digest.communicators.iter().filter(|state| state.entered > 0 && state.size < digest.world_size);
    let largest = some.max_by_key(|state| (state.size, state.id)).map(|state| state.id);
    largest.filter(|_| digest.launches.point_to_point > 0)
}

pub(super) fn push_bounded<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    } else if queue.len() == queue.capacity() {
        // The queue grows as vectors do, but never beyond its limit, which matters with thousands of ranks.
        queue.reserve_exact(queue.len().max(4).min(most - queue.len()));
    }
    queue.push_back(value);
}
