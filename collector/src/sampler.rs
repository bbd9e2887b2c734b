//! Samples what main threads do while GPUs wait for them. One process of this program runs at a time, within
//! a budget of CPU time.

use std::{
    collections::BTreeMap,
    io::{PipeReader, Read as _, pipe},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use xpu_wire::{
    codec,
    frame::{Body, MainThread},
    id::{JobName, Pid, Rank},
    unit::{Moment, Nanoseconds},
};

use crate::{
    roster::{Idling, Roster},
    stacks::{Reach, Target},
};

/// Share of a core that sampling may take, and CPU seconds that it may spend at once.
const BUDGET: f64 = 0.002;
const BURST: f64 = 1.0;

/// CPU seconds that sampling may spend in advance on ranks whose behaviour has changed. A new fault is then
/// sampled at once, even if all ranks were sampled just before.
const ADVANCE: f64 = 1.0;

/// Time after which a rank that could not be read is tried again.
const UNREADABLE: Duration = Duration::from_mins(10);

/// Minimum time between two samplings of a rank whose behaviour did not change.
const AGAIN: Duration = Duration::from_mins(1);

/// A sampling process that takes longer than this is killed.
const LIMIT: Duration = Duration::from_secs(40);

/// Number of ranks whose last sampling is remembered.
const KNOWN: usize = 4096;

#[derive(Debug)]
pub(crate) struct Sampler {
    /// This program.
    program: PathBuf,
    enabled: bool,
    running: Option<Run>,
    sampled: BTreeMap<Pid, Sampled>,
    credit: Credit,
}

/// The result of the last sampling of a process.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    /// When the process may be sampled again.
    next: Moment,
    is_readable: bool,
}

impl Sampled {
    fn new(is_readable: bool, now: Moment) -> Self {
        Self { next: now.after(if is_readable { AGAIN } else { UNREADABLE }), is_readable }
    }
}

/// CPU seconds that sampling may spend.
#[derive(Clone, Copy, Debug)]
struct Credit {
    seconds: f64,
    as_of: Moment,
}

impl Credit {
    fn accrue(&mut self, now: Moment) {
        let seconds = self.seconds + BUDGET * now.since(self.as_of).as_secs_f64();
        *self = Self { seconds: seconds.min(BURST), as_of: now };
    }
}

#[derive(Debug)]
struct Run {
    job: JobName,
    rank: Rank,
    pid: Pid,
    begun: Moment,
    child: Child,
    output: PipeReader,
}

impl Sampler {
    pub(crate) fn new(program: PathBuf, enabled: bool) -> Self {
        Self {
            program,
            enabled,
            running: None,
            sampled: BTreeMap::new(),
            credit: Credit { seconds: BURST, as_of: Moment::default() },
        }
    }

    /// Takes the result, and begins to sample the next rank. Never blocks.
    pub(crate) fn turn(&mut self, roster: &mut Roster, now: Moment) {
        if !self.enabled {
            return;
        }
        if let Some(run) = &mut self.running {
            let has_ended = !matches!(run.child.try_wait(), Ok(None));
            if !has_ended {
                if now.since(run.begun) > LIMIT {
                    let _ = run.child.kill();
                }
                return;
            }
            let (spent, seen) = run.result();
            let (job, rank, pid) = (run.job.clone(), run.rank, run.pid);
            self.running = None;
            self.credit.seconds -= spent.seconds();
            self.sampled.insert(pid, Sampled::new(seen.is_some(), now));
            if let Some(seen) = seen {
                roster.see_main_thread(&job, rank, pid, seen, now);
            }
        }
        self.credit.accrue(now);
        if self.credit.seconds <= -ADVANCE {
            return;
        }
        let has_credit = self.credit.seconds > 0.0;
        if self.sampled.len() > KNOWN {
            self.sampled.clear();
        }
        let idling =
            roster.idling(now).into_iter().filter(|Idling { is_sampled, has_settled, target, .. }| {
                let last = self.sampled.get(&target.pid);
                let has_changed = last.is_some_and(|last| last.is_readable && !is_sampled);
                let is_due = has_changed || (has_credit && last.is_none_or(|last| last.next <= now));
                target.reach == Reach::Here && *has_settled && is_due
            });
        if let Some(Idling { target, .. }) = idling.max_by(|one, other| {
            (!one.is_sampled).cmp(&!other.is_sampled).then(one.share.total_cmp(&other.share))
        }) {
            self.running = Run::start(&self.program, &target, now);
            if self.running.is_none() {
                self.sampled.insert(target.pid, Sampled::new(false, now));
            }
        }
    }
}

impl Run {
    fn start(program: &Path, target: &Target, now: Moment) -> Option<Self> {
        let (output, end) = pipe().ok()?;
        let child = Command::new(program)
            .arg0("xpu-collector")
            .args(["--sample-main-thread", &target.pid.to_string()])
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(end)
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let Target { job, rank, pid, .. } = target;
        Some(Self { job: job.clone(), rank: *rank, pid: *pid, begun: now, child, output })
    }

    /// The CPU time that the sampling took, and the samples. Reading the pipe does not block, because the
    /// process has ended.
    fn result(&mut self) -> (Nanoseconds, Option<MainThread>) {
        let mut bytes = Vec::new();
        let read = (&mut self.output).take(codec::LARGEST_FRAME as u64).read_to_end(&mut bytes);
        let Some(Body::Times(mut times)) =
            read.ok().and_then(|_| codec::decode(&bytes).ok()).map(|frame| frame.body)
        else {
            return (Nanoseconds(0), None);
        };
        times.ranks.pop().map_or((Nanoseconds(0), None), |times| (times.interval, times.main))
    }
}
