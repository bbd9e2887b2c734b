//! Positions on the screen, for the mouse. They are rebuilt with each redraw, and stored nowhere else.
#![forbid(unsafe_code)]

use std::ops::Range;

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};
use xpu_wire::id::Rank;

use crate::{
    action::{Action, Motion, ZoomAction},
    app::{App, Columns, Metric, RankSlot},
    widget::grid::Grid,
};

/// Lines by which a notch of the wheel moves.
const NOTCH: usize = 3;

/// What a click means.
#[derive(Clone, Debug)]
pub enum Target {
    /// The same as a key.
    Do(Action),
    /// A rank: the first click selects it, the next one shows it alone.
    Rank(Rank),
    /// The worst of some rows of the job view.
    Worst(Vec<usize>, Metric),
    /// Ranks in their places on a map.
    Map(Box<Grid>, Metric),
    /// A line of the view's list, from the top.
    Line(usize),
    /// The timeline of a replay.
    Time,
    /// Moments of a heatmap over time. This target lies above the rows to which the moments belong.
    Past(Moments),
}

/// Columns of the past, several per cell; the first cell may be cut.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    pub shown: Columns,
    pub span: u64,
    /// Columns of the terminal per cell.
    pub wide: u16,
}

impl Moments {
    /// The columns of the cell this far from the left.
    fn cell(&self, from_left: u16) -> Columns {
        let (first, last) = self.shown;
        let begin = first - first % self.span + u64::from(from_left / self.wide.max(1)) * self.span;
        (begin.clamp(first, last), (begin + self.span - 1).clamp(first, last))
    }
}

/// The areas on the screen; the one drawn last is on top.
#[derive(Clone, Debug, Default)]
pub struct Hits(Vec<(Rect, Target)>);

impl Hits {
    pub(crate) fn put(&mut self, area: Rect, target: Target) {
        self.0.push((area, target));
    }

    /// Adds the lines of the view's list, below its head.
    pub(crate) fn lines(&mut self, area: Rect, shown: Range<usize>) {
        for (line, y) in shown.zip(area.y + 1..) {
            self.put(Rect { y, height: 1, ..area }, Target::Line(line));
        }
    }

    /// Makes everything drawn so far unreachable for the mouse.
    pub(crate) fn cover(&mut self) {
        self.0.clear();
    }

    fn at(&self, x: u16, y: u16) -> Option<&(Rect, Target)> {
        self.0.iter().rev().find(|(area, _)| area.contains(Position { x, y }))
    }

    /// The cell that a drag has reached. The pointer may leave the map.
    fn marked(&self, x: u16, app: &App) -> Option<Action> {
        let (area, cell) = self.0.iter().find_map(|(area, target)| match target {
            Target::Past(moments) if (area.left()..area.right()).contains(&x) => Some((area, moments)),
            _ => None,
        })?;
        app.maps.zoom.is_begun().then(|| Action::Zoom(ZoomAction::To(cell.cell(x - area.x))))
    }

    /// The meaning of a click on the ranks of a row.
    fn row(&self, x: u16, y: u16, app: &App) -> Option<Action> {
        let rows = self.0.iter().rev().filter(|(_, target)| matches!(target, Target::Worst(..)));
        let (area, target) = rows.into_iter().find(|(area, _)| area.contains(Position { x, y }))?;
        target.clicked(*area, Position { x, y }, app)
    }

    /// The meaning of the event: usually nothing; several steps for a wheel.
    pub fn actions(&self, event: MouseEvent, app: &App) -> Vec<Action> {
        let (x, y) = (event.column, event.row);
        match event.kind {
            MouseEventKind::Down(MouseButton::Left) => self
                .at(x, y)
                .and_then(|(area, target)| target.clicked(*area, Position { x, y }, app))
                .into_iter()
                .collect(),
            // The pointer may leave the line while it moves along the timeline.
            MouseEventKind::Drag(MouseButton::Left) => {
                let bar = self.0.iter().find(|(area, target)| {
                    matches!(target, Target::Time)
                        && area.y.abs_diff(y) <= 1
                        && (area.left()..area.right()).contains(&x)
                });
                bar.map(|(area, _)| moment(*area, x)).or_else(|| self.marked(x, app)).into_iter().collect()
            }
            MouseEventKind::Up(MouseButton::Left) if app.maps.zoom.is_begun() => {
                let kept = Action::Zoom(ZoomAction::Keep);
                // A press and a release in one cell are a click on the rank.
                let clicked = if app.maps.zoom.marked().is_none() { self.row(x, y, app) } else { None };
                std::iter::once(kept).chain(clicked).collect()
            }
            MouseEventKind::ScrollDown => vec![Action::Move(Motion::Down); NOTCH],
            MouseEventKind::ScrollUp => vec![Action::Move(Motion::Up); NOTCH],
            _ => Vec::new(),
        }
    }
}

impl Target {
    fn clicked(&self, area: Rect, Position { x, y }: Position, app: &App) -> Option<Action> {
        match self {
            Self::Do(action) => Some(action.clone()),
            Self::Rank(rank) => Some(rank_clicked(*rank, app)),
            Self::Worst(rows, metric) => worst(rows.iter().copied(), *metric, app),
            Self::Map(grid, metric) => {
                let (across, down) = (usize::from(x - area.x), usize::from(y - area.y));
                let lines = if grid.halves() {
                    2 * down..2 * down + 2
                } else {
                    down / grid.tall()..down / grid.tall() + 1
                };
                let slots = lines.filter_map(|line| grid.slots_at(across, line)).flatten();
                let job_view = &app.job_view;
                let rows = slots.flat_map(|slot| {
                    match (job_view.bundles.get(slot), job_view.rank_layout.at(slot)) {
                        (Some(bundle), _) => bundle.rows.clone(),
                        (None, Some(RankSlot::Seen(row))) if job_view.bundles.is_empty() => vec![row],
                        _ => Vec::new(),
                    }
                });
                worst(rows, *metric, app)
            }
            Self::Line(line) => Some(Action::Line(*line)),
            Self::Time => Some(moment(area, x)),
            Self::Past(moments) => Some(Action::Zoom(ZoomAction::Begin(moments.cell(x - area.x)))),
        }
    }
}

fn rank_clicked(rank: Rank, app: &App) -> Action {
    if app.selection.rank == Some(rank) && !app.overlay.help.is_open() {
        Action::Inspect
    } else {
        Action::SelectRank(rank)
    }
}

/// If several ranks share a place, the worst is visible, so the click means that one.
fn worst(rows: impl Iterator<Item = usize>, metric: Metric, app: &App) -> Option<Action> {
    let scale = app.job_view.scale(metric);
    let bad = |row: usize| {
        let value = app.job_view.rows().get(row).and_then(|row| metric.of(row));
        scale.zip(value).map_or(f64::NEG_INFINITY, |(scale, value)| scale.badness(value))
    };
    let listed = rows.filter(|&row| app.job_view.rows().get(row).is_some_and(|row| !row.aside));
    let row = listed.reduce(|one, other| if bad(other) > bad(one) { other } else { one })?;
    Some(rank_clicked(app.job_view.rows().get(row)?.status.rank, app))
}

fn moment(bar: Rect, x: u16) -> Action {
    let share = f64::from(x.saturating_sub(bar.x)) / f64::from(bar.width.saturating_sub(1).max(1));
    Action::GoTo(format!("{:.3}%", share.min(1.0) * 100.0))
}
