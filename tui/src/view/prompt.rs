//! The line being typed, and below it the error or the effect.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Modifier,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_client::{
    filter::{Fault, Filter},
    time,
};
use xpu_model::figure;

use super::help;
use crate::{
    app::App,
    glyph,
    palette::Role,
    prompt::{Kind, Prompt},
    prompt_command,
    widget::{ends, wrap::cut_at_word},
};

/// Number of its lines; the footer takes one of them.
pub(super) const HEIGHT: u16 = 2;

pub(super) fn draw(app: &App, prompt: &Prompt, area: Rect, buffer: &mut Buffer) {
    let line = Rect { height: 1, ..area };
    let under = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let sign = match prompt.kind {
        Kind::Filter | Kind::Search => "/ ",
        Kind::Command => ": ",
        Kind::Time => "go to ",
    };
    let palette = app.palette;
    buffer.set_string(line.x, line.y, sign, palette.of(Role::Accent).patch(palette.of(Role::Strong)));
    let indent = sign.width() as u16;
    let text = Rect { x: line.x + indent, width: line.width.saturating_sub(indent), ..line };
    let hidden = typed(app, prompt, text, buffer);
    if under.is_empty() {
        return;
    }
    if let Some((words, at)) = prompt.choices() {
        choices(app, words, at, under, buffer);
    } else if let Some(fault) = fault(prompt) {
        let column = (fault.column(prompt.text()) + sign.width()).saturating_sub(hidden);
        point(app, &fault.what, column, under, buffer);
    } else {
        let (left, right) = effect(app, prompt);
        ends::draw(&left, &Line::styled(right, palette.of(Role::Muted)), under, buffer);
    }
}

/// Draws the text with its cursor, as much as fits. Returns the number of hidden columns on the left.
fn typed(app: &App, prompt: &Prompt, area: Rect, buffer: &mut Buffer) -> usize {
    let strong = app.palette.of(Role::Strong);
    let (before, after) = prompt.halves();
    let space = usize::from(area.width).saturating_sub(2);
    let mut from = 0;
    while before[from..].width() > space {
        from += before[from..].chars().next().map_or(1, char::len_utf8);
    }
    let under = after.chars().next().map_or(" ", |c| &after[..c.len_utf8()]);
    let rest = after.strip_prefix(under).unwrap_or_default();
    let line = Line::from(vec![
        Span::styled(&before[from..], strong),
        Span::styled(under, strong.add_modifier(Modifier::REVERSED)),
        Span::styled(rest, strong),
    ]);
    buffer.set_line(area.x, area.y, &line, area.width);
    before[..from].width()
}

/// The error in the present line. An empty line is no error.
fn fault(prompt: &Prompt) -> Option<Fault> {
    let text = prompt.text();
    if text.trim().is_empty() {
        return None;
    }
    match prompt.kind {
        Kind::Filter => Filter::read(text).err(),
        Kind::Command => {
            // The text may still become a name.
            let begun = prompt_command::names().iter().any(|name| name.starts_with(text.trim_start()));
            prompt_command::read(text).err().filter(|_| !begun)
        }
        Kind::Time | Kind::Search => None,
    }
}

/// A caret under the error, and what was expected there: after the caret, or before it if there is no room.
fn point(app: &App, what: &str, column: usize, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let column = column.min(width.saturating_sub(1));
    let style = app.palette.of(Role::Alarm);
    let (needed, after) = (what.width() + 2, width - column);
    let (x, text) = if needed <= after {
        (column, format!("{} {what}", glyph::CARET))
    } else if needed <= column + 1 {
        (column + 1 - needed, format!("{what} {}", glyph::CARET))
    } else {
        // The text is cut to fit, because the line above shows the position.
        (0, format!("{} {}", glyph::CARET, cut_at_word(what, width.saturating_sub(2))))
    };
    buffer.set_stringn(area.x + x as u16, area.y, text, width - x, style);
}

/// A word's completions, and the present one.
fn choices(app: &App, words: &[String], at: usize, area: Rect, buffer: &mut Buffer) {
    let mut line = Line::default();
    // The chosen one is always visible.
    let taken = |from: usize| words[from..=at].iter().map(|word| word.width() + 2).sum::<usize>();
    let first = (0..=at).find(|&from| taken(from) <= usize::from(area.width)).unwrap_or(at);
    for (index, word) in words.iter().enumerate().skip(first) {
        let style = if index == at { app.palette.selected() } else { app.palette.of(Role::Muted) };
        line.push_span(Span::styled(word.as_str(), style));
        line.push_span(Span::raw("  "));
    }
    buffer.set_line(area.x, area.y, &line, area.width);
}

/// The effect of the present line, and useful keys.
fn effect(app: &App, prompt: &Prompt) -> (Line<'static>, &'static str) {
    let muted = app.palette.of(Role::Muted);
    match prompt.kind {
        Kind::Filter if prompt.text().trim().is_empty() => (
            Line::styled("for example rank<64 & tflops<0.9*median & host~gpu1", muted),
            "Tab fields   ↑ earlier",
        ),
        Kind::Filter => (Line::raw(matched(app)), "Enter keeps   Esc drops"),
        Kind::Command => {
            let name = prompt.text().split_whitespace().next().unwrap_or_default();
            let help = match (prompt_command::named(name), name) {
                (Some(known), _) => format!("{} {}  {}", known.names[0], known.takes, known.help),
                (None, "") => "for example metric power, sort skew, rank 37, capture 5".to_owned(),
                (None, _) => String::new(),
            };
            (Line::styled(help, muted), "Tab completes   Esc leaves")
        }
        Kind::Time => (Line::styled(time::FORMS, muted), ""),
        Kind::Search if prompt.text().trim().is_empty() => {
            (Line::styled("words to find on this page, for example sort or stacks", muted), "Esc leaves")
        }
        Kind::Search => {
            let found = figure::counted(help::found(app), "line", "lines");
            (Line::raw(format!("{found} matching")), "Enter keeps   Esc drops")
        }
    }
}

/// `12 of 64 ranks; 3 have no figure`
pub(super) fn matched(app: &App) -> String {
    let Some(filtered) = &app.job_view.filtered else { return String::new() };
    let of = figure::count(app.job_view.rows().len() as u64);
    let unknown = match filtered.unknown {
        0 => String::new(),
        1 => "; 1 has no figure".to_owned(),
        unknown => format!("; {} have no figure", figure::count(unknown as u64)),
    };
    format!("{} of {of} ranks{unknown}", figure::count(filtered.shown as u64))
}
