//! All keys, from the table that dispatches them, and what the signs mean.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Padding, Paragraph, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;

use crate::{
    action::{Action, Motion},
    app::App,
    figure, glyph,
    keymap::{Binding, Key, Scope},
    palette::{Palette, Role},
};

/// Of one column of keys.
const WIDTH: u16 = 64;

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let palette = app.palette;
    let parts = parts(app);
    let lines: usize = parts.iter().map(Vec::len).sum();
    // Side by side only where one below the other has no room.
    let columns = if lines + 2 > usize::from(area.height) && area.width >= 2 * WIDTH { 2 } else { 1 };
    let mut sides: Vec<Vec<Line<'_>>> = vec![Vec::new()];
    for part in parts {
        let full = sides.last().is_some_and(|side| side.len() + part.len() > lines.div_ceil(columns) + 2);
        if full && sides.len() < columns {
            sides.push(Vec::new());
        }
        sides.last_mut().into_iter().for_each(|side| side.extend(part.iter().cloned()));
    }
    let longest = sides.iter().map(Vec::len).max().unwrap_or(0);
    let height = (longest as u16 + 2).min(area.height);
    let width = (WIDTH * sides.len() as u16).min(area.width);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let missing = longest.saturating_sub(usize::from(height) - 2);
    let from = app.help.min(missing);
    let more = match missing - from {
        0 => String::new(),
        below => format!(" {} below, {} ", figure::counted(below, "line", "lines"), keys(app, Motion::Down)),
    };
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(palette.of(Role::Accent))
        .padding(Padding::horizontal(2))
        .title_top(Line::styled(" Help ", palette.of(Role::Strong)))
        .title_bottom(Line::styled(more, palette.of(Role::Muted)))
        .title_bottom(Line::styled(" Esc back ", palette.of(Role::Muted)).right_aligned());
    Clear.render(place, buffer);
    let inner = block.inner(place);
    block.render(place, buffer);
    let count = sides.len();
    let parts = Layout::horizontal(vec![Constraint::Fill(1); count]).spacing(1).split(inner);
    for (side, part) in sides.into_iter().zip(parts.iter()) {
        Paragraph::new(side).scroll((from as u16, 0)).render(*part, buffer);
    }
}

/// What moves so.
fn keys(app: &App, motion: Motion) -> String {
    let moves = |binding: &Binding| matches!(binding.action, Action::Move(to) if to == motion);
    let keys = app.keymap.all().find(|(binding, _)| moves(binding)).map(|(_, keys)| joined(keys, " "));
    keys.unwrap_or_default()
}

fn joined(keys: &[Key], between: &str) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}

/// The keys of the view that is shown first, and what the signs mean last: on a low terminal the keys are what stays.
fn parts(app: &App) -> Vec<Vec<Line<'static>>> {
    let palette = app.palette;
    let all = [
        Scope::Overview,
        Scope::Stacks,
        Scope::Findings,
        Scope::Collectives,
        Scope::Gemms,
        Scope::Steps,
        Scope::Captures,
        Scope::Hosts,
        Scope::Prompt,
        Scope::Rank,
        Scope::Help,
    ];
    let here = app.page_scope();
    let others = all.into_iter().filter(|scope| *scope != here);
    let mut parts = Vec::new();
    for scope in [here, Scope::Anywhere, Scope::List, Scope::Time].into_iter().chain(others) {
        let mut lines = vec![Line::styled(scope.title(), palette.of(Role::Strong))];
        for (binding, keys) in app.keymap.all().filter(|(binding, _)| binding.scope == scope) {
            lines.push(entry(&joined(keys, "  "), binding.help, Role::Accent, palette));
        }
        parts.push(lines);
    }
    let mut signs = vec![Line::styled("Signs", palette.of(Role::Strong))];
    for (sign, role, meaning) in [
        (glyph::LOW, Role::Warning, "5 % or more below the median rank"),
        (glyph::WARNING, Role::Warning, "late by more than 5 % of a step, or slow"),
        (glyph::STALE, Role::Warning, "nothing heard for 5 s"),
        (glyph::ALARM, Role::Alarm, "ended without saying so, or unreachable"),
        (glyph::UNKNOWN, Role::Muted, "not known"),
    ] {
        signs.push(entry(sign, meaning, role, palette));
    }
    parts.push(signs);
    parts
}

fn entry(left: &str, meaning: &'static str, role: Role, palette: Palette) -> Line<'static> {
    let air = 14_usize.saturating_sub(left.width()).max(1);
    Line::from(vec![
        Span::raw("  "),
        Span::styled(left.to_owned(), palette.of(role)),
        Span::raw(" ".repeat(air)),
        Span::raw(meaning),
    ])
}
