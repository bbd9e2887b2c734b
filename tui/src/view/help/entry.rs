//! The parts of the help page, line by line.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::{
    app::App,
    glyph,
    key::Key,
    keymap::Scope,
    palette::{Palette, Role},
    widget::wrap::wrapped,
};

/// Columns of a key, and of the blanks before it.
const KEY: usize = 14;
const INDENT: usize = 2;

/// Largest number of lines of one entry.
const LINES: usize = 3;

/// The uses of the mouse.
const MOUSE: [(&str, &str); 9] = [
    ("click", "a rank, a line: select it; again: same as Enter"),
    ("", "a word of the last line: same as its key"),
    ("", "a table header: sort by it; again: reverse"),
    ("", "a map's title: choose what the maps show"),
    ("", "a finding above the maps: all findings"),
    ("", "on a rank's page, a communicator or the worst rank: go there"),
    ("wheel", "through the list"),
    ("drag", "on a replay's timeline: go to that time"),
    ("", "drag over heatmaps over time: zoom in; Esc shows all"),
];

/// Related entries, under one head.
pub(super) struct Part {
    title: &'static str,
    pub(super) entries: Vec<Entry>,
}

/// The effect of one key.
pub(super) struct Entry {
    left: String,
    meaning: &'static str,
    role: Role,
}

impl Part {
    pub(super) fn lines(&self, width: usize, palette: Palette) -> Vec<Line<'static>> {
        let head = Line::styled(self.title, palette.of(Role::Strong));
        let entries = self.entries.iter().flat_map(|entry| entry.lines(width, palette));
        std::iter::once(head).chain(entries).collect()
    }
}

impl Entry {
    /// Whether it contains all these words, in lower case.
    pub(super) fn has_all(&self, words: &[String]) -> bool {
        let text = format!("{} {}", self.left, self.meaning).to_lowercase();
        words.iter().all(|word| text.contains(word))
    }

    fn lines(&self, width: usize, palette: Palette) -> Vec<Line<'static>> {
        let indent = INDENT + KEY.max(self.left.width() + 1);
        let wrapped_meaning = wrapped(self.meaning, width.saturating_sub(indent), LINES);
        let lines = wrapped_meaning.into_iter().enumerate().map(|(line, text)| {
            let left = if line == 0 { self.left.as_str() } else { "" };
            Line::from(vec![
                Span::raw(" ".repeat(INDENT)),
                Span::styled(left.to_owned(), palette.of(self.role)),
                Span::raw(" ".repeat(indent - INDENT - left.width())),
                Span::raw(text),
            ])
        });
        lines.collect()
    }
}

pub(super) fn joined(keys: &[Key], between: &str) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}

/// The keys of the shown view come first, and the meaning of the signs last, so that a low terminal shows the
/// keys.
pub(super) fn parts(app: &App) -> Vec<Part> {
    let first = [Scope::Page(app.page), Scope::Anywhere, Scope::List, Scope::Time];
    let others = Scope::all().filter(|scope| !first.contains(scope));
    let scopes = first.into_iter().chain(others);
    let keys = scopes.map(|scope| {
        let bindings = app.keymap.all().filter(|(binding, _)| binding.scope == scope);
        let entries = bindings.map(|(binding, keys)| Entry {
            left: joined(keys, "  "),
            meaning: binding.help,
            role: Role::Accent,
        });
        Part { title: scope.title(), entries: entries.collect() }
    });
    let mouse = MOUSE.map(|(left, meaning)| Entry { left: left.to_owned(), meaning, role: Role::Accent });
    let signs = [
        (glyph::LOW, Role::Warning, "5 % or more below the median rank"),
        (glyph::WARNING, Role::Warning, "late by more than 5 % of a step, or slow"),
        (glyph::STALE, Role::Warning, "no report for 5 s"),
        (glyph::ALARM, Role::Alarm, "died or unreachable"),
        (glyph::UNKNOWN, Role::Muted, "unknown"),
    ];
    let signs = signs.map(|(sign, role, meaning)| Entry { left: sign.to_owned(), meaning, role });
    let last =
        [Part { title: "Mouse", entries: mouse.into() }, Part { title: "Signs", entries: signs.into() }];
    keys.chain(last).collect()
}
