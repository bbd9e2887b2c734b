//! The help page, which opens over another page: its scroll position, and the words searched in it.

use crate::{action::Motion, keymap::BINDINGS, page::LINES};

#[derive(Debug, Default)]
pub(crate) struct Help {
    is_open: bool,
    /// Lines by which it is scrolled.
    from: usize,
    /// The words that its lines must contain.
    sought: String,
}

impl Help {
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn from(&self) -> usize {
        self.from
    }

    pub(crate) fn sought(&self) -> &str {
        &self.sought
    }

    /// Opens it from its first line on, or closes it.
    pub(crate) fn turn(&mut self) {
        *self = Self { is_open: !self.is_open, ..Self::default() };
    }

    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// Drops the searched words, or closes it if there are none.
    pub(crate) fn undo(&mut self) {
        if self.sought.is_empty() {
            self.close();
        } else {
            self.sought.clear();
        }
    }

    /// Searches these words, from the first line on.
    pub(crate) fn seek(&mut self, words: &str) {
        words.trim().clone_into(&mut self.sought);
        self.from = 0;
    }

    pub(crate) fn travel(&mut self, motion: Motion) {
        // The number of lines is known only when drawing.
        self.from = motion.from(self.from, 2 * BINDINGS.len(), LINES);
    }
}
