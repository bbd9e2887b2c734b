//! What is open over the page: help, a list to choose from, a line that is being typed.

use super::{Help, Picker};
use crate::{
    keymap::Scope,
    page::Page,
    prompt::{Lines, Prompt},
};

#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub help: Help,
    pub picker: Option<Picker>,
    pub prompt: Option<Prompt>,
    /// Lines that were typed before.
    pub lines: Lines,
}

impl Overlay {
    /// The scope whose keys are active over this page.
    pub(crate) fn scope(&self, page: Page) -> Scope {
        if self.prompt.is_some() {
            Scope::Prompt
        } else if self.picker.is_some() {
            Scope::Picker
        } else if self.help.is_open() {
            Scope::Help
        } else {
            Scope::Page(page)
        }
    }

    /// Whether neither help nor a list hides the page.
    pub(crate) fn is_clear(&self) -> bool {
        !self.help.is_open() && self.picker.is_none()
    }
}
