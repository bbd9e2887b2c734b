//! Messages to the user that are not about the job.

use std::{collections::VecDeque, time::Duration};

use xpu_wire::unit::Moment;

/// Warnings kept; the oldest are dropped.
const WARNINGS: usize = 16;

/// How long the invitation is shown. It disappears after a while, because findings need the space more.
const INVITED: Duration = Duration::from_secs(30);

/// The result of the last key, for the footer; the next key clears it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Done(String),
    Failed(String),
}

#[derive(Debug, Default)]
pub(crate) struct Messages {
    note: Option<Note>,
    warnings: VecDeque<String>,
    invitation: Option<Invitation>,
}

/// How to watch from another terminal, until this moment.
#[derive(Debug)]
struct Invitation {
    text: String,
    until: Moment,
}

impl Messages {
    pub(crate) fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    pub(crate) fn set_note(&mut self, note: Note) {
        self.note = Some(note);
    }

    pub(crate) fn done(&mut self, what: impl Into<String>) {
        self.set_note(Note::Done(what.into()));
    }

    pub(crate) fn failed(&mut self, why: impl Into<String>) {
        self.set_note(Note::Failed(why.into()));
    }

    pub(crate) fn clear_note(&mut self) {
        self.note = None;
    }

    /// The warnings, the oldest first.
    pub(crate) fn warnings(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.warnings.iter().map(String::as_str)
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if self.warnings.len() == WARNINGS {
            self.warnings.pop_front();
        }
        self.warnings.push_back(warning);
    }

    /// Replaces all warnings by these.
    pub(crate) fn warn_only(&mut self, warnings: Vec<String>) {
        self.warnings.clear();
        for warning in warnings {
            self.warn(warning);
        }
    }

    /// Shows for a while how to watch from another terminal.
    pub(crate) fn invite(&mut self, text: String, now: Moment) {
        self.invitation = Some(Invitation { text, until: now.after(INVITED) });
    }

    pub(crate) fn invitation(&self, now: Moment) -> Option<&str> {
        let invitation = self.invitation.as_ref().filter(|invitation| now < invitation.until);
        invitation.map(|invitation| invitation.text.as_str())
    }
}
