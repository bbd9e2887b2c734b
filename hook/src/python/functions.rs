//! Records Python functions and Python's garbage collector while a capture requests it.
//!
//! ```text
//! hook's thread                main thread of Python                      any thread of Python
//! begin ── Py_AddPendingCall ─▶ serve: watch.py attaches ── ON ─────────▶ enter, leave ─▶ lane's ring
//! end ──── Py_AddPendingCall ─▶ serve: watch.py detaches
//! ```
//!
//! The hook's thread never takes the interpreter's lock, so a hanging interpreter blocks nothing. The two
//! sides communicate through a few atomics.

pub(crate) mod api;
mod codes;
mod open;
mod serve;
mod tally;

use std::{
    ptr,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU32,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    time::{Duration, Instant},
};

use api::Python;
pub(crate) use api::look_for_python;
use serve::{ATTACHED, Report};
pub(crate) use tally::totals;
use xpu_wire::{
    endpoint::variable,
    frame::{CapturedLabel, FunctionKind, Tracing},
    functions::RequestedFunctions,
};

/// The functions that are always watched.
const BUILT_IN: [&str; 1] = ["torch.utils.data.dataloader@_BaseDataLoaderIter@__next__"];

/// Number of generations of Python's garbage collector, and the record number of the first one.
const GENERATIONS: u16 = 3;
const GENERATION: u16 = u16::MAX - GENERATIONS;

static ASKED: OnceLock<RequestedFunctions> = OnceLock::new();
static ALWAYS: AtomicBool = AtomicBool::new(false);

/// The requested recording, and the current one; 0 for none.
static WANTED: AtomicU32 = AtomicU32::new(0);
static ON: AtomicU32 = AtomicU32::new(0);

/// The last report of the main thread, until the hook's thread takes it.
static REPORT: AtomicPtr<Report> = AtomicPtr::new(ptr::null_mut());

/// Whether the main thread has a request that it has not reached yet.
static QUEUED: AtomicBool = AtomicBool::new(false);

/// Whether the main thread should search for functions that were imported since the last search.
static AGAIN: AtomicBool = AtomicBool::new(false);

/// While functions are recorded all the time, they are searched for again after this time, then each time
/// after twice as long, because a program may import modules late.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Reads the environment, and returns errors for invalid values.
pub(crate) fn set_from(value: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let Some(asked) = RequestedFunctions::of(value) else { return Vec::new() };
    let wrong = asked.wrong.clone();
    let _ = ASKED.set(asked);
    wrong
}

pub(crate) fn record_always() {
    ALWAYS.store(true, Relaxed);
}

pub(crate) fn are_always_recorded() -> bool {
    ALWAYS.load(Relaxed)
}

/// All watched functions by index: each is a module, and the names in it.
fn forms() -> impl Iterator<Item = &'static str> {
    let asked = ASKED.get().map_or(&[][..], |asked| &asked.functions);
    BUILT_IN.into_iter().chain(asked.iter().map(String::as_str))
}

fn kind(number: u16) -> FunctionKind {
    match usize::from(number) {
        _ if number >= GENERATION => FunctionKind::GarbageCollection,
        place if place < BUILT_IN.len() => FunctionKind::DataLoader,
        _ => FunctionKind::Named,
    }
}

/// The label of a record with this number.
pub(crate) fn label(number: u16) -> CapturedLabel {
    let kind = kind(number);
    let name = match kind {
        FunctionKind::GarbageCollection => format!("gc generation {}", number - GENERATION),
        FunctionKind::DataLoader | FunctionKind::Named | FunctionKind::Span => {
            forms().nth(number.into()).unwrap_or_default().replace('@', ".")
        }
    };
    CapturedLabel::Function { kind, name }
}

/// Ends recording in a forked child, where the functions stay attached.
pub(crate) fn forget() {
    WANTED.store(0, Relaxed);
    ON.store(0, Relaxed);
    REPORT.store(ptr::null_mut(), Relaxed);
    QUEUED.store(false, Relaxed);
    AGAIN.store(false, Relaxed);
    open::forget_dropped();
    tally::forget();
}

/// The state on the hook's thread.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// Number of recordings begun so far.
    begun: u32,
    on: bool,
    /// If functions are recorded all the time: when they were last searched for, and the time until the next
    /// search.
    looked: Option<(Instant, Duration)>,
    /// The report of the last recording.
    report: Option<Box<Report>>,
    impossible: Option<&'static str>,
    dropped_before: u64,
}

impl Functions {
    /// Begins a recording if functions are wanted all the time, and repeats a request that did not fit into
    /// Python's queue. Called at every turn of the hook's thread.
    pub(crate) fn look(&mut self) {
        self.listen();
        if ALWAYS.load(Relaxed) && !self.on {
            self.begin();
            self.looked = Some((Instant::now(), FIRST_PAUSE));
        } else if WANTED.load(Relaxed) != ATTACHED.load(Relaxed) {
            self.impossible = ask();
        } else if let Some((at, pause)) = &mut self.looked
            && at.elapsed() >= *pause
        {
            (*at, *pause) = (Instant::now(), LONGEST_PAUSE.min(*pause * 2));
            AGAIN.store(true, Relaxed);
            self.impossible = ask();
        }
    }

    /// Begins to record functions, now or shortly after.
    pub(crate) fn begin(&mut self) {
        if !self.on {
            self.begun += 1;
            (self.on, self.report, self.dropped_before) = (true, None, open::dropped());
            WANTED.store(self.begun, Relaxed);
            self.impossible = ask();
        }
    }

    /// Ends the recording.
    pub(crate) fn end(&mut self) {
        if self.on && !ALWAYS.load(Relaxed) {
            self.on = false;
            WANTED.store(0, Relaxed);
            ON.store(0, Relaxed);
            ask();
        }
    }

    /// The outcome for a capture whose first step began at `begin`, with `records` kept and `dropped` lost.
    pub(crate) fn outcome(&mut self, begin: u64, records: u64, dropped: u64) -> Tracing {
        self.listen();
        let refused = |why: String| Tracing::Refused { why };
        match &self.report {
            _ if !self.on => refused("they were requested too late".to_owned()),
            None => refused(
                self.impossible
                    .unwrap_or("Python's main thread executed no Python code in that time")
                    .to_owned(),
            ),
            Some(report) if !report.refused.is_empty() => refused(report.refused.clone()),
            Some(report) if report.at > begin => refused(format!(
                "Python's main thread attached them {} ms after the first step began; what ran before is missing",
                (report.at - begin).div_ceil(1_000_000)
            )),
            Some(_) => {
                let dropped = dropped + open::dropped() - self.dropped_before;
                Tracing::Recorded { records, dropped }
            }
        }
    }

    /// The requested functions that are missing, by the last recording.
    pub(crate) fn complaint(&self) -> Option<String> {
        let missing = &self.report.as_ref().filter(|report| !report.missing.is_empty())?.missing;
        let variable = ASKED.get().map_or(variable::FUNCTIONS, |asked| asked.variable);
        Some(format!("{variable}: {} not recorded: {}", missing.len(), missing.join("; ")))
    }

    fn listen(&mut self) {
        let at = REPORT.swap(ptr::null_mut(), AcqRel);
        if at.is_null() {
            return;
        }
        // SAFETY: `serve` made the pointer by `Box::into_raw`, and after the swap only this thread has it.
        let report = unsafe { Box::from_raw(at) };
        if report.begun == self.begun {
            self.report = Some(report);
        }
    }
}

/// Makes Python's main thread check the request. If that is impossible, returns the reason.
fn ask() -> Option<&'static str> {
    let Some(python) = Python::find() else { return Some("there is no CPython in this process") };
    if let Err(why) = python.is_supported() {
        return Some(why);
    }
    if !QUEUED.swap(true, AcqRel) && !python.call_soon(serve::serve) {
        QUEUED.store(false, Relaxed);
    }
    None
}

/// The number of the current recording, if anything is recorded now.
#[inline]
fn on() -> Option<u32> {
    Some(ON.load(Acquire)).filter(|&begun| begun != 0)
}

#[cfg(test)]
mod tests;
