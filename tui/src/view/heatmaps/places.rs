//! A quantity of every rank now, each at its place on its host.

use ratatui::{buffer::Buffer, layout::Rect};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{finding::Kind, status::RankState};
use xpu_wire::frame::Life;

use super::{Frame, GAP, LABEL, framed};
use crate::{
    app::{App, Metric, RankSlot, Row},
    glyph::{HIGH, LOW, UNKNOWN},
    hits::{Hits, Target},
    palette::Role,
    widget::{
        cell::Cell,
        grid::{Density, Grid, Shape},
        heatmap::Heatmap,
        scale::{Scale, Worse},
        wrap::cut_front,
    },
};

pub(in crate::view) struct Places {
    grid: Grid,
    label: usize,
    named: bool,
}

/// Columns of the cell of a group with its own line, and of the name of its worst rank.
const CELL: usize = 12;
const NAMED: usize = 12;

impl Places {
    /// The layout of a map and its labels of this size.
    pub(super) fn plan(app: &App, width: usize, height: usize) -> Self {
        let shape = shape(app);
        let names = (0..shape.groups).map(|group| label(app, group * shape.size).width());
        let label = names.max().unwrap_or(0).min(LABEL).min(width / 3);
        let space = width.saturating_sub(label + GAP);
        // If each group has a line, its worst rank is named next to it.
        let named = !app.job_view.bundles.is_empty() && shape.groups <= height && space >= CELL + GAP + NAMED;
        let grid = Grid::fit(shape, if named { CELL } else { space }, height, app.palette.has_halves());
        Self { grid, label, named }
    }

    pub(super) fn height(&self) -> usize {
        self.grid.height()
    }

    pub(super) fn draw(
        &self,
        app: &App,
        metric: Metric,
        corner: &str,
        area: Rect,
        buffer: &mut Buffer,
        hits: &mut Hits,
    ) {
        let palette = app.palette;
        let scale = app.job_view.scale(metric);
        let folded = !app.job_view.bundles.is_empty();
        let notes = match self.grid.density {
            Density::Folded { ranks } if folded => vec![format!("{ranks} groups a cell, the worst shown")],
            Density::Folded { ranks } => vec![format!("{ranks} ranks a cell, the worst shown")],
            _ if folded => vec!["the worst rank of each".to_owned()],
            _ => Vec::new(),
        };
        let frame = Frame { metric, means: metric.means(), scale, notes, caption: Vec::new(), corner };
        let inner = framed(app, &frame, area, buffer, hits);
        self.labels(app, inner, buffer);
        let cells = |slot| cell(app, metric, scale, slot);
        let selected = app.selection.rank.and_then(|rank| slot_of(app, app.job_view.row_of(rank)?));
        let offset = (self.label + GAP) as u16;
        let map = Rect { x: inner.x + offset, width: inner.width.saturating_sub(offset), ..inner };
        Heatmap { grid: &self.grid, cells, selected, palette }.draw(map, buffer);
        hits.put(map, Target::Map(Box::new(self.grid), metric));
        if self.named {
            self.names(app, metric, map, buffer);
        }
    }

    /// The worst rank of each group, next to its cell.
    fn names(&self, app: &App, metric: Metric, area: Rect, buffer: &mut Buffer) {
        let Some(scale) = app.job_view.scale(metric) else { return };
        for (slot, bundle) in app.job_view.bundles.iter().enumerate() {
            let known = bundle.rows.iter().map(|&row| &app.job_view.rows()[row]);
            let known = known.filter(|row| row.is_heard()).filter_map(|row| Some((row, metric.of(row)?)));
            let worst = known.reduce(
                |one, other| {
                    if scale.badness(other.1) > scale.badness(one.1) { other } else { one }
                },
            );
            let Some((row, value)) = worst else { continue };
            let y = area.y + (self.grid.cell_of(slot).line * self.grid.tall()) as u16;
            let role = if scale.is_bad(value) { Role::Warning } else { Role::Faint };
            let text = format!("rank {}", row.status.rank);
            buffer.set_stringn(area.x + (CELL + GAP) as u16, y, text, NAMED, app.palette.of(role));
        }
    }

    /// The host of the first rank of each line.
    fn labels(&self, app: &App, area: Rect, buffer: &mut Buffer) {
        let step = if self.grid.halves() { 2 } else { 1 };
        let mut before = None;
        for line in (0..self.grid.lines()).step_by(step) {
            let Some(slots) = self.grid.slots_at(0, line) else { continue };
            let group = slots.start / shape(app).size;
            if before.replace(group) == Some(group) {
                continue;
            }
            let y = area.y + (line * self.grid.tall() / step) as u16;
            let text = label(app, slots.start);
            buffer.set_stringn(
                area.x,
                y,
                cut_front(&text, self.label),
                self.label,
                app.palette.of(Role::Muted),
            );
        }
    }
}

/// Folded ranks share one place.
fn shape(app: &App) -> Shape {
    match app.job_view.bundles.len() {
        0 => app.job_view.rank_layout.shape(),
        groups => Shape { groups, size: 1 },
    }
}

fn slot_of(app: &App, row: usize) -> Option<usize> {
    if app.job_view.bundles.is_empty() {
        return app.job_view.rank_layout.slot_of(row);
    }
    app.job_view.bundles.iter().position(|bundle| bundle.rows.contains(&row))
}

fn cell(app: &App, metric: Metric, scale: Option<&Scale>, slot: usize) -> Cell {
    if let Some(bundle) = app.job_view.bundles.get(slot) {
        let cells = bundle.rows.iter().map(|&row| of_row(&app.job_view.rows()[row], metric, scale));
        return cells.reduce(Cell::worse).unwrap_or(Cell::Unknown);
    }
    match app.job_view.rank_layout.at(slot) {
        None => Cell::Absent,
        Some(RankSlot::Unseen(_)) => Cell::Unknown,
        Some(RankSlot::Seen(row)) => of_row(&app.job_view.rows()[row], metric, scale),
    }
}

fn of_row(row: &Row, metric: Metric, scale: Option<&Scale>) -> Cell {
    if row.aside {
        return Cell::Aside;
    }
    match (row.life, metric.of(row), scale) {
        (Life::Died, ..) => Cell::Alarm,
        (Life::Alive, ..) if row.is_heard() && row.status.state == RankState::Hung => Cell::Alarm,
        (_, value, _) if !row.is_heard() => Cell::Stale { value },
        (_, Some(value), Some(scale)) => match of_value(value, scale) {
            // A rank's median skew may be small but still add up, so ranks that the finding names have a
            // sign.
            Cell::Value { value, step, badness, sign: None }
                if metric == Metric::Skew && row.named == Some(Kind::SlowRank) =>
            {
                Cell::Value { value, step, badness, sign: Some(HIGH) }
            }
            cell => cell,
        },
        _ if row.status.state == RankState::Waiting => Cell::Waits,
        _ => Cell::Unknown,
    }
}

pub(super) fn of_value(value: f64, scale: &Scale) -> Cell {
    Cell::Value {
        value,
        step: scale.step(value),
        badness: scale.badness(value),
        sign: scale.is_bad(value).then_some(if scale.worse == Worse::Low { LOW } else { HIGH }),
    }
}

fn label(app: &App, slot: usize) -> String {
    if let Some(bundle) = app.job_view.bundles.get(slot) {
        return bundle.name.clone();
    }
    app.job_view.rank_layout.host(slot).map_or_else(|| UNKNOWN.to_owned(), std::string::ToString::to_string)
}
