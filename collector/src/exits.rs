//! Handles failed ranks: finds from their notes where a signal struck, and runs the user's plugins.
//!
//! ```text
//! departure ─▶ native frames, failed kernel: by separate processes ─▶ report ─▶ viewers
//!                                                                      └──▶ each plugin, in a separate process
//! ```

mod child_task;
mod context;
mod crash;
mod gpu_core;
mod memory;
mod plugin;
mod status;

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use xpu_wire::{
    frame::{Ending, RankExit},
    ledger::FaultReading,
};

pub(crate) use child_task::ChildTask;
pub(crate) use context::ProcessContext;
pub use crash::read as read_crash;
pub use gpu_core::read as read_gpu_core;
pub(crate) use memory::{KillCounts, MemoryKills};
use plugin::Plugin;
pub(crate) use plugin::report;
pub(crate) use status::{ExitStatus, ExitWatch};

use crate::stacks::CrashFrame;

/// Time limit of one reading. A reading searches the symbols of large libraries, or reads a core dump of up
/// to some hundred MB.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Number of simultaneous processes of each kind.
const AT_ONCE: usize = 4;

/// Reports that wait for a plugin: if a thousand ranks end at once, a user does not need a thousand mails.
const WAITING: usize = 256;

/// A rank that ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Departure {
    pub report: RankExit,
    /// The note of its fatal signal, from which `frames` are determined.
    pub fault: Option<FaultReading>,
    /// The frames at a fatal signal, outermost first; empty until the note was read.
    pub frames: Vec<CrashFrame>,
    pub context: ProcessContext,
}

/// The reading in progress for a departure.
#[derive(Debug)]
enum Reading {
    Crash(ChildTask),
    Core(ChildTask),
}

impl Reading {
    /// Starts the departure's next reading, if one is left.
    fn begin(program: &Path, departure: &mut Departure, now: Instant) -> Option<Self> {
        let deadline = now + READ_LIMIT;
        let crash = departure.fault.take().and_then(|fault| crash::task(program, &fault, deadline));
        crash.map(Self::Crash).or_else(|| {
            let file = departure.context.gpu_core.take()?;
            gpu_core::task(program, &file, deadline).map(Self::Core)
        })
    }

    fn task(&mut self) -> &mut ChildTask {
        let (Self::Crash(task) | Self::Core(task)) = self;
        task
    }

    /// Adds the reading's result to the departure.
    fn complete(&self, departure: &mut Departure, said: &[u8]) {
        match self {
            Self::Crash(_) => {
                if let Ending::Signal(signal) = &mut departure.report.ending {
                    departure.frames = crash::frames(said);
                    signal.frames = departure.frames.iter().map(|at| at.frame.clone()).collect();
                }
            }
            Self::Core(_) => departure.report.kernel = gpu_core::kernel(said),
        }
    }
}

/// All work in progress.
#[derive(Debug)]
pub(crate) struct Exits {
    /// The program that reads a crash note: this one.
    program: PathBuf,
    waiting: VecDeque<Departure>,
    reading: Vec<(Reading, Departure)>,
    calls: VecDeque<Plugin>,
    running: Vec<(ChildTask, Plugin)>,
    /// Killed processes that are not gone yet. They count towards the limit.
    dying: Vec<ChildTask>,
}

impl Exits {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            waiting: VecDeque::new(),
            reading: Vec::new(),
            calls: VecDeque::new(),
            running: Vec::new(),
            dying: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, departure: Departure) {
        self.waiting.push_back(departure);
    }

    pub(crate) fn is_busy(&self) -> bool {
        !(self.waiting.is_empty()
            && self.reading.is_empty()
            && self.calls.is_empty()
            && self.running.is_empty())
    }

    /// Takes finished work, and starts waiting work. Returns complete reports. Never blocks.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<RankExit> {
        let mut whole = Vec::new();
        self.dying.retain_mut(|task| !task.is_gone());
        for (mut reading, mut departure) in std::mem::take(&mut self.reading) {
            let Some(outcome) = reading.task().turn(now) else {
                self.reading.push((reading, departure));
                continue;
            };
            reading.complete(&mut departure, &outcome.said);
            // The departure may need another reading.
            self.waiting.push_front(departure);
            let (Reading::Crash(mut task) | Reading::Core(mut task)) = reading;
            self.dying.extend((!task.is_gone()).then_some(task));
        }
        while self.reading.len() + self.dying.len() < AT_ONCE
            && let Some(mut departure) = self.waiting.pop_front()
        {
            match Reading::begin(&self.program, &mut departure, now) {
                Some(reading) => self.reading.push((reading, departure)),
                None => whole.push(departure),
            }
        }
        for departure in &whole {
            let free = WAITING - self.calls.len();
            self.calls.extend(plugin::of(departure).into_iter().take(free));
        }
        self.run_plugins(now);
        whole.into_iter().map(|departure| departure.report).collect()
    }

    fn run_plugins(&mut self, now: Instant) {
        for (mut task, plugin) in std::mem::take(&mut self.running) {
            match task.turn(now) {
                Some(outcome) => {
                    plugin.log(&outcome);
                    self.dying.extend((!task.is_gone()).then_some(task));
                }
                None => self.running.push((task, plugin)),
            }
        }
        while self.running.len() + self.dying.len() < AT_ONCE
            && let Some(plugin) = self.calls.pop_front()
        {
            match plugin.start(now) {
                Ok(task) => self.running.push((task, plugin)),
                Err(why) => tracing::warn!("exit plugin {}: {why}", plugin.name()),
            }
        }
    }
}
