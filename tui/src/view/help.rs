//! All keys, from the table that dispatches them, and what the signs mean.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Padding, Paragraph, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;

use crate::{
    app::App,
    glyph,
    keymap::{BINDINGS, Scope},
    palette::{Palette, Role},
};

const WIDTH: u16 = 66;

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let palette = app.palette;
    let mut lines = Vec::new();
    for scope in [Scope::Overview, Scope::Anywhere, Scope::Rank, Scope::Help] {
        lines.push(Line::styled(scope.title(), palette.of(Role::Strong)));
        for binding in BINDINGS.iter().filter(|binding| binding.scope == scope) {
            let keys: Vec<_> = binding.keys.iter().map(ToString::to_string).collect();
            lines.push(entry(&keys.join("  "), binding.help, Role::Accent, palette));
        }
    }
    // The last to be drawn, so that on a low terminal the keys are what stays.
    lines.push(Line::styled("Signs", palette.of(Role::Strong)));
    for (sign, role, meaning) in [
        (glyph::LOW, Role::Warning, "5 % or more below the median rank"),
        (glyph::WARNING, Role::Warning, "late by more than 5 % of a step, or slow"),
        (glyph::STALE, Role::Warning, "nothing heard for 5 s"),
        (glyph::ALARM, Role::Alarm, "ended without saying so, or unreachable"),
        (glyph::UNKNOWN, Role::Muted, "not known"),
    ] {
        lines.push(entry(sign, meaning, role, palette));
    }
    let height = (lines.len() as u16 + 2).min(area.height);
    let width = WIDTH.min(area.width);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(palette.of(Role::Accent))
        .padding(Padding::horizontal(2))
        .title_top(Line::styled(" Help ", palette.of(Role::Strong)))
        .title_bottom(Line::styled(" Esc back ", palette.of(Role::Muted)).right_aligned());
    Clear.render(place, buffer);
    Paragraph::new(lines).block(block).render(place, buffer);
}

fn entry<'a>(left: &str, meaning: &'a str, role: Role, palette: Palette) -> Line<'a> {
    let air = 14_usize.saturating_sub(left.width()).max(1);
    Line::from(vec![
        Span::raw("  "),
        Span::styled(left.to_owned(), palette.of(role)),
        Span::raw(" ".repeat(air)),
        Span::raw(meaning),
    ])
}
