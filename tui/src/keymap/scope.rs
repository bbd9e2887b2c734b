//! The scopes in which keys have their meanings.

use crate::page::Page;

/// A scope in which a key has its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Anywhere,
    /// In every view that lists something.
    List,
    /// On every page, but not in help and lists to choose from, where these keys scroll or choose.
    Time,
    Page(Page),
    Help,
    /// In a list to choose from.
    Picker,
    /// While a line is being typed: a filter, a command, a time.
    Prompt,
}

impl Scope {
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Anywhere, Self::List, Self::Time].into_iter().chain(Page::ALL.map(Self::Page)).chain([
            Self::Help,
            Self::Picker,
            Self::Prompt,
        ])
    }

    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anywhere => "anywhere",
            Self::List => "lists",
            Self::Time => "time",
            Self::Page(page) => page.name(),
            Self::Help => "help",
            Self::Picker => "picker",
            Self::Prompt => "line",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Anywhere => "Anywhere",
            Self::List => "Lists",
            Self::Time => "Time",
            Self::Page(page) => page.view().about().title,
            Self::Help => "This page",
            Self::Picker => "A list to choose from",
            Self::Prompt => "A line being typed",
        }
    }

    pub(super) fn is_list(self) -> bool {
        match self {
            Self::Page(page) => page.view().has_list_keys(),
            Self::Help | Self::Picker => true,
            Self::Anywhere | Self::List | Self::Time | Self::Prompt => false,
        }
    }

    pub(super) fn has_time(self) -> bool {
        matches!(self, Self::Page(_))
    }
}
