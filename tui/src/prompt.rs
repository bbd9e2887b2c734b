//! A line being typed: a filter, a command, a time. Other modules decide what the line is used for.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

/// Longest line; no terminal shows more.
const LONGEST: usize = 256;
/// Number of lines remembered of each kind.
const REMEMBERED: usize = 50;

/// The kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Filter,
    Command,
    /// The target time in a replay.
    Time,
    /// Words of the help page.
    Search,
}

/// The effect of a key on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    Type(char),
    /// The character before the cursor, the word, or the whole line.
    Erase,
    EraseWord,
    EraseLine,
    Left,
    Right,
    Home,
    End,
    /// The previous line, or the next one.
    Earlier,
    Later,
    /// Completes the word; if repeated, with the next completion.
    Complete,
    Enter,
    Cancel,
}

#[derive(Clone, Debug)]
pub struct Prompt {
    pub kind: Kind,
    text: String,
    /// Byte of the text.
    cursor: usize,
    /// How many lines back the shown one is, and the text typed before going back.
    back: usize,
    draft: String,
    choices: Option<Choices>,
}

/// A word's completions, one after the other.
#[derive(Clone, Debug)]
struct Choices {
    from: usize,
    words: Vec<String>,
    at: usize,
    rest: String,
}

impl Prompt {
    pub fn new(kind: Kind, text: &str) -> Self {
        let text: String = text.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        let cursor = text.len();
        Self { kind, text, cursor, back: 0, draft: String::new(), choices: None }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text before the cursor, and after it.
    pub fn halves(&self) -> (&str, &str) {
        self.text.split_at(self.cursor)
    }

    /// Completions of the last completed word, and the present one.
    pub fn choices(&self) -> Option<(&[String], usize)> {
        self.choices.as_ref().map(|choices| (&choices.words[..], choices.at))
    }

    fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    fn before(&self) -> Option<char> {
        self.text[..self.cursor].chars().next_back()
    }

    fn erase(&mut self) -> Option<char> {
        let gone = self.before()?;
        self.cursor -= gone.len_utf8();
        self.text.remove(self.cursor);
        Some(gone)
    }

    /// The effect of keys other than Enter, Esc and Tab.
    pub(crate) fn edit(&mut self, edit: &Edit, lines: &Lines) {
        self.choices = None;
        match edit {
            Edit::Type(c) if !c.is_control() && self.text.chars().count() < LONGEST => {
                self.text.insert(self.cursor, *c);
                self.cursor += c.len_utf8();
            }
            Edit::Erase => {
                self.erase();
            }
            Edit::EraseWord => {
                while self.before().is_some_and(char::is_whitespace) {
                    self.erase();
                }
                let word = self.before().is_some_and(char::is_alphanumeric);
                while self.before().is_some_and(|c| c.is_alphanumeric() == word && !c.is_whitespace()) {
                    self.erase();
                }
            }
            Edit::EraseLine => self.set(String::new()),
            Edit::Left => self.cursor -= self.before().map_or(0, char::len_utf8),
            Edit::Right => self.cursor += self.text[self.cursor..].chars().next().map_or(0, char::len_utf8),
            Edit::Home => self.cursor = 0,
            Edit::End => self.cursor = self.text.len(),
            Edit::Earlier => self.go_back(self.back + 1, lines),
            Edit::Later => self.go_back(self.back.saturating_sub(1), lines),
            Edit::Type(_) | Edit::Complete | Edit::Enter | Edit::Cancel => {}
        }
    }

    fn go_back(&mut self, to: usize, lines: &Lines) {
        if self.back == 0 {
            self.draft.clone_from(&self.text);
        }
        let line =
            if to == 0 { Some(self.draft.clone()) } else { lines.back(self.kind, to).map(str::to_owned) };
        if let Some(line) = line {
            self.back = to;
            self.set(line);
        }
    }

    /// The word before the cursor becomes the first of the completions in `known`, or the next one.
    pub(crate) fn complete(&mut self, known: impl Fn(&str) -> (usize, Vec<String>)) {
        let choices = if let Some(choices) = self.choices.take() {
            Choices { at: (choices.at + 1) % choices.words.len(), ..choices }
        } else {
            let (before, rest) = self.halves();
            let (from, words) = known(before);
            Choices { from, words, at: 0, rest: rest.to_owned() }
        };
        let Some(word) = choices.words.get(choices.at) else { return };
        self.text = format!("{}{word}{}", &self.text[..choices.from], choices.rest);
        self.cursor = choices.from + word.len();
        // A single completion is the intended one, so there is nothing to cycle through.
        self.choices = Some(choices).filter(|choices| choices.words.len() > 1);
    }
}

/// Earlier lines, the newest last.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    filters: VecDeque<String>,
    commands: VecDeque<String>,
}

impl Lines {
    pub(crate) fn keep(&mut self, kind: Kind, line: &str) {
        let line = line.trim();
        let Some(lines) = self.of_mut(kind).filter(|_| !line.is_empty()) else { return };
        lines.retain(|known| known != line);
        if lines.len() == REMEMBERED {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    fn of_mut(&mut self, kind: Kind) -> Option<&mut VecDeque<String>> {
        match kind {
            Kind::Filter => Some(&mut self.filters),
            Kind::Command => Some(&mut self.commands),
            Kind::Time | Kind::Search => None,
        }
    }

    pub(crate) fn of(&self, kind: Kind) -> impl DoubleEndedIterator<Item = &str> {
        let lines = match kind {
            Kind::Filter => Some(&self.filters),
            Kind::Command => Some(&self.commands),
            Kind::Time | Kind::Search => None,
        };
        lines.into_iter().flatten().map(String::as_str)
    }

    /// The line `by` before now; 1 is the last one.
    fn back(&self, kind: Kind, by: usize) -> Option<&str> {
        self.of(kind).rev().nth(by.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests;
