//! Two quantities of every rank, hosts as rows, side by side.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_shared::{stack::Ranks, status::RankState};

use crate::{
    app::{App, Metric, Row, Seat, Survey},
    figure,
    glyph::{ALARM, HIGH, LOW, RAMP, SWATCH, UNKNOWN, WAITING},
    palette::{Palette, Role},
    widget::{
        grid::{Density, Grid},
        heatmap::{Cell, Heatmap},
        scale::{STEPS, Scale, Worse},
        wrap::cut,
    },
};

/// Columns between the two panels.
const BETWEEN: u16 = 2;
/// From this width on a panel says what its figures mean.
const ROOMY: u16 = 56;
/// Columns between a host's name and its ranks.
const GAP: usize = 2;
/// Runs of ranks named under a map.
const RUNS: usize = 3;
/// Columns a host's name may take.
const LABEL: usize = 12;

/// Both panels: the same grid, so that a rank is in the same place of both.
pub(super) struct Panels {
    grid: Grid,
    label: usize,
}

impl Panels {
    /// Chooses the grid for `width` columns and at most `height` lines, borders included.
    pub(super) fn plan(app: &App, width: u16, height: u16) -> Self {
        let shape = app.survey.seats.shape();
        let names = (0..shape.groups).map(|group| label(app, group * shape.size).width());
        let each = usize::from((width.saturating_sub(BETWEEN)) / 2).saturating_sub(4);
        let label = names.max().unwrap_or(0).min(LABEL).min(each / 3);
        let grid = Grid::fit(
            shape,
            each.saturating_sub(label + GAP),
            usize::from(height).saturating_sub(2),
            app.palette.has_colour(),
        );
        Self { grid, label }
    }

    pub(super) fn height(&self) -> u16 {
        self.grid.height() as u16 + 2
    }

    pub(super) fn draw(&self, app: &App, area: Rect, buffer: &mut Buffer) {
        let [left, _, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(BETWEEN), Constraint::Fill(1)])
                .areas(area);
        let [first, second] = app.maps.metrics();
        self.panel(app, first, left, buffer);
        self.panel(app, second, right, buffer);
    }

    fn panel(&self, app: &App, metric: Metric, area: Rect, buffer: &mut Buffer) {
        let palette = app.palette;
        let scale = app.survey.scale(metric);
        let mut block = Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(palette.of(Role::Faint))
            .title_top(Line::from(vec![
                Span::raw(" "),
                Span::styled(metric.title(), palette.of(Role::Accent).patch(palette.of(Role::Strong))),
                Span::styled(if area.width < ROOMY { " " } else { metric.means() }, palette.of(Role::Muted)),
            ]));
        if let Some(scale) = scale {
            let legend = legend(scale, palette);
            if metric.title().len() + legend.width() + 4 < usize::from(area.width) {
                block = block.title_top(legend.right_aligned());
            }
        }
        let caption = self.caption(app, metric, usize::from(area.width).saturating_sub(4));
        block = block.title_bottom(Line::styled(format!(" {caption} "), palette.of(Role::Muted)));
        let inner = block.inner(area);
        block.render(area, buffer);
        let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
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

    /// The figures, so that nothing is said by colour alone: as many as there is room for.
    fn caption(&self, app: &App, metric: Metric, width: usize) -> String {
        let survey = &app.survey;
        let mut parts = Vec::new();
        if let Density::Folded { ranks } = self.grid.density {
            parts.push(format!("{ranks} ranks a cell, the worst shown"));
        }
        match (survey.scale(metric), survey.worst(metric)) {
            (Some(scale), Some((row, value))) => {
                if scale.is_bad(value) {
                    let worst = if scale.worse == Worse::Low { "lowest" } else { "highest" };
                    parts.push(format!("{worst} rank {} at {}", row.status.rank, figure::tenths(value)));
                }
                if survey.is_frozen() {
                    parts.push("last figures".to_owned());
                }
                parts.push(format!("median {} {}", figure::tenths(scale.median), metric.unit()));
            }
            _ if survey.standstill().is_some() => parts.extend(standstill(survey)),
            _ if metric == Metric::Bus && survey.partly_seen.is_some() => {
                parts.push("not all ranks of a communicator are seen".to_owned());
            }
            _ if metric.is_of_device() => parts.push("no driver tells of the GPUs".to_owned()),
            _ => parts.push("nothing timed yet".to_owned()),
        }
        while parts.len() > 1 && parts.join(" · ").width() > width {
            parts.pop();
        }
        cut(&parts.join(" · "), width)
    }
}

/// `480 ■■■■■■■■ 736`: the steps, and what the first and the last stand for.
fn legend(scale: &Scale, palette: Palette) -> Line<'static> {
    let (first, last) = scale.ends();
    let muted = palette.of(Role::Muted);
    let mut spans = vec![Span::styled(format!(" {} ", figure::short(first)), muted)];
    for (step, glyph) in RAMP.into_iter().enumerate().take(STEPS) {
        let text = if palette.has_colour() { SWATCH } else { glyph };
        spans.push(Span::styled(text.to_string(), palette.swatch(step)));
    }
    spans.push(Span::styled(format!(" {} ", figure::short(last)), muted));
    spans.into()
}

fn cell(app: &App, metric: Metric, scale: Option<&Scale>, slot: usize) -> Cell {
    match app.survey.seats.at(slot) {
        None => Cell::Absent,
        Some(Seat::Unseen(_)) => Cell::Unknown,
        Some(Seat::Seen(row)) => of_row(&app.survey.rows()[row], metric, scale),
    }
}

fn of_row(row: &Row, metric: Metric, scale: Option<&Scale>) -> Cell {
    use xpu_shared::frame::Life;
    match (row.life, metric.of(row), scale) {
        (Life::Died, ..) => Cell::Alarm,
        (Life::Alive, ..) if row.is_fresh() && row.status.state == RankState::Hung => Cell::Alarm,
        (_, value, _) if !row.is_fresh() => Cell::Stale { value },
        (_, Some(value), Some(scale)) => Cell::Value {
            value,
            step: scale.step(value),
            badness: scale.badness(value),
            sign: scale.is_bad(value).then_some(if scale.worse == Worse::Low { LOW } else { HIGH }),
        },
        _ if row.status.state == RankState::Waiting => Cell::Waits,
        _ => Cell::Unknown,
    }
}

/// What the signs on the cells say of a job that stands.
fn standstill(survey: &Survey) -> Option<String> {
    let ranks: Ranks = survey.standstill()?.ranks.iter().copied().collect();
    let waits = match survey.waiting() {
        0 => String::new(),
        1 => format!("   {WAITING} 1 waits"),
        waiting => format!("   {WAITING} {} wait", figure::count(waiting as u64)),
    };
    Some(format!("{ALARM} {}{waits}", ranks.named(RUNS)))
}

fn label(app: &App, slot: usize) -> String {
    app.survey.seats.host(slot).map_or_else(|| UNKNOWN.to_owned(), std::string::ToString::to_string)
}

/// The end of a name, which is what tells hosts apart.
fn ending(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let tail: Vec<_> = name.chars().rev().take(width.saturating_sub(1)).collect();
    std::iter::once(crate::glyph::ELLIPSIS).chain(tail.into_iter().rev()).collect()
}
