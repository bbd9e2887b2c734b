//! A key: as the terminal reports it, as the screen shows it, and as the settings name it.
#![forbid(unsafe_code)]

use std::{fmt, str::FromStr};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key as it is written in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub code: KeyCode,
    pub control: bool,
    /// Only for keys other than letters: a shifted letter is another letter.
    pub shift: bool,
}

pub(crate) const fn char(c: char) -> Key {
    Key { code: KeyCode::Char(c), control: false, shift: false }
}

pub(crate) const fn code(code: KeyCode) -> Key {
    Key { code, control: false, shift: false }
}

pub(crate) const fn control(c: char) -> Key {
    Key { code: KeyCode::Char(c), control: true, shift: false }
}

pub(crate) const fn shifted(code: KeyCode) -> Key {
    Key { code, control: false, shift: true }
}

impl From<KeyEvent> for Key {
    fn from(event: KeyEvent) -> Self {
        let moves = matches!(event.code, KeyCode::Left | KeyCode::Right);
        Self {
            code: event.code,
            control: event.modifiers.contains(KeyModifiers::CONTROL),
            shift: moves && event.modifiers.contains(KeyModifiers::SHIFT),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.control {
            f.write_str("Ctrl-")?;
        }
        if self.shift {
            f.write_str("Shift-")?;
        }
        match self.code {
            KeyCode::Char(' ') => f.write_str("Space"),
            KeyCode::Char(c) => write!(f, "{c}"),
            KeyCode::Up => f.write_str("↑"),
            KeyCode::Down => f.write_str("↓"),
            KeyCode::Left => f.write_str("←"),
            KeyCode::Right => f.write_str("→"),
            KeyCode::PageUp => f.write_str("PgUp"),
            KeyCode::PageDown => f.write_str("PgDn"),
            other => write!(f, "{other}"),
        }
    }
}

const NAMED: [(&str, KeyCode); 16] = [
    ("Space", KeyCode::Char(' ')),
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("Backspace", KeyCode::Backspace),
    ("Delete", KeyCode::Delete),
    ("Insert", KeyCode::Insert),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("BackTab", KeyCode::BackTab),
];

impl Key {
    /// The name in the settings, without signs that keyboards lack.
    pub fn written(self) -> String {
        let control = if self.control { "Ctrl-" } else { "" };
        let shift = if self.shift { "Shift-" } else { "" };
        let name = NAMED.iter().find(|(_, code)| *code == self.code).map(|(name, _)| (*name).to_owned());
        let name = name.unwrap_or_else(|| match self.code {
            KeyCode::Char(c) => c.to_string(),
            other => other.to_string(),
        });
        format!("{control}{shift}{name}")
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a key: write a letter, Space, Enter, Up, PgDn, F5, Ctrl-w or Shift-Left")
        };
        let (control, rest) = text.strip_prefix("Ctrl-").map_or((false, text), |rest| (true, rest));
        let (shift, rest) = rest.strip_prefix("Shift-").map_or((false, rest), |rest| (true, rest));
        let mut letters = rest.chars();
        let code = match (letters.next(), letters.next()) {
            (Some(c), None) if !c.is_control() && !c.is_whitespace() => KeyCode::Char(c),
            _ => {
                let named =
                    NAMED.iter().find(|(name, _)| name.eq_ignore_ascii_case(rest)).map(|(_, code)| *code);
                let function = || {
                    let number =
                        rest.strip_prefix('F')?.parse().ok().filter(|number| (1..=24).contains(number));
                    number.map(KeyCode::F)
                };
                named.or_else(function).ok_or_else(wrong)?
            }
        };
        // A terminal reports Shift only with these keys, and Ctrl only with letters.
        let shifts = matches!(code, KeyCode::Left | KeyCode::Right);
        let controls = matches!(code, KeyCode::Char(c) if c != ' ');
        if (shift && !shifts) || (control && !controls) {
            return Err(wrong());
        }
        Ok(Self { code, control, shift })
    }
}
