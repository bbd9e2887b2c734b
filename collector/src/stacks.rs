//! Reads stacks, on demand and when a job hangs. A short-lived process of this program reads each rank, never
//! the serving thread. A reader that hangs is killed at its deadline, and the kernel releases its resources.

mod brief;
mod gpu;
mod kernel;
mod launchers;
mod native;
mod python;
mod read;
mod reader;
mod sample;
mod samples;

use std::{
    collections::VecDeque,
    os::fd::RawFd,
    path::PathBuf,
    process::Child,
    time::{Duration, Instant},
};

use xpu_wire::{
    frame::{Inside, RankStacks},
    id::{JobName, Pid, Rank},
    unit::Moment,
};

pub(crate) use gpu::failed_kernel;
pub(crate) use launchers::Launcher;
use launchers::Launchers;
pub(crate) use native::{CrashFrame, crashed};
pub(crate) use read::end_with_the_collector;
pub use read::read;
use reader::Reader;
pub use sample::sample;
pub(crate) use samples::Samplers;
pub use samples::sample_python;

use crate::address::Address;

/// Largest number of ranks read at the same time: those of a usual host.
const AT_ONCE: usize = 8;

/// Time limit for one rank.
const LIMIT: Duration = Duration::from_secs(5);

/// Time limit if the rank's GPUs are read, too: the driver writes up to some hundred MB.
const GPU_LIMIT: Duration = Duration::from_mins(1);

/// Largest number of viewers that wait for the same rank.
const VIEWERS: usize = 64;

/// A rank whose stacks are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub job: JobName,
    pub rank: Rank,
    pub pid: Pid,
    /// Whether this process can read the rank.
    pub reach: Reach,
    /// Whether the rank's threads may be stopped for their native frames.
    pub natively: bool,
    /// The rank's launcher, if the kernels on its GPUs are read. Reading them ends the rank, and the launcher
    /// would then end the other ranks.
    pub gpus: Option<Launcher>,
    /// Threads in a call that can block, from the ledger page at `looked`.
    pub inside: Vec<Inside>,
    pub looked: Moment,
    /// How the rank ended, as far as known.
    pub ended: Option<String>,
}

/// Whether a process can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Here,
    Gone,
    /// The process is in another process namespace: its pid means nothing here.
    Elsewhere,
    /// Another user's process. Checked because a worker may report any pid.
    Foreign,
}

/// A target, and the viewers that wait for it.
#[derive(Debug)]
struct Wanted {
    target: Target,
    viewers: Vec<Address>,
}

impl Wanted {
    fn is_of(&self, target: &Target) -> bool {
        (&self.target.job, self.target.rank) == (&target.job, target.rank)
    }

    /// Whether a reading for this target includes everything that `target` needs.
    fn satisfies(&self, target: &Target) -> bool {
        self.is_of(target)
            && (self.target.natively || !target.natively)
            && (self.target.gpus.is_some() || target.gpus.is_none())
    }

    fn limit(&self) -> Duration {
        if self.target.gpus.is_some() { GPU_LIMIT } else { LIMIT }
    }

    fn join(&mut self, viewer: Option<&Address>) {
        if let Some(viewer) = viewer.filter(|viewer| !self.viewers.contains(viewer))
            && self.viewers.len() < VIEWERS
        {
            self.viewers.push(viewer.clone());
        }
    }

    fn answer(self, stacks: RankStacks) -> Answer {
        Answer { viewers: self.viewers, stacks, looked: self.target.looked }
    }

    fn unread(self, why: String) -> Answer {
        let Target { job, rank, pid, .. } = self.target.clone();
        self.answer(RankStacks::unread(job, rank, pid, why))
    }
}

/// The result, and its recipients.
#[derive(Debug)]
pub(crate) struct Answer {
    pub viewers: Vec<Address>,
    pub stacks: RankStacks,
    /// When the rank's ledger was read.
    pub looked: Moment,
}

/// All readings in progress.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// The program that reads, which is this program.
    program: PathBuf,
    waiting: VecDeque<Wanted>,
    readers: Vec<Reader>,
    /// Killed readers that are not reaped yet.
    ending: Vec<Child>,
    /// The launchers that are stopped while GPUs are read.
    launchers: Launchers,
}

impl Stacks {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            waiting: VecDeque::new(),
            readers: Vec::new(),
            ending: Vec::new(),
            launchers: Launchers::default(),
        }
    }

    /// Takes a request of a viewer or of this collector. A waiting rank is read once for all requests,
    /// natively if one of them needs that. The queue has at most twice as many entries as there are ranks.
    pub(crate) fn want(&mut self, target: Target, viewer: Option<&Address>) {
        let mut reading = self.readers.iter_mut().map(|reader| &mut reader.wanted);
        if let Some(wanted) = self.waiting.iter_mut().find(|wanted| wanted.is_of(&target)) {
            wanted.join(viewer);
            if target.gpus.is_some() || (target.natively && wanted.target.gpus.is_none()) {
                wanted.target = target;
            }
        } else if let Some(wanted) = reading.find(|wanted| wanted.satisfies(&target)) {
            wanted.join(viewer);
        } else {
            self.waiting.push_back(Wanted { target, viewers: viewer.into_iter().cloned().collect() });
        }
    }

    /// The descriptors to poll.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.readers.iter().map(Reader::descriptor)
    }

    /// Takes finished readings, and starts waiting ones. Never blocks.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<Answer> {
        self.ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let mut answers = Vec::new();
        for mut reader in std::mem::take(&mut self.readers) {
            if reader.take(now) {
                let (answer, child) = reader.finish();
                answers.push(answer);
                self.ending.push(child);
            } else {
                self.readers.push(reader);
            }
        }
        while self.readers.len() < AT_ONCE
            && let Some(wanted) = self.waiting.pop_front()
        {
            let pid = wanted.target.pid;
            match wanted.target.reach {
                Reach::Gone => {
                    let how = wanted.target.ended.as_ref().map_or_else(String::new, |how| format!(": it {how}"));
                    answers.push(wanted.unread(format!("its process {pid} is gone{how}")));
                }
                Reach::Elsewhere => answers.push(wanted.unread(format!(
                    "its process {pid} cannot be seen from here: it is in another container than this collector; \
                     start one there with `xpu-top run`"
                ))),
                Reach::Foreign => answers.push(wanted.unread(format!(
                    "its process {pid} belongs to another user, or has made itself unreadable \
                     (PR_SET_DUMPABLE): start a collector as its user"
                ))),
                Reach::Here => {
                    if let Some(launcher) = wanted.target.gpus {
                        self.launchers.stop(launcher);
                    }
                    match Reader::start(&self.program, wanted, now) {
                        Ok(reader) => self.readers.push(reader),
                        Err(failed) => answers.push(*failed),
                    }
                }
            }
        }
        if !self.wanted().any(|wanted| wanted.target.gpus.is_some()) {
            self.launchers.go_on();
        }
        answers
    }

    /// Whether the GPUs of this process are being read, by a core dump that ends it.
    pub(crate) fn reads_gpus_of(&self, pid: Pid) -> bool {
        self.wanted().any(|wanted| wanted.target.pid == pid && wanted.target.gpus.is_some())
    }

    /// The requests that are not yet answered.
    fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        self.waiting.iter().chain(self.readers.iter().map(|reader| &reader.wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Identity;

    fn target(natively: bool) -> Target {
        let (job, rank, pid) = ("a".into(), Rank(0), Pid(std::process::id()));
        Target {
            job,
            rank,
            pid,
            reach: Reach::Here,
            natively,
            gpus: None,
            inside: Vec::new(),
            looked: Moment(0),
            ended: None,
        }
    }

    fn viewer(number: u8) -> Address {
        Address { to: Identity(vec![number]), route: Vec::new() }
    }

    /// Readings with a reader that does nothing. A started reading is in progress until the next turn.
    fn stacks() -> Stacks {
        Stacks::new("/bin/true".into())
    }

    fn natively<'a>(wanted: impl IntoIterator<Item = &'a Wanted>) -> Vec<bool> {
        wanted.into_iter().map(|wanted| wanted.target.natively).collect()
    }

    #[test]
    fn requests_for_the_same_rank_are_answered_together_with_all_requested_parts() {
        let mut stacks = stacks();
        stacks.want(target(false), Some(&viewer(1)));
        stacks.want(target(true), Some(&viewer(2)));
        stacks.want(target(false), Some(&viewer(2)));
        assert_eq!((natively(&stacks.waiting), stacks.waiting[0].viewers.len()), (vec![true], 2));
    }

    /// A viewer asked just before the hang of the job was detected.
    #[test]
    fn a_request_for_native_frames_survives_a_reading_without_them() {
        let mut stacks = stacks();
        stacks.want(target(false), Some(&viewer(1)));
        assert!(stacks.turn(Instant::now()).is_empty());
        stacks.want(target(true), None);
        stacks.want(target(false), Some(&viewer(2)));
        assert_eq!((stacks.readers.len(), natively(&stacks.waiting)), (1, vec![true]));
    }
}
