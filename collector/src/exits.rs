//! Ranks that ended, and not well: where it struck is read from what they left, and the user's plugins are told.
//!
//! ```text
//! departure ─▶ native frames, by a process of its own ─▶ report ─▶ viewers
//!                                                          └──▶ each plugin, in a process of its own
//! ```

mod crash;
mod errand;
mod memory;
mod plugin;
mod status;
mod surroundings;

use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, Instant},
};

use xpu_shared::{
    frame::{Ending, RankExit},
    ledger::FaultReading,
};

pub use crash::read as read_crash;
use errand::Errand;
pub(crate) use memory::MemoryKills;
use plugin::Plugin;
pub(crate) use status::{ExitStatus, ExitWatch};
pub(crate) use surroundings::Surroundings;

/// How long telling where a signal struck may take: the symbols of large libraries are gone through.
const CRASH_LIMIT: Duration = Duration::from_secs(10);

/// Processes at the same time, of each sort.
const AT_ONCE: usize = 4;

/// Reports that wait for a plugin's turn; of a thousand ranks that end at once a user needs no thousand mails.
const WAITING: usize = 256;

/// A rank that ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Departure {
    pub report: RankExit,
    /// What tells where it was.
    pub fault: Option<FaultReading>,
    pub surroundings: Surroundings,
}

/// All that is under way.
#[derive(Debug)]
pub(crate) struct Exits {
    /// The program that reads what a crash left: this one.
    program: PathBuf,
    waiting: VecDeque<Departure>,
    reading: Vec<(Errand, Departure)>,
    calls: VecDeque<Plugin>,
    running: Vec<(Errand, Plugin)>,
    /// Killed, and not gone yet: they count among those at the same time.
    dying: Vec<Errand>,
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

    /// Takes what is done, starts what waits. Gives the reports that are whole. Never blocks.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<RankExit> {
        let mut whole = Vec::new();
        self.dying.retain_mut(|errand| !errand.is_gone());
        for (mut errand, mut departure) in std::mem::take(&mut self.reading) {
            let Some(outcome) = errand.turn(now) else {
                self.reading.push((errand, departure));
                continue;
            };
            if let Ending::Signal(signal) = &mut departure.report.ending {
                signal.frames = crash::frames(&outcome.said);
            }
            whole.push(departure);
            self.dying.extend((!errand.is_gone()).then_some(errand));
        }
        while self.reading.len() + self.dying.len() < AT_ONCE
            && let Some(mut departure) = self.waiting.pop_front()
        {
            match departure
                .fault
                .take()
                .and_then(|fault| crash::errand(&self.program, &fault, now + CRASH_LIMIT))
            {
                Some(errand) => self.reading.push((errand, departure)),
                None => whole.push(departure),
            }
        }
        for departure in &whole {
            let room = WAITING - self.calls.len();
            self.calls.extend(plugin::of(departure).into_iter().take(room));
        }
        self.run_plugins(now);
        whole.into_iter().map(|departure| departure.report).collect()
    }

    fn run_plugins(&mut self, now: Instant) {
        for (mut errand, plugin) in std::mem::take(&mut self.running) {
            match errand.turn(now) {
                Some(outcome) => {
                    plugin.log(&outcome);
                    self.dying.extend((!errand.is_gone()).then_some(errand));
                }
                None => self.running.push((errand, plugin)),
            }
        }
        while self.running.len() + self.dying.len() < AT_ONCE
            && let Some(plugin) = self.calls.pop_front()
        {
            match plugin.start(now) {
                Ok(errand) => self.running.push((errand, plugin)),
                Err(why) => tracing::warn!("exit plugin {}: {why}", plugin.name()),
            }
        }
    }
}
