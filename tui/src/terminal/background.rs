//! Whether the terminal's background is dark or light, by its own answer (OSC 11).

use std::{
    io::{IsTerminal as _, stdin, stdout},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use crossterm::event::{Event, KeyCode, KeyModifiers};
use terminal_colorsaurus::{Error, QueryOptions, background_color};

use crate::palette::Theme;

/// Time limit for the answer. Terminals without OSC 11 answer at once too, because the query ends with a
/// request that every terminal answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longest answer, counted in the keys as which crossterm reads it.
const LONGEST: usize = 40;

/// Lowest perceived lightness at which a background counts as light.
const LIGHT: f32 = 0.5;

/// Whether the terminal has not answered in time, so that a later answer must not be read as keys.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// The theme for the terminal's background; `None` if there is no terminal or no answer. Asked before the
/// screen is taken over, because the answer arrives on the same input as keys.
pub fn theme() -> Option<Theme> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return None;
    }
    let mut options = QueryOptions::default();
    options.timeout = PATIENCE;
    match background_color(options) {
        Ok(ground) if ground.perceived_lightness() > LIGHT => Some(Theme::Light),
        Ok(_) => Some(Theme::Dark),
        Err(error) => {
            IS_LATE.store(matches!(error, Error::Timeout(_)), SeqCst);
            None
        }
    }
}

/// Removes a late answer from the input, which would otherwise be read as keys.
#[derive(Debug, Default)]
pub(super) struct LateAnswer {
    /// Number of keys of the answer that have arrived; `None` outside of an answer.
    inside: Option<usize>,
}

impl LateAnswer {
    /// Whether an answer may still arrive.
    pub(super) fn is_awaited() -> bool {
        IS_LATE.load(SeqCst)
    }

    /// Whether this key is part of an answer: `ESC ]` to `ESC \` or to `BEL`, as crossterm reads them.
    pub(super) fn has(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return false };
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match (self.inside, key.code) {
            (None, KeyCode::Char(']')) if alt => self.inside = Some(1),
            (None, _) => return false,
            (Some(_), KeyCode::Char('\\')) if alt => self.inside = None,
            (Some(_), KeyCode::Char('g')) if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.inside = None;
            }
            (Some(LONGEST), _) => self.inside = None,
            (Some(keys), _) => self.inside = Some(keys + 1),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;

    use super::*;

    fn keys(text: &str, modifiers: KeyModifiers) -> Vec<Event> {
        text.chars().map(|letter| Event::Key(KeyEvent::new(KeyCode::Char(letter), modifiers))).collect()
    }

    #[test]
    fn a_late_answer_is_no_key_but_what_follows_is() {
        for end in [keys("\\", KeyModifiers::ALT), keys("g", KeyModifiers::CONTROL)] {
            let mut late = LateAnswer::default();
            let mut events = keys("j", KeyModifiers::NONE);
            events.extend(keys("]", KeyModifiers::ALT));
            events.extend(keys("11;rgb:ffff/ffff/ffff", KeyModifiers::NONE));
            events.extend(end);
            events.extend(keys("q", KeyModifiers::NONE));
            events.retain(|event| !late.has(event));
            assert_eq!(events, keys("jq", KeyModifiers::NONE));
        }
    }

    #[test]
    fn an_answer_without_an_end_does_not_take_all_keys() {
        let mut late = LateAnswer::default();
        let mut events = keys("]", KeyModifiers::ALT);
        events.extend(keys(&"r".repeat(LONGEST + 5), KeyModifiers::NONE));
        events.retain(|event| !late.has(event));
        assert_eq!(events.len(), 5);
    }
}
