//! The list to choose from, over its view.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;

use super::panel::window;
use crate::{
    app::{App, Item, Picker},
    glyph,
    hits::{Hits, Target},
    palette::Role,
    widget::{row::Column, wrap::cut},
};

/// Columns other than the text: frame, cursor, and blanks.
const EDGES: usize = 6;

/// Columns between an item and its meaning.
const GAP: usize = 2;

pub(super) fn draw(app: &App, picker: &Picker, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let widest = |of: fn(&Item) -> &str| picker.items.iter().map(|item| of(item).width()).max().unwrap_or(0);
    let (names, about) = (widest(|item| &item.text), widest(|item| &item.about));
    let about = if about > 0 { about + GAP } else { 0 };
    let columns = (names + about).max(picker.title.len()) + EDGES;
    let place = centred(columns, picker.items.len() + 2, area);
    Clear.render(place, buffer);
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(app.palette.of(Role::Accent))
        .title_top(Line::styled(format!(" {} ", picker.title), app.palette.of(Role::Strong)));
    let inner = block.inner(place);
    block.render(place, buffer);
    let space = usize::from(inner.width);
    let shown = window(Some(picker.at()), picker.items.len(), usize::from(inner.height));
    for (index, y) in shown.zip(inner.y..) {
        let item = &picker.items[index];
        let chosen = index == picker.at();
        let ground = if chosen { app.palette.selected() } else { Style::new() };
        let line = Rect { y, height: 1, ..inner };
        buffer.set_style(line, ground);
        hits.put(line, Target::Line(index));
        let cursor = if chosen { glyph::CURSOR } else { " " };
        let sign = if item.is_current { glyph::GOOD } else { " " };
        let text = cut(&item.text, space.saturating_sub(4));
        let spans = vec![
            Span::styled(cursor, ground.patch(app.palette.of(Role::Accent))),
            Span::styled(format!("{sign} "), ground.patch(app.palette.of(Role::Good))),
            Span::styled(Column::name(names + GAP).cell(&text), ground.patch(app.palette.of(Role::Text))),
            Span::styled(item.about.clone(), ground.patch(app.palette.of(Role::Muted))),
        ];
        buffer.set_line(line.x, y, &Line::from(spans), line.width);
    }
}

fn centred(columns: usize, lines: usize, area: Rect) -> Rect {
    let width = u16::try_from(columns).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines).unwrap_or(u16::MAX).min(area.height);
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
