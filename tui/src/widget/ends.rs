//! A line with two ends: what stands left, what stands right, and nothing of the left one written over by the right.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

/// Draws both into the first line of `area`; the left one gives way.
pub fn draw(left: &Line<'_>, right: &Line<'_>, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let needed = u16::try_from(right.width()).unwrap_or(u16::MAX).min(area.width);
    let gap = u16::from(needed > 0);
    buffer.set_line(area.x, area.y, left, area.width.saturating_sub(needed + gap));
    buffer.set_line(area.right() - needed, area.y, right, needed);
}

/// A line from margin to margin.
pub fn rule(style: Style, area: Rect, buffer: &mut Buffer) {
    let line = Line::from(Span::styled("─".repeat(usize::from(area.width)), style));
    buffer.set_line(area.x, area.y, &line, area.width);
}
