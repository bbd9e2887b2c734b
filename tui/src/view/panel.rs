//! A frame with a title if there is room; otherwise, a line with a title.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, BorderType, Borders, Widget as _},
};

use super::headline;
use crate::{
    palette::{Palette, Role},
    widget::{ends, wrap::wrapped},
    width::Breakpoint,
};

/// The text of the frame: title, description, and the right-aligned part.
#[derive(Debug, Default)]
pub(super) struct Title<'a> {
    pub name: &'a str,
    pub about: String,
    pub right: String,
}

/// Draws the frame, and returns the area inside.
pub(super) fn draw(
    palette: Palette,
    breakpoint: Breakpoint,
    title: Title<'_>,
    area: Rect,
    buffer: &mut Buffer,
) -> Rect {
    let wide = breakpoint == Breakpoint::Wide;
    let muted = palette.of(Role::Muted);
    let name = palette.of(Role::Accent).patch(palette.of(Role::Strong));
    let columns = usize::from(area.width).saturating_sub(if wide { 2 } else { 0 });
    let ends::Title { name: named, about, right } =
        ends::title(title.name, &title.about, &title.right, columns);
    let mut block = Block::new()
        .borders(if wide { Borders::ALL } else { Borders::TOP })
        .border_type(BorderType::Rounded)
        .border_style(palette.of(Role::Faint))
        .title_top(Line::from(vec![Span::styled(named, name), Span::styled(about, muted)]));
    if !right.is_empty() {
        block = block.title_top(Line::styled(right, muted).right_aligned());
    }
    let inner = block.inner(area);
    block.render(area, buffer);
    if wide { Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner } } else { inner }
}

/// Largest number of lines of a paragraph, and the columns in which it is easy to read.
const PARAGRAPH: usize = 6;
const READABLE: usize = 96;

/// Draws a paragraph at the top of the area. Returns the area below it.
pub(super) fn paragraph(palette: Palette, role: Role, text: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    let texts = wrapped(text, usize::from(area.width).min(READABLE), PARAGRAPH);
    let lines: Vec<_> = texts.into_iter().map(|text| Line::styled(text, palette.of(role))).collect();
    headline::lines(&lines, area, buffer)
}

/// The visible part of a list. The selected line stays in the middle, so scrolling needs no state.
pub(super) fn window(at: Option<usize>, of: usize, visible: usize) -> std::ops::Range<usize> {
    let first = at.map_or(0, |at| at.saturating_sub(visible / 2)).min(of.saturating_sub(visible));
    first..(first + visible).min(of)
}
