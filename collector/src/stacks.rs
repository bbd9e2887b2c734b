//! Stacks, on demand and when a job stands. Each rank is read by a short-lived process of this program, never by the thread that serves: one that
//! hangs in reading is killed at its deadline, and the kernel lets go of whatever it held.

mod kernel;
mod native;
mod python;
mod read;
mod reader;

use std::{
    collections::VecDeque,
    os::fd::RawFd,
    path::PathBuf,
    process::Child,
    time::{Duration, Instant},
};

use xpu_shared::{
    frame::{Inside, RankStacks},
    id::{JobName, Pid, Rank},
    unit::Moment,
};

pub use read::read;
use reader::Reader;

use crate::address::Address;

/// Ranks read at the same time: those of a usual host.
const AT_ONCE: usize = 8;

/// How long reading one rank may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Viewers that wait for the same rank.
const VIEWERS: usize = 64;

/// A rank whose stacks are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub job: JobName,
    pub rank: Rank,
    pub pid: Pid,
    /// Whether it can be read from here.
    pub reach: Reach,
    /// Whether its threads may be held for their native frames.
    pub natively: bool,
    /// Threads in a call that can block, by the ledger page, when that was read.
    pub inside: Vec<Inside>,
    pub looked: Moment,
}

/// Whether a process can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Here,
    Gone,
    /// In another process namespace: its number means nothing here.
    Elsewhere,
}

/// A target, and who waits for it.
#[derive(Debug)]
struct Wanted {
    target: Target,
    viewers: Vec<Address>,
}

impl Wanted {
    fn answer(self, stacks: RankStacks) -> Answer {
        Answer { viewers: self.viewers, stacks, looked: self.target.looked }
    }

    fn unread(self, why: String) -> Answer {
        let Target { job, rank, pid, .. } = self.target.clone();
        self.answer(RankStacks::unread(job, rank, pid, why))
    }
}

/// What became known, and who wants to hear it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub viewers: Vec<Address>,
    pub stacks: RankStacks,
    /// When its ledger was read.
    pub looked: Moment,
}

/// All reading under way.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// The program that reads: this one.
    program: PathBuf,
    waiting: VecDeque<Wanted>,
    readers: Vec<Reader>,
    /// Killed, and not yet seen to have ended.
    ending: Vec<Child>,
}

impl Stacks {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, waiting: VecDeque::new(), readers: Vec::new(), ending: Vec::new() }
    }

    /// Takes in a wish, of a viewer or of this collector itself. A rank that is about to be read is read once for all who
    /// wait; it is bounded by the ranks there are.
    pub(crate) fn want(&mut self, target: Target, viewer: Option<&Address>) {
        let same = |wanted: &Wanted| (&wanted.target.job, wanted.target.rank) == (&target.job, target.rank);
        let reading = self.readers.iter_mut().map(|reader| &mut reader.wanted);
        if let Some(wanted) = self.waiting.iter_mut().chain(reading).find(|wanted| same(wanted)) {
            if let Some(viewer) = viewer
                && !wanted.viewers.contains(viewer)
                && wanted.viewers.len() < VIEWERS
            {
                wanted.viewers.push(viewer.clone());
            }
            return;
        }
        self.waiting.push_back(Wanted { target, viewers: viewer.into_iter().cloned().collect() });
    }

    /// What to poll for.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.readers.iter().map(Reader::descriptor)
    }

    /// Takes what has been read, starts what waits. Never blocks.
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
                Reach::Gone => answers.push(wanted.unread(format!("its process {pid} is gone"))),
                Reach::Elsewhere => answers.push(wanted.unread(format!(
                    "its process {pid} cannot be seen from here: it is in another container than this collector; \
                     start one with `xpu-top run` in there"
                ))),
                Reach::Here => match Reader::start(&self.program, wanted, now + LIMIT) {
                    Ok(reader) => self.readers.push(reader),
                    Err(failed) => answers.push(*failed),
                },
            }
        }
        answers
    }
}
