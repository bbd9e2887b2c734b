//! Searches for the moments at which findings begin: a thread folds the whole recording, and computes
//! findings second by second.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use xpu_model::{
    finding::{self, Class, Kind},
    job::Jobs,
};
use xpu_recording::{FrameCursor, Span};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use crate::playback::Mark;

/// Interval, in recorded time, of computing findings.
const EVERY: Duration = Duration::from_secs(1);

/// A finding that occurs again after this time counts as a new one.
const OVER: Duration = Duration::from_secs(30);

/// Largest number of marks of one recording.
const MOST: usize = 4096;

/// The thread's handle; it ends when this is dropped.
#[derive(Debug)]
pub struct Search {
    /// search --marks up to a moment--> watch
    found: mpsc::Receiver<(Vec<Mark>, Moment)>,
    gate: Arc<Gate>,
}

impl Search {
    pub fn begin(mut cursor: FrameCursor) -> Self {
        let (sender, found) = mpsc::sync_channel(64);
        let gate = Arc::new(Gate::default());
        let passed = Arc::clone(&gate);
        thread::spawn(move || {
            // The player reports unreadable files.
            let _ = findings_between(&mut cursor, |marks, at| {
                passed.pass();
                sender.send((marks, at)).is_ok()
            });
        });
        Self { found, gate }
    }

    /// Pauses the search until the guard is dropped, because a redraw is due, and on two cores the search
    /// would take one of them.
    pub fn rest(&self) -> Rest {
        *self.gate.keepers() += 1;
        Rest { gate: Arc::clone(&self.gate) }
    }

    /// The results since the last call.
    pub fn news(&self) -> impl Iterator<Item = (Vec<Mark>, Moment)> {
        self.found.try_iter()
    }
}

/// A gate that the search passes before each recorded second.
#[derive(Debug, Default)]
struct Gate {
    /// The number of guards that keep it closed.
    keepers: Mutex<usize>,
    opened: Condvar,
}

impl Gate {
    fn keepers(&self) -> MutexGuard<'_, usize> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.keepers(), |keepers| *keepers > 0));
    }
}

/// A guard; the search is paused while any exists.
#[derive(Debug)]
pub struct Rest {
    gate: Arc<Gate>,
}

impl Drop for Rest {
    fn drop(&mut self) {
        *self.gate.keepers() -= 1;
        self.gate.opened.notify_all();
    }
}

/// Reports new findings, and the time examined so far, until there is no receiver.
pub fn findings_between(
    cursor: &mut FrameCursor,
    mut report: impl FnMut(Vec<Mark>, Moment) -> bool,
) -> io::Result<()> {
    let Span { first, last } = cursor.span();
    let mut jobs = Jobs::default();
    let mut seen: BTreeMap<(JobName, Kind, Class, Vec<Rank>), Moment> = BTreeMap::new();
    let (mut at, mut marks) = (first, 0);
    loop {
        while let Some((_, frame)) = cursor.next(at)? {
            jobs.fold(&frame);
        }
        let mut new = Vec::new();
        for job in jobs.iter() {
            for finding in finding::examine(job, at) {
                let what = (job.name().clone(), finding.kind, finding.class, finding.ranks.clone());
                let before = seen.insert(what, at);
                if before.is_none_or(|before| at.since(before) > OVER) && marks < MOST {
                    marks += 1;
                    new.push(Mark { at, job: job.name().clone(), finding });
                }
            }
        }
        seen.retain(|_, &mut before| at.since(before) <= OVER);
        if !report(new, at) || at >= last {
            return Ok(());
        }
        at = at.after(EVERY).min(last);
    }
}
