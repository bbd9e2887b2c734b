//! A quantity of every rank as it is now, each in the place it has on its host.

use ratatui::{buffer::Buffer, layout::Rect};
use unicode_width::UnicodeWidthStr as _;
use xpu_shared::{frame::Life, status::RankState};

use super::{Frame, GAP, LABEL, ending, framed};
use crate::{
    app::{App, Metric, Row, Seat},
    glyph::{HIGH, LOW, UNKNOWN},
    palette::Role,
    widget::{
        cell::Cell,
        grid::{Density, Grid},
        heatmap::Heatmap,
        scale::{Scale, Worse},
    },
};

pub(in crate::view) struct Places {
    grid: Grid,
    label: usize,
}

impl Places {
    /// For a map and its labels of this size.
    pub(super) fn plan(app: &App, width: usize, height: usize) -> Self {
        let shape = app.survey.seats.shape();
        let names = (0..shape.groups).map(|group| label(app, group * shape.size).width());
        let label = names.max().unwrap_or(0).min(LABEL).min(width / 3);
        let grid = Grid::fit(shape, width.saturating_sub(label + GAP), height, app.palette.has_colour());
        Self { grid, label }
    }

    pub(super) fn height(&self) -> usize {
        self.grid.height()
    }

    pub(super) fn draw(&self, app: &App, metric: Metric, corner: &str, area: Rect, buffer: &mut Buffer) {
        let palette = app.palette;
        let scale = app.survey.scale(metric);
        let notes = match self.grid.density {
            Density::Folded { ranks } => vec![format!("{ranks} ranks a cell, the worst shown")],
            _ => Vec::new(),
        };
        let frame = Frame { metric, means: metric.means(), scale, notes, corner };
        let inner = framed(app, &frame, area, buffer);
        self.labels(app, inner, buffer);
        let cells = |slot| cell(app, metric, scale, slot);
        let selected = app.selected.and_then(|rank| app.survey.seats.slot_of(app.survey.row_of(rank)?));
        let offset = (self.label + GAP) as u16;
        let map = Rect { x: inner.x + offset, width: inner.width.saturating_sub(offset), ..inner };
        Heatmap { grid: &self.grid, cells, selected, palette }.draw(map, buffer);
    }

    /// The host of the first rank of each line.
    fn labels(&self, app: &App, area: Rect, buffer: &mut Buffer) {
        let step = if self.grid.halves() { 2 } else { 1 };
        let mut before = None;
        for line in (0..self.grid.lines()).step_by(step) {
            let Some(slots) = self.grid.slots_at(0, line) else { continue };
            let group = slots.start / app.survey.seats.shape().size;
            if before.replace(group) == Some(group) {
                continue;
            }
            let y = area.y + (line * self.grid.tall() / step) as u16;
            let text = label(app, slots.start);
            buffer.set_stringn(area.x, y, ending(&text, self.label), self.label, app.palette.of(Role::Muted));
        }
    }
}

fn cell(app: &App, metric: Metric, scale: Option<&Scale>, slot: usize) -> Cell {
    match app.survey.seats.at(slot) {
        None => Cell::Absent,
        Some(Seat::Unseen(_)) => Cell::Unknown,
        Some(Seat::Seen(row)) => of_row(&app.survey.rows()[row], metric, scale),
    }
}

fn of_row(row: &Row, metric: Metric, scale: Option<&Scale>) -> Cell {
    if row.aside {
        return Cell::Aside;
    }
    match (row.life, metric.of(row), scale) {
        (Life::Died, ..) => Cell::Alarm,
        (Life::Alive, ..) if row.is_fresh() && row.status.state == RankState::Hung => Cell::Alarm,
        (_, value, _) if !row.is_fresh() => Cell::Stale { value },
        (_, Some(value), Some(scale)) => of_value(value, scale),
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
    app.survey.seats.host(slot).map_or_else(|| UNKNOWN.to_owned(), std::string::ToString::to_string)
}
