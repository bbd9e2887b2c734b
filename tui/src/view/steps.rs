//! Step times over time, their changes, their parts, and the ranks that lengthen them.

mod breakdown;
mod line;
mod spread;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
};
use xpu_model::figure;
use xpu_wire::unit::Nanoseconds;

use super::{
    header,
    list::{Cell, Column, List, known},
    panel::{self, Title},
};
use crate::{
    action::{Action, Choosing},
    app::{App, Metric, Row, StepColumn},
    glyph,
    hits::{Hits, Target},
    palette::Role,
    widget::scale::ALIKE,
    width::Breakpoint,
};

/// Lines for the parts of a step, and the smallest number of lines of a useful plot.
const PARTS: u16 = 5;
const LEAST: u16 = 4;

/// Columns of the spread, which is next to the parts of a step.
const BESIDE: u16 = 46;

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let below = header::draw_brief(app, breakpoint, area, buffer);
    if app.job_view.steps.is_none() {
        let inner =
            panel::draw(app.palette, breakpoint, Title { name: "Steps", ..Title::default() }, below, buffer);
        let text = "No steps yet. `from xpu_top import Tracer; tracer = Tracer()` and `tracer.step()` in the training loop mark them. Unmarked steps are detected from repeating collectives and graph launches, within some tens of steps; a job of one rank without graphs needs the mark.";
        panel::paragraph(app.palette, Role::Muted, text, inner, buffer);
        return;
    }
    let wide = breakpoint == Breakpoint::Wide;
    let frame = if wide { 2 } else { 1 };
    let changes = line::listed(app, breakpoint) as u16;
    // Spans of the program take one more line.
    let width = if wide { below.width.saturating_sub(BESIDE + 1 + frame) } else { below.width };
    let what_if = breakdown::what_if_lines(app, breakpoint, width);
    let spans = u16::from(!app.steps.spans.is_empty());
    let heights = match breakpoint {
        Breakpoint::Wide => [
            Constraint::Length(below.height * 4 / 10),
            Constraint::Length(frame + 7 + what_if),
            Constraint::Fill(1),
        ],
        Breakpoint::Medium => [
            Constraint::Length(7 + changes),
            Constraint::Length(PARTS + 4 + spans + what_if),
            Constraint::Fill(1),
        ],
        _ => [
            Constraint::Length(6 + changes.min(1)),
            Constraint::Length(PARTS + 1 + what_if),
            Constraint::Fill(1),
        ],
    };
    let [step_times, parts, ranks] = Layout::vertical(heights).areas(below);
    line::draw(app, breakpoint, step_times, buffer);
    if wide {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(BESIDE)]).spacing(1).areas(parts);
        breakdown::draw(app, breakpoint, left, buffer);
        spread::draw(app, breakpoint, right, buffer);
    } else {
        let [upper, lower] = Layout::vertical([
            Constraint::Length(
                PARTS + 1 + what_if + if breakpoint == Breakpoint::Medium { spans } else { 0 },
            ),
            Constraint::Fill(1),
        ])
        .areas(parts);
        breakdown::draw(app, breakpoint, upper, buffer);
        spread::draw(app, breakpoint, lower, buffer);
    }
    draw_ranks(app, breakpoint, ranks, buffer, hits);
}

/// Step times and the parts of a step, in a frame next to other panels.
pub(super) fn beside(app: &App, area: Rect, buffer: &mut Buffer) {
    // If the frame is narrow, its title has only the present step time.
    let inner =
        panel::draw(app.palette, Breakpoint::Wide, line::title(app, Breakpoint::Narrow), area, buffer);
    if app.job_view.steps.is_none() {
        let text = format!("No steps yet: {} shows how to mark them.", app.key("steps"));
        panel::paragraph(app.palette, Role::Muted, &text, inner, buffer);
        return;
    }
    let bars = if inner.height >= PARTS + LEAST { PARTS } else { 0 };
    let [plot, parts] = Layout::vertical([Constraint::Fill(1), Constraint::Length(bars)]).areas(inner);
    line::plot(app, line::listed(app, Breakpoint::Narrow), plot, buffer);
    breakdown::bars(app, Breakpoint::Medium, parts, buffer);
}

/// The ranks; those that lengthen steps come first.
fn draw_ranks(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    if area.height < 3 {
        return;
    }
    let lines = &app.steps.lines;
    let title = Title {
        name: "Ranks",
        about: match app.steps.order.by {
            StepColumn::Skew => "stragglers".to_owned(),
            StepColumn::StepTime => "by step time".to_owned(),
            StepColumn::Gemm => "by GEMM rate".to_owned(),
            StepColumn::Blocked => "by least host wait".to_owned(),
        },
        right: figure::counted(lines.len(), "rank", "ranks"),
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let rows = app.job_view.rows();
    let host = rows.iter().map(|row| row.status.host.as_str().len()).max().unwrap_or(0).clamp(4, 20);
    let columns = [
        Column::figure("rank", 6, 0),
        Column::text("host", host, 5),
        Column::figure("skew ms", 8, 0),
        Column::figure("step ms", 9, 0),
        Column::figure("TFLOPS", 8, 2),
        Column::figure("GEMM %", 7, 3),
        Column::figure("NCCL %", 7, 3),
        Column::figure("waits %", 7, 4),
        Column::figure("host waits %", 12, 1),
    ];
    let place = match app.steps.order.by {
        StepColumn::Skew => 2,
        StepColumn::StepTime => 3,
        StepColumn::Gemm => 4,
        StepColumn::Blocked => 8,
    };
    let list = List {
        columns: &columns,
        sorted: Some((place, app.steps.order.is_rising())),
        selected: selected(app),
        lines: lines.len(),
    };
    let shown = list.draw(app.palette, inner, buffer, |line| {
        lines.get(line).and_then(|&row| rows.get(row)).map_or_else(Vec::new, |row| cells(app, row))
    });
    hits.put(Rect { height: 1, ..inner }, Target::Do(Action::Pick(Choosing::Sort)));
    for (line, y) in shown.zip(inner.y + 1..) {
        if let Some(row) = lines.get(line).and_then(|&row| rows.get(row)) {
            hits.put(Rect { y, height: 1, ..inner }, Target::Rank(row.status.rank));
        }
    }
}

/// The line of the selected rank.
fn selected(app: &App) -> Option<usize> {
    let row = app.job_view.row_of(app.selection.rank?)?;
    app.steps.lines.iter().position(|&line| line == row)
}

fn cells(app: &App, row: &Row) -> Vec<Cell> {
    let status = &row.status;
    let job = app.job().filter(|_| app.job_view.counts(status.rank));
    let of = job.and_then(|job| job.breakdown(status.rank)).unwrap_or_default();
    let percent = |share: Option<f64>| known(share.map(|share| figure::tenths(share * 100.0)));
    let metric = |metric: Metric, value: Option<f64>, sign: &str| {
        let bad = value.zip(app.job_view.scale(metric)).is_some_and(|(value, scale)| scale.is_bad(value));
        let text = value.map(figure::tenths);
        if bad && row.is_heard() {
            (format!("{sign} {}", text.unwrap_or_default()), Role::Warning)
        } else {
            known(text)
        }
    };
    let step = app.job_view.step_time.map(Nanoseconds::milliseconds);
    let late = match (status.lateness_ms_p50, step) {
        (Some(late), Some(step)) if row.is_heard() && late > step * ALIKE => {
            (format!("{} {}", glyph::WARNING, figure::tenths(late)), Role::Warning)
        }
        (late, _) => known(late.map(figure::tenths)),
    };
    let mut cells = vec![
        (status.rank.to_string(), Role::Strong),
        (status.host.to_string(), Role::Text),
        late,
        metric(Metric::StepTime, status.step_ms_mean, glyph::HIGH),
        metric(Metric::Gemm, status.gemm_tflops.map(|rate| rate.0), glyph::LOW),
        percent(of.gemms),
        percent(of.collectives),
        percent(of.waiting),
        known(status.blocked_pct.map(figure::tenths)),
    ];
    if !row.is_heard() {
        for (_, role) in &mut cells {
            *role = Role::Muted;
        }
    }
    cells
}
