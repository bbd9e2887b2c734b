//! The table of ranks. Only visible rows are created.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
    widgets::{Block, BorderType, Borders, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{figure, status::RankState};
use xpu_wire::{frame::Life, unit::Nanoseconds};

use super::{panel::window, prompt};
use crate::{
    action::Action,
    app::{App, Bundle, Column, Fold, Metric, Row, Sort},
    glyph::{self, CURSOR, LOW, UNKNOWN, WARNING},
    hits::{Hits, Target},
    palette::Role,
    widget::{ends, row, scale::ALIKE, sparkline, wrap::cut, wrap::cut_at_word},
    width::Breakpoint,
};

/// Smallest useful width of the sparkline.
const HISTORY: usize = 8;
/// Width of a sparkline with its title. Up to this width, the sparkline takes precedence over the process id,
/// which says nothing about the rank's performance.
const TITLED: usize = 14;
/// Largest useful width.
const LONGEST: usize = 60;
/// Columns that are left out if there is no room, beginning with the first.
const SPARE: [Column; 8] = [
    Column::Pid,
    Column::Memory,
    Column::Temperature,
    Column::Power,
    Column::Gpu,
    Column::Clock,
    Column::Step,
    Column::StepTime,
];

/// Widest name of a group.
const LEAD: usize = 28;

/// Widest host name.
const HOST: usize = 20;

/// A column, and its cells.
struct Place {
    column: Column,
    cells: row::Column,
    /// Distance to the next column. A name after a figure needs more space than a second figure.
    gap: usize,
}

/// Draws it, and returns the part of the area that it takes.
pub(super) fn draw(
    app: &App,
    breakpoint: Breakpoint,
    area: Rect,
    buffer: &mut Buffer,
    hits: &mut Hits,
) -> Rect {
    let palette = app.palette;
    // A short list has a short frame.
    let rows = app.job_view.order.len().max(1) + usize::from(app.job_view.set_off > 0);
    let rows = u16::try_from(rows).unwrap_or(u16::MAX);
    let area = Rect { height: area.height.min(rows.saturating_add(3)), ..area };
    let borders = if breakpoint == Breakpoint::Wide { Borders::ALL } else { Borders::TOP };
    let block =
        Block::new().borders(borders).border_type(BorderType::Rounded).border_style(palette.of(Role::Faint));
    let inner = block.inner(area);
    if inner.height < 2 {
        return area;
    }
    let order = &app.job_view.order;
    let at = app.selection.rank.and_then(|rank| app.job_view.listed(app.job_view.row_of(rank)?));
    let rule = Some(app.job_view.set_off).filter(|&set_off| set_off > 0);
    let line_of = |at: usize| at + usize::from(rule.is_some_and(|rule| at >= rule));
    let lines =
        window(at.map(line_of), order.len() + usize::from(rule.is_some()), usize::from(inner.height) - 1);
    let is_seen = |at: &usize| lines.contains(&line_of(*at));
    let first = (0..order.len()).find(is_seen).unwrap_or(0);
    let shown = &order[first..first + (first..order.len()).take_while(is_seen).count()];
    let range = match &app.job_view.filtered {
        Some(_) if order.is_empty() => format!(" {} ", prompt::matched(app)),
        filtered => format!(
            " {}–{} of {} ",
            figure::count((first + usize::from(!shown.is_empty())) as u64),
            figure::count((first + shown.len()) as u64),
            filtered.as_ref().map_or_else(|| figure::count(order.len() as u64), |_| prompt::matched(app)),
        ),
    };
    let title = title(app, usize::from(area.width).saturating_sub(range.width() + 4));
    block
        .title_top(title)
        .title_top(Line::styled(range, palette.of(Role::Muted)).right_aligned())
        .render(area, buffer);
    if shown.is_empty() && app.listing.filter.is_some() {
        let text = "no rank matches the filter: / edits it, Esc drops it";
        buffer.set_stringn(inner.x, inner.y + 1, text, usize::from(inner.width), palette.of(Role::Muted));
    }
    // Rows of folded ranks begin with their group.
    let widest = app.job_view.bundles.iter().map(|bundle| lead(bundle).width()).max();
    let indent = widest.map_or(0, |width| width.min(LEAD) as u16 + 2);
    let table = Rect { x: inner.x + indent, width: inner.width.saturating_sub(indent), ..inner };
    let places = places(app, usize::from(table.width));
    head(app, &places, table, buffer, hits);
    let y_of = |line: usize| inner.y + 1 + (line - lines.start) as u16;
    if let Some(rule) = rule.filter(|rule| lines.contains(rule)) {
        ends::rule(palette.of(Role::Faint), Rect { y: y_of(rule), height: 1, ..inner }, buffer);
    }
    for (nth, &index) in (first..).zip(shown) {
        let (row, y) = (&app.job_view.rows()[index], y_of(line_of(nth)));
        let selected = at == Some(nth);
        if let Some(bundle) = app.job_view.bundle_of(index) {
            let ground = if selected { palette.selected() } else { palette.of(Role::Strong) };
            let text = cut(&lead(bundle), LEAD);
            buffer.set_style(Rect { y, height: 1, ..inner }, if selected { ground } else { Style::new() });
            buffer.set_stringn(inner.x + 1, y, text, usize::from(indent), ground);
        }
        hits.put(Rect { y, height: 1, ..inner }, Target::Rank(row.status.rank));
        body(app, &places, row, selected, Rect { y, height: 1, ..table }, buffer);
    }
    area
}

/// The listed ranks, the representative of folded ones, and the present filter.
fn title(app: &App, width: usize) -> Line<'static> {
    let palette = app.palette;
    let accent = palette.of(Role::Accent);
    let name = match &app.listing.fold {
        Fold::Hosts => "Hosts".to_owned(),
        Fold::Kind(kind) if kind.contains(' ') => kind.clone(),
        Fold::Kind(kind) => format!("{kind} groups"),
        Fold::Nothing => "Ranks".to_owned(),
    };
    let folded = !app.job_view.bundles.is_empty();
    let name = if folded { name } else { "Ranks".to_owned() };
    let mut title = Line::from(Span::styled(format!(" {name} "), accent.patch(palette.of(Role::Strong))));
    if folded {
        let about = format!("the worst rank of each, by {} ", app.job_view.judge.title());
        let about = cut_at_word(&about, width.saturating_sub(title.width()));
        title.push_span(Span::styled(about, palette.of(Role::Muted)));
    }
    if let Some(filter) = &app.listing.filter {
        let text = cut(filter.text(), width.saturating_sub(title.width() + 3));
        title.push_span(Span::styled(format!("/ {text} "), accent));
    }
    title
}

/// The group, and the number of its ranks.
fn lead(bundle: &Bundle) -> String {
    format!("{} ×{}", bundle.name, figure::count(bundle.rows.len() as u64))
}

/// The columns that fit. Columns that identify a process are left out first, those with its performance last.
fn places(app: &App, width: usize) -> Vec<Place> {
    let host = app
        .job_view
        .rows()
        .iter()
        .map(|row| row.status.host.as_str().len())
        .max()
        .unwrap_or(0)
        .clamp(4, HOST);
    let place = |column| {
        let cells = match column {
            Column::Findings | Column::Rank => row::Column::figure(6),
            Column::Host => row::Column::name(host),
            Column::Pid => row::Column::figure(8),
            Column::Step => row::Column::figure(9),
            Column::StepTime => row::Column::figure(10),
            Column::Gemm => row::Column::figure(9),
            Column::Bus => row::Column::figure(9),
            Column::Skew => row::Column::figure(9),
            Column::Gpu => row::Column::figure(5),
            Column::Clock => row::Column::figure(6),
            Column::Power => row::Column::figure(5),
            Column::Temperature => row::Column::figure(4),
            Column::Memory => row::Column::figure(8),
            Column::State => row::Column::name(8),
        };
        Place { column, cells, gap: 1 }
    };
    // If the driver reports nothing, no space is reserved.
    let has_device = app.job_view.rows().iter().any(|row| row.status.device.is_some());
    let columns = Column::ALL.into_iter().filter(|column| match column {
        Column::Findings => false,
        column => has_device || !Column::DEVICE.contains(column),
    });
    let mut places: Vec<_> = columns.map(place).collect();
    for spare in SPARE {
        let taken: usize = places.iter().map(|place| place.cells.width + 1).sum();
        let history = if spare == Column::Pid { TITLED + 2 } else { 0 };
        if taken + history > width {
            places.retain(|place| place.column != spare);
        }
    }
    let last = places.len().saturating_sub(2);
    for (at, place) in places.iter_mut().enumerate() {
        place.gap = if place.column == Column::Rank || at == last { 2 } else { 1 };
    }
    places
}

fn head(app: &App, places: &[Place], area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let mut x = area.x;
    for place in places {
        let sorted = app.listing.sort.column == place.column;
        let arrow = if app.listing.sort.is_rising() { glyph::RISING } else { glyph::FALLING };
        let name = match place.column {
            Column::Rank if !app.job_view.bundles.is_empty() => "worst",
            column => column.title(),
        };
        let text = format!("{name}{}", if sorted { arrow } else { "" });
        let style = app.palette.of(if sorted { Role::Accent } else { Role::Muted });
        let right = area.right().saturating_sub(x);
        buffer.set_stringn(x, area.y, place.cells.cell(&text), usize::from(right), style);
        // A second click reverses the order.
        let sort = Sort { column: place.column, reversed: sorted && !app.listing.sort.reversed };
        let width = (place.cells.width as u16).min(right);
        hits.put(Rect { x, width, height: 1, ..area }, Target::Do(Action::SortBy(sort)));
        x += (place.cells.width + place.gap) as u16;
    }
    let left = usize::from(area.right().saturating_sub(x));
    if left >= HISTORY {
        let name = app.listing.sort.column.metric().map_or(Column::Gemm, |_| app.listing.sort.column).title();
        buffer.set_stringn(x, area.y, format!("{name} history"), left, app.palette.of(Role::Muted));
    }
}

fn body(app: &App, places: &[Place], row: &Row, selected: bool, area: Rect, buffer: &mut Buffer) {
    let palette = app.palette;
    let ground = if selected { palette.selected() } else { Style::new() };
    buffer.set_style(area, ground);
    let mut x = area.x;
    for place in places {
        let (text, role) = value(app, row, place.column);
        let role = if row.is_heard() || place.column == Column::State { role } else { Role::Muted };
        let mut style = ground.patch(palette.of(role));
        if selected && matches!(role, Role::Text | Role::Faint | Role::Muted) {
            style = ground;
        }
        buffer.set_stringn(
            x,
            area.y,
            place.cells.cell(&text),
            usize::from(area.right().saturating_sub(x)),
            style,
        );
        x += (place.cells.width + place.gap) as u16;
    }
    if selected {
        buffer.set_string(area.x, area.y, CURSOR, ground.patch(palette.of(Role::Accent)));
    }
    let left = usize::from(area.right().saturating_sub(x)).saturating_sub(1).min(LONGEST);
    if left >= HISTORY
        && let Some(view) = app.job().and_then(|job| job.rank(row.status.rank))
    {
        let metric = app.listing.sort.column.metric().unwrap_or_default();
        // The job keeps every second of this figure. For the others, the screen keeps what it has received.
        let history: Vec<_> = match metric {
            Metric::Gemm => view.gemm_history().collect(),
            _ => app
                .job_view
                .row_of(row.status.rank)
                .map_or_else(Vec::new, |at| app.history.values(at, metric).into_iter().flatten().collect()),
        };
        let scale = app.job_view.scale(metric);
        let full = scale.map_or(0.0, |scale| scale.highest) as f32;
        let low =
            row.is_heard() && scale.zip(metric.of(row)).is_some_and(|(scale, value)| scale.is_bad(value));
        let style = palette.of(if low { Role::Warning } else { Role::Faint });
        let bars = sparkline::bars(&history, full, left);
        let bars = if low { bars } else { sparkline::calm(bars) };
        buffer.set_stringn(x, area.y, bars, left, ground.patch(style));
    }
}

fn value(app: &App, row: &Row, column: Column) -> (String, Role) {
    let status = &row.status;
    let job_view = &app.job_view;
    let known = |text: Option<String>| match text {
        Some(text) => (text, Role::Text),
        None => (UNKNOWN.to_owned(), Role::Faint),
    };
    let compared = |metric: Metric| match (metric.of(row), job_view.scale(metric)) {
        (Some(value), Some(scale)) if row.is_heard() && scale.is_bad(value) => {
            (format!("{LOW} {}", figure::tenths(value)), Role::Warning)
        }
        (value, _) => known(value.map(figure::tenths)),
    };
    match column {
        Column::Findings | Column::Rank => (status.rank.to_string(), Role::Strong),
        Column::Host => (cut(status.host.as_str(), HOST), Role::Text),
        Column::Pid => (status.pid.to_string(), Role::Muted),
        Column::Step => known(match status.step {
            Some(step) => Some(figure::count(step.0)),
            None => {
                status.step_at_least.map(|bound| format!("{}{}", glyph::AT_LEAST, figure::count(bound.0)))
            }
        }),
        Column::StepTime => known(status.step_ms_mean.map(figure::tenths)),
        Column::Gemm => compared(Metric::Gemm),
        Column::Bus => compared(Metric::Bus),
        // Noise is measured against a step, and so is arrival skew.
        Column::Skew => match (status.lateness_ms_p50, job_view.step_time.map(Nanoseconds::milliseconds)) {
            (Some(late), Some(step)) if row.is_heard() && late > step * ALIKE => {
                (format!("{WARNING} {}", figure::tenths(late)), Role::Warning)
            }
            (late, _) => known(late.map(figure::tenths)),
        },
        Column::Gpu | Column::Clock | Column::Power | Column::Temperature | Column::Memory => {
            device(row, column)
        }
        Column::State => state(row),
    }
}

/// A rank's state in a word, which is the same on every page.
pub(super) fn state(row: &Row) -> (String, Role) {
    let status = &row.status;
    match (row.life, status.state, row.named) {
        (Life::Ended, ..) => (format!("{} ended", glyph::ENDED), Role::Muted),
        (Life::Alive, ..) if !row.is_heard() => {
            (format!("{} {}", glyph::STALE, figure::age(row.age)), Role::Warning)
        }
        (_, RankState::Ok, _) if !status.enabled => (format!("{} off", glyph::OFF), Role::Warning),
        (_, RankState::Ok, Some(kind)) => (format!("{WARNING} {}", glyph::named(kind)), Role::Warning),
        _ => {
            let glyph::Sign { glyph: sign, word, role } = glyph::state(status.state);
            (format!("{sign} {word}"), role)
        }
    }
}

/// The driver's data about the rank's GPU; greyed out once that is old.
fn device(row: &Row, column: Column) -> (String, Role) {
    let Some(device) = &row.status.device else { return (UNKNOWN.to_owned(), Role::Faint) };
    let text = match column {
        Column::Gpu => device.gpu_pct.map(|share| share.to_string()),
        Column::Clock => device.sm_mhz.map(|clock| figure::count(clock.into())),
        Column::Power => device.power_w.map(|power| format!("{power:.0}")),
        Column::Temperature => device.temperature_c.map(|degrees| degrees.to_string()),
        Column::Memory => device.memory_used_bytes.map(figure::bytes),
        _ => None,
    };
    let role = if device.is_stale() { Role::Muted } else { Role::Text };
    text.map_or_else(|| (UNKNOWN.to_owned(), Role::Faint), |text| (text, role))
}
