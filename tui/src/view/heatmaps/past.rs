//! A quantity of every rank over the last minutes. It shows which rank was slow, since when, and whether this
//! recurs.

use std::{
    ops::{Range, RangeInclusive},
    time::Duration,
};

use ratatui::{buffer::Buffer, layout::Rect};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::figure;
use xpu_wire::unit::Moment;

use super::{Frame, GAP, framed, places::of_value};
use crate::{
    app::{App, Columns, Metric, PERIOD, PastValue, Zoom},
    glyph::{ALARM, CURSOR},
    hits::{Hits, Moments, Target},
    palette::Role,
    widget::{cell::Cell, scale::Scale, timemap, timemap::TimeMap, wrap::cut_front},
};

/// Most columns of a row's ranks, and of their host.
const LABEL: usize = 17;
/// Most columns of the terminal per cell.
const WIDEST: u16 = 6;
/// The text for the time before watching began, where it fits.
const BEFORE: &str = "not watched yet";

pub(in crate::view) struct Past {
    frame: timemap::Frame,
    label: usize,
    /// The columns that are shown.
    columns: RangeInclusive<u64>,
    zoom: Zoom,
}

/// The marked or shown time, and the next key.
fn captions(app: &App, zoom: Zoom) -> Vec<String> {
    let said = |(first, last): Columns| {
        let at = |column: u64| figure::time_of_day(Moment(column * PERIOD.as_nanos() as u64));
        let length = PERIOD * u32::try_from(last - first + 1).unwrap_or(u32::MAX);
        format!("{} to {} UTC, {}", at(first), at(last + 1), figure::age(length))
    };
    if let Some(marked) = zoom.marked() {
        return vec![said(marked), "release to zoom in".to_owned()];
    }
    zoom.only(app.history.known()).map_or_else(Vec::new, |only| vec![said(only), "Esc shows all".to_owned()])
}

impl Past {
    /// The layout of a map and its labels of this size.
    pub(super) fn plan(app: &App, zoom: Zoom, width: usize, height: usize) -> Self {
        let (first, last) = zoom.shown(app.history.known());
        let fit = |width| {
            let columns = (last - first) as usize + 1;
            let (rows, size) = match app.job_view.bundles.len() {
                0 => (app.job_view.rows().len(), app.job_view.rank_layout.shape().size),
                bundles => (bundles, 1),
            };
            timemap::Frame::fit(rows, size, columns, width, height, app.palette.has_halves())
        };
        // The number of ranks per row does not depend on the width, but determines the names of the rows and
        // so the names' width.
        let frame = fit(width);
        let plan = Self { frame, label: LABEL.min(width / 3), columns: first..=last, zoom };
        let names = (0..frame.height()).map(|line| plan.name(app, line, plan.label).width());
        let label = names.max().unwrap_or(0).min(plan.label);
        let space = width.saturating_sub(label + GAP);
        let frame = fit(space);
        let span = frame.span as u64;
        // Cells have fixed starts on the time axis, so the map moves only by whole cells.
        let shown = last / span - (last / span - first / span).min(space.max(1) as u64 - 1);
        Self { frame, label, columns: (shown * span).max(first)..=last, zoom }
    }

    pub(super) fn height(&self) -> usize {
        self.frame.height()
    }

    /// The length of the shown time.
    fn length(&self, app: &App) -> String {
        let columns = self.columns.end() - self.columns.start() + u64::from(app.history.last().is_some());
        let seconds = PERIOD * u32::try_from(columns).unwrap_or(u32::MAX);
        format!("last {}", figure::age(seconds.max(Duration::from_secs(1))))
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
        let scale = app.history.scale(metric, self.columns.clone());
        let ranks = self.frame.fold;
        let what = if app.job_view.bundles.is_empty() { "ranks" } else { "groups" };
        let folded = match ranks {
            1 => (what == "groups").then(|| "the worst rank of each".to_owned()),
            _ => Some(format!("{ranks} {what} a row, the worst shown")),
        };
        let notes = std::iter::once(self.length(app)).chain(folded).collect();
        let span = PERIOD * self.frame.span as u32;
        let means = format!(" over time, {} a cell ", figure::age(span));
        let caption = captions(app, self.zoom);
        let frame = Frame { metric, means: &means, scale: scale.as_ref(), notes, caption, corner };
        let inner = framed(app, &frame, area, buffer, hits);
        let cells: Vec<_> =
            (0..self.frame.rows).map(|row| self.cells(app, metric, scale.as_ref(), row)).collect();
        self.labels(app, &cells, inner, buffer);
        let offset = (self.label + GAP) as u16;
        let map = Rect { x: inner.x + offset, width: inner.width.saturating_sub(offset), ..inner };
        let longest = cells.iter().map(Vec::len).max().unwrap_or(0);
        // A zoomed range takes the whole width, as far as cells can widen.
        let alone = self.zoom.only(app.history.known()).is_some();
        let wide = if alone { (map.width / longest.max(1) as u16).clamp(1, WIDEST) } else { 1 };
        TimeMap { frame: self.frame, cells: &cells, wide, palette: app.palette }.draw(map, buffer);
        for (line, y) in (0..self.frame.height()).zip(inner.y..inner.bottom()) {
            hits.put(
                Rect { y, height: 1, ..inner },
                Target::Worst(self.members(app, self.frame.rows_at(line)), metric),
            );
        }
        let empty = usize::from(map.width).saturating_sub(longest * usize::from(wide));
        let shown = (*self.columns.start(), *self.columns.end());
        let moments = Moments { shown, span: self.frame.span as u64, wide };
        let seen = Rect { x: map.x + empty as u16, width: map.width - empty as u16, ..map };
        hits.put(
            Rect { height: self.frame.height() as u16, ..seen }.intersection(map),
            Target::Past(moments),
        );
        let begins = app.history.first() == Some(*self.columns.start());
        if begins && empty > BEFORE.len() {
            let middle = map.y + (self.frame.height() / 2) as u16;
            let x = map.x + ((empty - BEFORE.len()) / 2) as u16;
            buffer.set_stringn(x, middle, BEFORE, empty, app.palette.of(Role::Faint));
        }
    }

    /// The rows of the job view behind some rows of the map.
    fn members(&self, app: &App, rows: Range<usize>) -> Vec<usize> {
        let parts = rows.start * self.frame.fold..rows.end * self.frame.fold;
        let job_view = &app.job_view;
        if job_view.bundles.is_empty() {
            return (parts.start..parts.end.min(job_view.rows().len())).collect();
        }
        let bundles = job_view.bundles.iter().skip(parts.start).take(parts.len());
        bundles.flat_map(|bundle| bundle.rows.iter().copied()).collect()
    }

    /// The text left of a terminal line.
    fn name(&self, app: &App, line: usize, width: usize) -> String {
        let rows = self.frame.rows_at(line);
        let bundles = &app.job_view.bundles;
        let from = rows.start * self.frame.fold;
        let Some(first) = bundles.get(from) else { return named(app, &self.members(app, rows), width) };
        let last = bundles.len().min(rows.end * self.frame.fold) - 1;
        if last > from { format!("{}…{}", first.name, bundles[last].name) } else { first.name.clone() }
    }

    fn cells(&self, app: &App, metric: Metric, scale: Option<&Scale>, row: usize) -> Vec<Cell> {
        let members = self.members(app, row..row + 1);
        let is_aside = |rank: usize| app.job_view.rows().get(rank).is_some_and(|row| row.aside);
        let aside = !members.is_empty() && members.iter().all(|&rank| is_aside(rank));
        let cell = |value_then: &PastValue| match (value_then, scale) {
            _ if aside => Cell::Aside,
            (PastValue::Alarm, _) => Cell::Alarm,
            (PastValue::Waits, _) => Cell::Waits,
            (PastValue::Value(value), Some(scale)) => of_value(*value, scale),
            _ => Cell::Unknown,
        };
        let worst = app.history.worst(members.into_iter(), metric, self.columns.clone());
        let span = self.frame.span;
        // The first cell is cut at the start of the past.
        let cut = (span as u64 - self.columns.start() % span as u64) as usize % span;
        let (first, rest) = worst.split_at(cut.min(worst.len()));
        let chunks = Some(first).filter(|first| !first.is_empty()).into_iter().chain(rest.chunks(span));
        let worst = chunks.map(|cells| cells.iter().map(cell).reduce(Cell::worse).unwrap_or(Cell::Absent));
        let Some((from, to)) = self.zoom.marked() else { return worst.collect() };
        // Time outside of the drag is dimmed.
        let begin = self.columns.start() - self.columns.start() % span as u64;
        let begins = (begin..).step_by(span);
        let is_in = |begin: u64| begin <= to && begin + span as u64 > from;
        worst.zip(begins).map(|(cell, begin)| if is_in(begin) { cell } else { Cell::Aside }).collect()
    }

    /// The ranks of each line, with a sign if the worst of them is conspicuous now.
    fn labels(&self, app: &App, cells: &[Vec<Cell>], area: Rect, buffer: &mut Buffer) {
        let selected = app.selection.rank.and_then(|rank| app.job_view.row_of(rank));
        for (line, y) in (0..self.frame.height()).zip(area.y..area.bottom()) {
            let rows = self.frame.rows_at(line);
            let now = rows.clone().filter_map(|row| cells[row].last().copied()).reduce(Cell::worse);
            let members = self.members(app, rows);
            let text = self.name(app, line, self.label);
            buffer.set_stringn(
                area.x,
                y,
                cut_front(&text, self.label),
                self.label,
                app.palette.of(Role::Muted),
            );
            let sign = match now {
                Some(Cell::Value { sign, .. }) => sign.map(|sign| (sign, Role::Warning)),
                Some(Cell::Alarm) => Some((ALARM, Role::Alarm)),
                _ => None,
            };
            let sign = selected.filter(|row| members.contains(row)).map(|_| (CURSOR, Role::Accent)).or(sign);
            if let Some((sign, role)) = sign {
                buffer.set_string(area.x + self.label as u16, y, sign, app.palette.of(role));
            }
        }
    }
}

/// `gpu-005 37`, `32-39`: with the host if the ranks are on a single one and there is room.
fn named(app: &App, rows: &[usize], width: usize) -> String {
    let row = |at: Option<&usize>| app.job_view.rows().get(*at?);
    let (Some(first), Some(last)) = (row(rows.first()), row(rows.last())) else { return String::new() };
    let (from, to) = (first.status.rank, last.status.rank);
    let ranks = if from == to { from.to_string() } else { format!("{from}-{to}") };
    let whole = format!("{} {ranks}", first.status.host);
    if first.status.host == last.status.host && whole.width() <= width { whole } else { ranks }
}
