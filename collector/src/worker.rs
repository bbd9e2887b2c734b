//! One rank as this host knows it: its messages, and what can be read about it after the messages stop.

mod ending;
mod memory;
mod next_digest;
mod record;
mod stall;
mod step_times;
mod times;

use std::{collections::VecDeque, fs, time::Duration};

use xpu_wire::{
    endpoint::user_id,
    frame::{
        Advance, CommunicatorState, DeviceReading, JobWhatIf, Life, NcclReport, Progress, RankDetail,
        RankDigest, RankExit, RankInfo, RankNccl, RankRecord, RankStacks, Summary,
    },
    id::{DeviceUuid, Rank, Step},
    ledger::{self, Call, KinetoCount, LedgerPage},
    process::{self, Process},
    unit::{Moment, Nanoseconds},
};

use crate::{
    address::Identity,
    digest::{self, Known, Pending, inside},
    exits::{ExitStatus, ExitWatch, KillCounts, MemoryKills, ProcessContext},
    stacks::{Reach, Target},
    totals::Totals,
};
use memory::HeldMemory;
pub(crate) use stall::RankProgress;
use step_times::StepTimes;
use times::Times;

/// A living rank that has sent nothing for this time is silent: five summaries are missing.
const SILENCE: Duration = Duration::from_secs(5);

/// How `/proc/PID/maps` shows a rank's ledger page.
const PAGE: &[u8] = b"/memfd:xpu-top-ledger";

/// A process gone for this long without a goodbye has died. Until then its goodbye may still arrive.
const GRACE: Duration = Duration::from_millis(300);

/// A rank whose process cannot be seen counts as dead after this time without messages.
const UNSEEN: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Worker {
    pub info: RankInfo,
    pub identity: Identity,
    process: Process,
    ledger: Option<LedgerPage>,
    life: Life,
    heard: Moment,
    gone: Option<Moment>,
    joined: Moment,
    /// The expected number of its next frame.
    expected: u64,
    /// How the hook observes the rank's NCCL calls; empty until the rank reports it.
    nccl: NcclReport,
    step: Option<(Step, Moment)>,
    /// The last median of its steps.
    pace: Option<Nanoseconds>,
    totals: Totals,
    communicators: Vec<Known>,
    latest: Summary,
    pending: Pending,
    step_times: StepTimes,
    times: Times,
    device: Option<DeviceReading>,
    held_memory: HeldMemory,
    digest: RankDigest,
    /// Its totals at the last digests, oldest first.
    progress: VecDeque<Progress>,
    advance: Advance,
    /// The last digest with timed collectives and steps, for viewers that connect after the rank's end.
    reporting: Option<RankDigest>,
    /// Its last stacks.
    stacks: Option<Box<RankStacks>>,
    /// Number of readings that failed one after another in the same hang.
    failed: u32,
    /// Why its ledger page cannot be read, if it has one.
    no_ledger: Option<String>,
    /// Its last calls, with the number requested, and when they were last published without a request.
    record: Option<(usize, Box<RankRecord>)>,
    published: Option<Moment>,
    /// Whether there is new data since the last digest.
    unsaid: bool,
    /// When its [`Life`] last changed.
    changed: Moment,
    /// Whether its end was reported.
    departed: bool,
    /// The report of its end, if it failed.
    pub exit: Option<Box<RankExit>>,
    /// What stragglers have cost its job; only with rank 0.
    pub what_if: Option<Box<JobWhatIf>>,
    memory: MemoryKills,
    watch: ExitWatch,
    /// Its exit status, from the kernel.
    status: Option<ExitStatus>,
    context: ProcessContext,
    /// Whether this worker represents a further GPU of a process that another worker represents.
    is_beside: bool,
}

impl Worker {
    /// A worker for a further GPU of a process.
    pub(crate) fn beside(identity: Identity, info: RankInfo, number: u64, now: Moment) -> Self {
        // The process's other worker takes what the kernel reports about the process.
        let (memory, watch, context) = Default::default();
        Self { is_beside: true, memory, watch, context, ..Self::new(identity, info, number, now) }
    }

    pub(crate) fn is_beside(&self) -> bool {
        self.is_beside
    }

    /// Whether its process has one of these ranks. An empty list means all ranks.
    pub(crate) fn is_named(&self, ranks: &[Rank]) -> bool {
        let process = self.info.rank.process();
        ranks.is_empty() || ranks.iter().any(|rank| rank.process() == process)
    }

    pub(crate) fn new(identity: Identity, info: RankInfo, number: u64, now: Moment) -> Self {
        let mut new = Self {
            process: Process::find(info.pid),
            ledger: None,
            life: Life::Alive,
            heard: now,
            gone: None,
            joined: now,
            expected: number.wrapping_add(1),
            nccl: NcclReport::default(),
            step: None,
            pace: None,
            totals: Totals::default(),
            communicators: Vec::new(),
            latest: Summary::default(),
            pending: Pending::default(),
            step_times: StepTimes::default(),
            times: Times::default(),
            device: None,
            held_memory: HeldMemory::default(),
            digest: digest::empty(&info, now),
            progress: VecDeque::new(),
            advance: Advance::default(),
            reporting: None,
            stacks: None,
            failed: 0,
            no_ledger: None,
            record: None,
            published: None,
            unsaid: true,
            changed: Moment::default(),
            departed: false,
            exit: None,
            what_if: None,
            memory: MemoryKills::default(),
            watch: ExitWatch::default(),
            status: None,
            context: ProcessContext::default(),
            is_beside: false,
            info,
            identity,
        };
        new.map_ledger();
        // Without the page, the pid may belong to another process here.
        if new.ledger.is_some() {
            (new.memory, new.context) = (MemoryKills::of(new.info.pid), ProcessContext::of(new.info.pid));
            new.watch = ExitWatch::of(new.info.pid);
        }
        new
    }

    /// Takes a further introduction by the same process.
    pub(crate) fn introduce(&mut self, identity: Identity, info: RankInfo, number: u64, now: Moment) {
        self.identity = identity;
        let is_elsewhere = self.info.ledger != info.ledger;
        self.info = info;
        // After `exec` the process has another page, usually under the same number. A page whose descriptor
        // the program has closed is still the rank's page.
        let before = self.ledger.take();
        self.map_ledger();
        if self.ledger.is_none() && before.is_some() && !is_elsewhere {
            (self.ledger, self.no_ledger) = (before, None);
        }
        self.expected = number.wrapping_add(1);
        self.note_contact(now);
    }

    fn map_ledger(&mut self) {
        let opened = self.info.ledger.map(|descriptor| LedgerPage::open(self.info.pid, descriptor));
        self.no_ledger = opened.as_ref().and_then(|opened| Some(opened.as_ref().err()?.to_string()));
        if let Some(why) = &self.no_ledger {
            let (rank, job) = (self.info.rank, &self.info.job);
            tracing::info!(
                "rank {rank} of {job}: no ledger page ({why}); a hang is shown without its last operations"
            );
        }
        self.ledger = opened.and_then(Result::ok);
    }

    fn note_contact(&mut self, now: Moment) {
        self.heard = self.heard.max(now);
        self.gone = None;
        self.unsaid = true;
    }

    pub(crate) fn is_process_of(&self, info: &RankInfo) -> bool {
        (self.info.pid, self.info.started) == (info.pid, info.started)
    }

    /// Whether another process may take this rank's place.
    pub(crate) fn has_left(&self) -> bool {
        self.life != Life::Alive || self.process.lives() == Some(false)
    }

    pub(crate) fn life(&self) -> Life {
        self.life
    }

    pub(crate) fn is_there(&self) -> bool {
        matches!(self.life, Life::Alive | Life::Silent)
    }

    pub(crate) fn last_contact(&self) -> Moment {
        self.heard
    }

    pub(crate) fn shapes_rejected(&self) -> u64 {
        self.totals.turned_away()
    }

    pub(crate) fn take_nccl(&mut self, number: u64, mut report: NcclReport) {
        report.plans.truncate(NcclReport::PLANS);
        self.nccl = report;
        if number == self.expected {
            self.expected = number.wrapping_add(1);
        }
    }

    /// How the hook observes the rank's NCCL calls; `None` while unknown.
    pub(crate) fn nccl(&self) -> Option<RankNccl> {
        let (job, rank) = (self.info.job.clone(), self.info.rank);
        (self.nccl != NcclReport::default()).then(|| RankNccl { job, rank, report: self.nccl.clone() })
    }

    /// Takes a summary. `false` if earlier frames were lost: they may have had shapes that do not change
    /// again.
    pub(crate) fn summary(&mut self, number: u64, mut summary: Summary, now: Moment) -> bool {
        summary.communicators.truncate(ledger::COMMUNICATORS);
        summary.samples.truncate(Summary::SAMPLES);
        let gapless = number <= self.expected;
        self.expected = number.wrapping_add(1);
        if summary.launches.gemms < self.latest.launches.gemms {
            // The process executed a program again under the same pid: its old counts no longer apply.
            self.totals = Totals::default();
            self.latest = Summary::default();
            self.communicators.clear();
        }
        self.totals.take(&summary);
        self.take_communicators(&summary.communicators, now);
        if let Some(steps) = &summary.steps {
            self.pending.steps.merge(&steps.durations);
            self.step = Some((steps.completed, steps.at));
        }
        self.pending.take_samples(&summary);
        // The first summary counts all time since the process began, which may be long before this collector.
        if self.latest.interval.0 > 0 {
            let spent = summary.hook.spent.0.saturating_sub(self.latest.hook.spent.0);
            self.pending.spent = Nanoseconds(self.pending.spent.0.saturating_add(spent));
            self.pending.interval = Nanoseconds(self.pending.interval.0.saturating_add(summary.interval.0));
        }
        self.latest = summary;
        self.note_contact(now);
        gapless
    }

    fn take_communicators(&mut self, states: &[CommunicatorState], now: Moment) {
        let before = std::mem::take(&mut self.communicators);
        self.communicators = states
            .iter()
            .map(|state| {
                let known = before.iter().find(|known| known.is_same(state) && !known.closed);
                known.map_or_else(|| Known::said(state, now), |known| known.update(state, now))
            })
            .collect();
        let gone = |known: &Known| !states.iter().any(|state| known.is_same(state));
        let closed = before.into_iter().filter(gone);
        self.communicators.extend(closed.map(|known| Known { closed: true, ..known }));
        self.communicators.truncate(2 * ledger::COMMUNICATORS);
    }

    /// Sets the rank's [`Life`]; `Some` if it changed.
    pub(crate) fn become_life(&mut self, life: Life, now: Moment) -> Option<Life> {
        if matches!(life, Life::Alive | Life::Ended) {
            self.note_contact(now);
        }
        if life == Life::Alive {
            // The rank may have counted as dead while it sent nothing.
            (self.departed, self.exit) = (false, None);
        }
        (self.life != life).then(|| {
            (self.life, self.changed) = (life, now);
            self.unsaid = true;
            life
        })
    }

    /// Checks the rank; `Some` if its [`Life`] changed.
    pub(crate) fn check(&mut self, kills: &mut KillCounts, now: Moment) -> Option<Life> {
        if !self.is_there() {
            return None;
        }
        self.memory.look(kills, now);
        let lives = self.process.lives();
        let silent_for = now.since(self.heard);
        let life = if lives == Some(false) {
            self.status = self.status.or_else(|| self.watch.status());
            let gone = *self.gone.get_or_insert(now);
            if now.since(gone) < GRACE {
                return None;
            }
            Life::Died
        } else if lives.is_none() && silent_for >= UNSEEN {
            Life::Died
        } else if silent_for >= SILENCE {
            if self.life == Life::Alive && self.executes_another_program() {
                Life::Ended
            } else {
                Life::Silent
            }
        } else {
            return None;
        };
        self.read_ledger(now);
        // The process ran none of its exit handlers (`os._exit(0)`), but did not fail.
        let life = if life == Life::Died && self.exited_well() { Life::Ended } else { life };
        self.become_life(life, now)
    }

    /// Whether the process is no longer a rank: `exec` has left it without the page. If it executes a program
    /// with the hook again, it introduces itself when its libraries are loaded.
    fn executes_another_program(&self) -> bool {
        let maps = || fs::read(format!("/proc/{}/maps", self.info.pid)).unwrap_or_default();
        // A process that is about to end has no mappings.
        let lacks = |maps: &[u8]| !maps.is_empty() && !maps.windows(PAGE.len()).any(|part| part == PAGE);
        self.ledger.is_some() && lacks(&maps())
    }

    /// Takes from the page the rank's progress since its last message.
    pub(crate) fn read_ledger(&mut self, now: Moment) {
        let Some(page) = &self.ledger else { return };
        let reading = page.ledger().read();
        if self.step.is_none_or(|(step, _)| reading.step > step) && reading.step > Step(0) {
            self.step = Some((reading.step, reading.step_at));
        }
        for line in reading.communicators {
            match self.communicators.iter_mut().find(|known| known.is_of(&line)) {
                Some(known) => known.advance(&line, now),
                // If the process has several GPUs, the page does not show to which GPU this communicator
                // belongs.
                None if self.info.rank.gpu().is_some() => {}
                None => self.communicators.push(Known::read(&line, now)),
            }
        }
    }

    /// Whether its ledger page was found, which shows that its process id is of this namespace.
    pub(crate) fn has_ledger(&self) -> bool {
        self.ledger.is_some()
    }

    /// Kineto's current count of steps.
    pub(crate) fn kineto_count(&self) -> Option<KinetoCount> {
        self.ledger.as_ref()?.ledger().kineto_count()
    }

    /// Its GPU, as CUDA names it.
    pub(crate) fn gpu(&self) -> &str {
        &self.latest.device
    }

    /// The UUID of its GPU, if the rank has reported it.
    pub(crate) fn device_uuid(&self) -> Option<DeviceUuid> {
        self.latest.device_uuid
    }

    /// Sets the GPU health for its next digest.
    pub(crate) fn set_device(&mut self, reading: Option<DeviceReading>) {
        self.device = reading;
    }

    /// Its process, as a target of a stack reading.
    pub(crate) fn target(&self, natively: bool, now: Moment) -> Target {
        let reading = self.ledger.as_ref().map(|page| page.ledger().read());
        Target {
            job: self.info.job.clone(),
            rank: self.info.rank,
            pid: self.info.pid,
            reach: match self.process.lives() {
                Some(true) if process::owner(self.info.pid) != Some(user_id()) => Reach::Foreign,
                Some(true) => Reach::Here,
                Some(false) => Reach::Gone,
                None => Reach::Elsewhere,
            },
            natively,
            gpus: None,
            inside: reading.map(|page| inside(page.threads, now)).unwrap_or_default(),
            looked: now,
            ended: self.exit.as_ref().map(|exit| exit.sentence()),
        }
    }

    /// Whether one of its threads is creating a communicator; `false` without a ledger.
    pub(crate) fn creates_communicator(&self) -> bool {
        let mut threads = self.ledger.iter().flat_map(|page| &page.ledger().threads);
        threads.any(|thread| thread.read().is_some_and(|reading| reading.call == Call::CommunicatorInit))
    }

    pub(crate) fn detail(&self) -> RankDetail {
        let mut summary = self.latest.clone();
        self.totals.complete(&mut summary);
        // Call sites belong to the process, and not to one of its GPUs.
        if let Some(page) = self.ledger.as_ref().filter(|_| self.info.rank.gpu().is_none()) {
            summary.memory.sites = self.held_memory.sites(page.ledger());
        }
        RankDetail { job: self.info.job.clone(), rank: self.info.rank, summary }
    }
}
