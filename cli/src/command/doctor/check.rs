//! The result of one check.

use serde::Serialize;

/// Letters of the longest name.
const WIDTH: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Ok,
    /// The checked part works, but less is visible.
    Warn,
    /// The checked part does not work.
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) state: State,
    /// What was found.
    pub(super) found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), remedy: None }
    }

    pub(super) fn warn(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn fail(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn text(&self) -> String {
        let word = match self.state {
            State::Ok => "ok  ",
            State::Warn => "note",
            State::Fail => "FAIL",
        };
        let Self { name, found, .. } = self;
        // The remedy is aligned below the result.
        let margin = " ".repeat(word.len() + 2 + WIDTH + 2);
        let remedy = self.remedy.as_ref().map_or_else(String::new, |remedy| format!("{margin}-> {remedy}\n"));
        format!("{word}  {name:WIDTH$}  {found}\n{remedy}")
    }
}
