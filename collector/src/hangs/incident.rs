//! One hang, or the end of one rank with the ends that follow from it: its cause, the data so far, and the
//! next action.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use xpu_model::{finding, job::Job, status::Status};
use xpu_wire::{
    frame::{Ending, RankExit},
    id::{Pid, Rank},
    unit::Moment,
};

use super::recording::IncidentRecording;

/// Consecutive checks, a second apart, that must find the job hung. An end is certain at once.
const LOOKS: u32 = 2;

/// Longest wait for the history.
const PAST: Duration = Duration::from_secs(3);

/// Longest wait for stacks and records, longer than a collector waits for a rank. After that, the incident is
/// saved without the missing ones.
const PATIENCE: Duration = Duration::from_secs(12);

/// After this time without new data, all ends that follow from the first are taken as known.
const QUIET: Duration = Duration::from_secs(2);

/// How long a hang must last after everything else was requested, before the kernels on its GPUs are read.
/// Reading them ends the ranks, and is done only if the user wants it.
const BEFORE_KERNELS: Duration = Duration::from_secs(30);

/// Interval between two writes of a folder, and the number of writes.
const AGAIN: Duration = Duration::from_secs(2);
const WRITES: u32 = 16;

/// A job that hangs again within this time is still in the same hang.
const OVER: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Hang,
    /// A rank failed.
    End,
}

/// Why to save the state of the job now, if there is a reason.
pub(super) fn cause(job: &Job, now: Moment) -> Option<Cause> {
    let mut exits = job.ranks().filter_map(|(_, view)| view.exit()).peekable();
    if exits.peek().is_some() {
        return exits.any(|exit| !was_ended(exit)).then_some(Cause::End);
    }
    let stall: Vec<_> = finding::stall(job, now).into_iter().collect();
    // Another kind of stall means that a rank ended. The report of its end arrives soon.
    let is_hang = || stall.iter().all(|found| found.kind == finding::Kind::Hang);
    (job.living() > 0 && finding::is_stuck(job, &stall) && is_hang()).then_some(Cause::Hang)
}

/// Whether the end was requested: `scancel`, a launcher, Ctrl-C.
fn was_ended(exit: &RankExit) -> bool {
    const INTERRUPT: i32 = 2;
    exit.was_asked_to_end()
        || matches!(&exit.ending, Ending::Signal(signal) if signal.number == INTERRUPT)
        || exit.exception.as_ref().is_some_and(|exception| exception.kind == "KeyboardInterrupt")
}

/// The end from which the others followed.
pub(super) fn first_end(job: &Job, now: Moment) -> Option<&RankExit> {
    let named = finding::stall(job, now).filter(|found| found.kind == finding::Kind::Exited);
    let named = named.into_iter().flat_map(|found| found.ranks).find_map(|rank| job.rank(rank)?.exit());
    let exits = job.ranks().filter_map(|(_, view)| view.exit()).filter(|exit| !was_ended(exit));
    named.filter(|exit| !was_ended(exit)).or_else(|| exits.min_by_key(|exit| exit.at))
}

#[derive(Debug)]
pub(super) struct Incident {
    pub(super) cause: Cause,
    /// When the job last made progress.
    pub(super) since: Moment,
    /// When the incident was found.
    pub(super) found: Moment,
    pub(super) recording: IncidentRecording,
    /// The answer of RAS, unchanged.
    pub(super) ras: Option<Vec<u8>>,
    /// The processes of the ranks: other processes under the same name are another run.
    processes: Vec<(Rank, Pid)>,
    looks: u32,
    /// When all data was requested.
    asked: Option<Instant>,
    /// When new data last arrived.
    news: Instant,
    is_new: bool,
    written: Option<Instant>,
    writes: u32,
    /// The incident's folder, once written.
    pub(super) place: Option<PathBuf>,
    has_acted: bool,
    /// The last status before the kernels on the GPUs were requested. Later changes are not part of the hang.
    held: Option<Box<Status>>,
    /// When the job began to run again.
    over: Option<Instant>,
}

impl Incident {
    pub(super) fn new(job: &Job, cause: Cause, now: Moment, instant: Instant) -> Self {
        let moved = job.ranks().map(|(_, view)| view.stalled_for()).min();
        Self {
            cause,
            since: Moment(now.0.saturating_sub(moved.unwrap_or_default().as_nanos() as u64)),
            found: now,
            recording: IncidentRecording::of(job.name().clone()),
            ras: None,
            processes: job.ranks().map(|(rank, view)| (rank, view.pid())).collect(),
            looks: 0,
            asked: None,
            news: instant,
            is_new: true,
            written: None,
            writes: 0,
            place: None,
            has_acted: false,
            held: None,
            over: None,
        }
    }

    /// Takes a check's result; `true` if the data should be requested now.
    pub(super) fn look(&mut self, cause: Option<Cause>, instant: Instant) -> bool {
        let Some(cause) = cause else {
            self.over.get_or_insert(instant);
            return false;
        };
        self.over = None;
        if self.held.is_some() {
            return false;
        }
        self.looks += 1;
        let has_turned = cause == Cause::End && self.cause == Cause::Hang;
        if has_turned {
            self.cause = Cause::End;
            self.note_data(instant);
        }
        let is_sure = self.cause == Cause::End || self.looks >= LOOKS;
        if is_sure && (self.asked.is_none() || has_turned) {
            self.asked = Some(instant);
            return true;
        }
        false
    }

    /// Notes that new data has arrived, which is not yet on disk.
    pub(super) fn note_data(&mut self, instant: Instant) {
        (self.news, self.is_new) = (instant, true);
    }

    /// Whether the incident is confirmed, and all data has arrived.
    fn is_whole(&self, job: &Job, instant: Instant) -> bool {
        let Some(asked) = self.asked else { return false };
        let has_stacks = match self.cause {
            Cause::Hang => job.without_stacks().next().is_none(),
            // The stacks of running ranks are read without native frames.
            Cause::End => job
                .ranks()
                .filter(|(_, view)| view.is_alive())
                .all(|(rank, _)| job.stacks().any(|stacks| stacks.rank == rank)),
        };
        let came = has_stacks && job.without_records().next().is_none();
        (came && self.recording.has_past) || instant.duration_since(asked) >= PATIENCE
    }

    pub(super) fn is_to_be_written(&self, instant: Instant) -> bool {
        let Some(asked) = self.asked else { return false };
        let has_past = self.recording.has_past || instant.duration_since(asked) >= PAST;
        let again = self.written.is_none_or(|written| instant.duration_since(written) >= AGAIN);
        has_past && again && self.is_new && self.writes < WRITES
    }

    /// Whether data would be lost if it is not written before the collector ends.
    pub(super) fn is_lost_otherwise(&self) -> bool {
        self.asked.is_some() && self.is_new
    }

    pub(super) fn was_written(&mut self, instant: Instant) {
        (self.written, self.is_new) = (Some(instant), false);
        self.writes += 1;
    }

    /// Whether the user's program should run now. `true` only once.
    pub(super) fn is_to_be_reported(&mut self, job: &Job, instant: Instant) -> bool {
        let is_quiet = instant.duration_since(self.news) >= QUIET
            || self.asked.is_some_and(|asked| instant.duration_since(asked) >= PATIENCE + QUIET);
        let is_due = !self.has_acted && is_quiet && self.is_whole(job, instant) && self.written.is_some();
        self.has_acted |= is_due;
        is_due
    }

    /// Whether the kernels on the GPUs may be read now: everything else was read and written.
    pub(super) fn is_for_kernels(&self, instant: Instant) -> bool {
        let lasts = self.cause == Cause::Hang && self.over.is_none();
        let is_due = self.asked.is_some_and(|asked| instant.duration_since(asked) >= BEFORE_KERNELS);
        lasts && is_due && self.held.is_none() && self.written.is_some() && !self.is_new
    }

    /// Notes that the kernels on the GPUs were requested, and keeps the status before.
    pub(super) fn hold(&mut self, status: Status, now: Moment) {
        self.held = Some(Box::new(status));
        self.recording.hold(now);
    }

    /// Whether the kernels on the GPUs were requested.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The status to save. Once ranks were ended to read their kernels, that is the status before, with the
    /// new stacks.
    pub(super) fn status(&self, present: Status) -> Status {
        match &self.held {
            Some(held) => Status { stacks: present.stacks, ..Status::clone(held) },
            None => present,
        }
    }

    /// Whether nothing more is expected for now.
    pub(super) fn is_settled(&self) -> bool {
        (self.has_acted || self.asked.is_none()) && (!self.is_new || self.writes >= WRITES)
    }

    pub(super) fn is_over(&self, job: &Job, instant: Instant) -> bool {
        let is_another = |&(rank, pid)| job.rank(rank).is_some_and(|view| view.pid() != pid);
        if self.processes.iter().any(is_another) {
            return true;
        }
        let Some(over) = self.over else { return false };
        self.asked.is_none() || instant.duration_since(over) >= OVER
    }
}
