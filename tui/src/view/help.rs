//! All keys, from the table that dispatches them, the uses of the mouse, and the meaning of the signs.

mod entry;

use entry::{Part, joined, parts};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Padding, Paragraph, Widget as _},
};
use xpu_model::figure;

use crate::{
    action::{Action, Motion},
    app::App,
    keymap::Binding,
    palette::Role,
};

/// Columns of one list of keys.
const WIDTH: u16 = 64;

/// Columns of a list without text: borders, and the blanks next to them.
const EDGES: u16 = 6;

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let palette = app.palette;
    let width = usize::from(WIDTH.min(area.width).saturating_sub(EDGES));
    let mut parts: Vec<_> = filtered(app).iter().map(|part| part.lines(width, palette)).collect();
    if parts.is_empty() {
        parts.push(vec![Line::raw("No matching lines: Esc shows all.")]);
    }
    let lines: usize = parts.iter().map(Vec::len).sum();
    // The lists are side by side only if they do not fit one below the other.
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
    let from = app.overlay.help.from().min(missing);
    let more = match missing - from {
        0 => String::new(),
        below => format!(" {} below, {} ", figure::counted(below, "line", "lines"), keys(app, Motion::Down)),
    };
    let hint = format!(" {} searches, Esc closes ", app.key("filter"));
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(palette.of(Role::Accent))
        .padding(Padding::horizontal(2))
        .title_top(Line::from(title(app)))
        .title_bottom(Line::styled(more, palette.of(Role::Muted)))
        .title_bottom(Line::styled(hint, palette.of(Role::Muted)).right_aligned());
    Clear.render(place, buffer);
    let inner = block.inner(place);
    block.render(place, buffer);
    let count = sides.len();
    let parts = Layout::horizontal(vec![Constraint::Fill(1); count]).spacing(EDGES - 2).split(inner);
    for (side, part) in sides.into_iter().zip(parts.iter()) {
        Paragraph::new(side).scroll((from as u16, 0)).render(*part, buffer);
    }
}

/// `Help / sort`
fn title(app: &App) -> Vec<Span<'_>> {
    let mut title = vec![Span::styled(" Help ", app.palette.of(Role::Strong))];
    let sought = app.overlay.help.sought();
    if !sought.is_empty() {
        title.push(Span::styled(format!("/ {sought} "), app.palette.of(Role::Accent)));
    }
    title
}

/// Entries with the searched words.
pub(super) fn found(app: &App) -> usize {
    filtered(app).iter().map(|part| part.entries.len()).sum()
}

/// Entries with all the words, under their heads.
fn filtered(app: &App) -> Vec<Part> {
    let words: Vec<_> = app.overlay.help.sought().split_whitespace().map(str::to_lowercase).collect();
    let mut parts = parts(app);
    for part in &mut parts {
        part.entries.retain(|entry| entry.has_all(&words));
    }
    parts.retain(|part| !part.entries.is_empty());
    parts
}

/// The keys of this motion.
fn keys(app: &App, motion: Motion) -> String {
    let moves = |binding: &Binding| matches!(binding.action, Action::Move(to) if to == motion);
    let keys = app.keymap.all().find(|(binding, _)| moves(binding)).map(|(_, keys)| joined(keys, " "));
    keys.unwrap_or_default()
}
