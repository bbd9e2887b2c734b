//! The lines of the tree.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{
    figure,
    stack::{Class, Word},
};

use super::super::panel::window;
use crate::{
    app::{App, Shown, StackRow},
    glyph,
    hits::{Hits, Target},
    palette::{Palette, Role},
    widget::{
        ends,
        wrap::{cut, cut_spans},
    },
};

/// Columns by which a branch is indented.
const STEP: usize = 2;

/// The largest indentation, so that names stay readable.
const DEEPEST: usize = 12;

/// Number of runs of ranks before the rest is only counted, for ranks that are here and for missing ones.
const HERE: usize = 6;
const MISSING: usize = 4;

/// Smallest number of columns of a function's name.
const LEAST: usize = 12;

/// Smallest number of columns of ranks, so that frames are aligned.
const RANKS: usize = 7;

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let rows = app.stacks.rows();
    let at = app.stacks.at();
    let height = usize::from(area.height);
    if at.is_none() && rows.len() > height {
        return draw_ends(app.palette, rows, area, buffer);
    }
    let shown = window(at, rows.len(), height);
    // Frames are right of the ranks of their branch.
    let mut column = rows[..shown.start].iter().rev().find(|row| row.open.is_some()).map_or(0, frame_column);
    for (index, y) in shown.zip(area.y..) {
        let row = &rows[index];
        if row.open.is_some() {
            column = frame_column(row);
        }
        let line = Rect { y, height: 1, ..area };
        hits.put(line, Target::Line(index));
        draw_row(app.palette, row, column, at == Some(index), line, buffer);
    }
}

/// If not all frames fit and nothing is selected, draws the innermost frames of each branch, which show where
/// its ranks are.
fn draw_ends(palette: Palette, rows: &[StackRow], area: Rect, buffer: &mut Buffer) {
    let mut column = 0;
    for (piece, y) in shortened(rows, area.height.into()).into_iter().zip(area.y..area.bottom()) {
        let line = Rect { y, height: 1, ..area };
        match piece {
            Piece::Row(row) => {
                if row.open.is_some() {
                    column = frame_column(row);
                }
                draw_row(palette, row, column, false, line, buffer);
            }
            Piece::Left(frames) => {
                let text = format!("{} {frames} frames, j shows them", glyph::ELLIPSIS);
                buffer.set_stringn(
                    area.x + column as u16,
                    y,
                    text,
                    usize::from(area.width).saturating_sub(column),
                    palette.of(Role::Muted),
                );
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Piece<'a> {
    Row(&'a StackRow),
    /// A number of frames.
    Left(usize),
}

/// The rows in `height` lines, if possible: for each branch, as many of the innermost frames as fit.
fn shortened(rows: &[StackRow], height: usize) -> Vec<Piece<'_>> {
    let runs = || rows.chunk_by(|_, next| next.open.is_none());
    let made = |kept: usize| {
        let mut pieces = Vec::new();
        for run in runs() {
            // The first and the last line of the branch are kept.
            let middle = run.len().saturating_sub(2);
            let left = middle.saturating_sub(kept);
            let left = if left == 1 { 0 } else { left };
            pieces.push(Piece::Row(&run[0]));
            if left > 0 {
                pieces.push(Piece::Left(left));
            }
            pieces.extend(run[1 + left..].iter().map(Piece::Row));
        }
        pieces
    };
    let longest = runs().map(<[_]>::len).max().unwrap_or(0);
    let fitting = (0..longest).rev().map(made).find(|pieces| pieces.len() <= height);
    fitting.unwrap_or_else(|| made(0))
}

fn indent(row: &StackRow) -> usize {
    row.depth.min(DEEPEST) * STEP
}

/// Where the frames of a branch begin.
fn frame_column(row: &StackRow) -> usize {
    if row.depth == 0 { STEP } else { indent(row) + STEP + row.here.brief(HERE).width().max(RANKS) + 1 }
}

fn draw_row(
    palette: Palette,
    row: &StackRow,
    column: usize,
    selected: bool,
    area: Rect,
    buffer: &mut Buffer,
) {
    let ground = if selected { palette.selected() } else { Style::new() };
    buffer.set_style(area, ground);
    let style = |role: Role| {
        let plain = matches!(role, Role::Text | Role::Muted | Role::Faint);
        if selected && plain { ground } else { ground.patch(palette.of(role)) }
    };
    let mut left = Vec::new();
    let outlier = row.is_outlier();
    if let Some(open) = row.open {
        let sign = if open { glyph::OPEN } else { glyph::CLOSED };
        left.push(Span::styled(format!("{:indent$}{sign} ", "", indent = indent(row)), style(Role::Accent)));
        if row.depth > 0 {
            let role = if outlier { Role::Warning } else { Role::Strong };
            let ranks = row.here.brief(HERE);
            let air = RANKS.saturating_sub(ranks.width()) + 1;
            let strong = palette.of(Role::Strong);
            left.push(Span::styled(ranks, style(role).patch(strong)));
            left.push(Span::raw(" ".repeat(air)));
        }
    } else {
        left.push(Span::raw(" ".repeat(column)));
    }
    let right = Line::from(beside(row, &style));
    let space = usize::from(area.width).saturating_sub(right.width() + 1);
    match &row.shown {
        Shown::Frame(word) if row.is_end => {
            let strong = palette.of(Role::Strong);
            let loud = |role| if role == Role::Muted { style(role) } else { style(role).patch(strong) };
            frame(word, &loud, space, &mut left);
        }
        Shown::Frame(word) => frame(word, &style, space, &mut left),
        Shown::Closed { thread, innermost, hidden } => {
            if let Some(thread) = thread {
                frame(thread, &style, space, &mut left);
                left.push(Span::raw("  "));
            }
            if *hidden > 0 {
                let more = figure::counted(*hidden, "line", "lines");
                left.push(Span::styled(
                    format!("{} {more} {} ", glyph::ELLIPSIS, glyph::HINT),
                    style(Role::Muted),
                ));
            }
            frame(innermost, &style, space, &mut left);
        }
        Shown::Left(frames) => {
            let frames = figure::counted(*frames, "frame", "frames");
            let text = format!("{} {frames} that all ranks share", glyph::ELLIPSIS);
            left.push(Span::styled(text, style(Role::Muted)));
        }
        Shown::Native { frames, innermost } => {
            let text = format!("{} {frames} native frames {} ", glyph::ELLIPSIS, glyph::HINT);
            left.push(Span::styled(text, style(Role::Muted)));
            frame(innermost, &style, space, &mut left);
        }
        Shown::NoDeeper => {
            left.push(Span::styled(format!("{} stay here", row.here.brief(HERE)), style(Role::Muted)));
        }
    }
    ends::draw(&cut_spans(left, space), &right, area, buffer);
    if selected {
        buffer.set_string(area.x, area.y, glyph::CURSOR, ground.patch(palette.of(Role::Accent)));
    }
}

/// Ranks that are not here, right of a branch's first line.
fn beside(row: &StackRow, style: &impl Fn(Role) -> Style) -> Vec<Span<'static>> {
    let mut right = Vec::new();
    let Some(_) = row.open else { return right };
    if row.threads > row.here.len() {
        right.push(Span::styled(
            format!("  {} threads", figure::count(row.threads as u64)),
            style(Role::Muted),
        ));
    }
    if row.depth == 0 {
        right.push(Span::styled(format!("  {} ", row.here.named(HERE)), style(Role::Muted)));
    }
    if !row.missing.is_empty() {
        let role = if row.is_outlier() { Role::Muted } else { Role::Warning };
        right.push(Span::styled(format!("  not {} ", row.missing.brief(MISSING)), style(role)));
    }
    right
}

/// A frame: its kind in letters and in colour, its function, and its place. The line number matters most: if
/// the path does not fit, only the file is named.
fn frame(word: &Word, style: &impl Fn(Role) -> Style, space: usize, to: &mut Vec<Span<'static>>) {
    let (kind, role) = glyph::frame(word.class);
    if word.class != Class::Role {
        to.push(Span::styled(format!("{kind} "), style(role)));
    }
    let name = if word.class == Class::Role { Role::Strong } else { role };
    to.push(Span::styled(word.name.clone(), style(name)));
    if word.file.is_empty() {
        return;
    }
    let line = if word.line > 0 { format!(":{}", word.line) } else { String::new() };
    let taken = to.iter().map(Span::width).sum::<usize>() + 2;
    let file = word.short_file();
    let fits = taken + file.width() + line.len() <= space;
    let file = if fits { file } else { file.rsplit('/').next().unwrap_or(file) };
    let place = format!("{file}{line}");
    // The function's name is cut before the line number.
    if let Some(function) = to.last_mut().filter(|_| taken + place.width() > space) {
        let kept = function.width().saturating_sub(taken + place.width() - space);
        function.content = cut(&function.content, kept.max(LEAST)).into();
    }
    to.push(Span::styled(format!("  {place}"), style(Role::Muted)));
}

/// The legend of the letters before the frames.
pub(super) fn legend(palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut line = Line::default();
    for class in [Class::Python, Class::Torch, Class::C, Class::Cpp, Class::State] {
        let (kind, role) = glyph::frame(class);
        line.push_span(Span::styled(kind, palette.of(role)));
        line.push_span(Span::styled(format!(" {}  ", glyph::frame_means(class)), palette.of(Role::Muted)));
    }
    buffer.set_line(area.x, area.y, &line, area.width);
}
