//! Python functions, and its garbage collector, recorded while a capture wants them.
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
use serve::{ATTACHED, Said};
pub(crate) use tally::totals;
use xpu_wire::{
    endpoint::variable,
    frame::{CapturedLabel, FunctionKind, Tracing},
    functions::Asked,
};

/// Always watched.
const BUILT_IN: [&str; 1] = ["torch.utils.data.dataloader@_BaseDataLoaderIter@__next__"];

/// Python's garbage collector has this many generations; they come after the functions.
const GENERATIONS: u16 = 3;
const GENERATION: u16 = u16::MAX - GENERATIONS;

static ASKED: OnceLock<Asked> = OnceLock::new();
static ALWAYS: AtomicBool = AtomicBool::new(false);

/// The requested recording, and the present one; 0 for none.
static WANTED: AtomicU32 = AtomicU32::new(0);
static ON: AtomicU32 = AtomicU32::new(0);

/// The main thread's last report, until the hook's thread takes it.
static SAID: AtomicPtr<Said> = AtomicPtr::new(ptr::null_mut());

/// The main thread was asked, and has not reached it yet.
static QUEUED: AtomicBool = AtomicBool::new(false);

/// The main thread should look for later imports.
static AGAIN: AtomicBool = AtomicBool::new(false);

/// While they are recorded all the time, they are searched for again after this long, then after twice as
/// long each time: modules are imported when the program reaches them.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Reads the environment, and returns errors for what is invalid.
pub(crate) fn set_from(value: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let Some(asked) = Asked::of(value) else { return Vec::new() };
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

/// All watched functions by index: a module, and the names in it.
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

/// In a forked child: its parent's attached functions stay there, and record nothing.
pub(crate) fn forget() {
    WANTED.store(0, Relaxed);
    ON.store(0, Relaxed);
    SAID.store(ptr::null_mut(), Relaxed);
    QUEUED.store(false, Relaxed);
    AGAIN.store(false, Relaxed);
    open::forget_dropped();
    tally::forget();
}

/// The state of the hook's thread.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// Recordings begun so far.
    begun: u32,
    on: bool,
    /// When functions recorded all the time were last searched for, and the time until the next search.
    looked: Option<(Instant, Duration)>,
    /// The report of the last recording.
    said: Option<Box<Said>>,
    impossible: Option<&'static str>,
    dropped_before: u64,
}

impl Functions {
    /// At every turn of the hook's thread: functions may be wanted all the time, and a request to Python may
    /// not have fitted.
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

    /// Begins recording functions, now or shortly after.
    pub(crate) fn begin(&mut self) {
        if !self.on {
            self.begun += 1;
            (self.on, self.said, self.dropped_before) = (true, None, open::dropped());
            WANTED.store(self.begun, Relaxed);
            self.impossible = ask();
        }
    }

    /// Restores everything.
    pub(crate) fn end(&mut self) {
        if self.on && !ALWAYS.load(Relaxed) {
            self.on = false;
            WANTED.store(0, Relaxed);
            ON.store(0, Relaxed);
            ask();
        }
    }

    /// The outcome in a capture whose first step began at `begin`, with `records` kept and `dropped` lost.
    pub(crate) fn outcome(&mut self, begin: u64, records: u64, dropped: u64) -> Tracing {
        self.listen();
        let refused = |why: String| Tracing::Refused { why };
        match &self.said {
            _ if !self.on => refused("they were requested too late".to_owned()),
            None => refused(
                self.impossible
                    .unwrap_or("Python's main thread executed no Python code in that time")
                    .to_owned(),
            ),
            Some(said) if !said.refused.is_empty() => refused(said.refused.clone()),
            Some(said) if said.at > begin => refused(format!(
                "Python's main thread attached them {} ms after the first step began; what ran before is missing",
                (said.at - begin).div_ceil(1_000_000)
            )),
            Some(_) => {
                let dropped = dropped + open::dropped() - self.dropped_before;
                Tracing::Recorded { records, dropped }
            }
        }
    }

    /// Requested functions that are missing, by the last recording.
    pub(crate) fn complaint(&self) -> Option<String> {
        let missing = &self.said.as_ref().filter(|said| !said.missing.is_empty())?.missing;
        let variable = ASKED.get().map_or(variable::FUNCTIONS, |asked| asked.variable);
        Some(format!("{variable}: {} not recorded: {}", missing.len(), missing.join("; ")))
    }

    fn listen(&mut self) {
        let at = SAID.swap(ptr::null_mut(), AcqRel);
        if at.is_null() {
            return;
        }
        // SAFETY: what stands there was made by `Box::into_raw` in `serve`, and the swap made it this thread's alone.
        let said = unsafe { Box::from_raw(at) };
        if said.begun == self.begun {
            self.said = Some(said);
        }
    }
}

/// Makes Python's main thread check the request. Returns the reason if that is impossible.
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

/// Whether anything is recorded now, and by which recording.
#[inline]
fn on() -> Option<u32> {
    Some(ON.load(Acquire)).filter(|&begun| begun != 0)
}

#[cfg(test)]
mod tests;
