//! What job this is, whether it runs, and how fast.

use std::time::Duration;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
};

use crate::{
    app::{App, Choice, Metric, Survey},
    figure, glyph,
    palette::{Palette, Role},
    widget::ends,
    width::Room,
};

pub fn height(room: Room) -> u16 {
    if room == Room::Wide { 5 } else { 2 }
}

pub fn draw(app: &App, room: Room, area: Rect, buffer: &mut Buffer) {
    draw_title(app, Rect { height: 1, ..area }, buffer);
    let figures = figures(&app.survey);
    if room == Room::Wide {
        ends::rule(app.palette.of(Role::Faint), Rect { y: area.y + 1, height: 1, ..area }, buffer);
        tiles(&figures, app.palette, Rect { y: area.y + 2, height: 2, ..area }, buffer);
    } else {
        row(&figures, app.palette, Rect { y: area.y + 1, height: 1, ..area }, buffer);
    }
}

pub fn draw_title(app: &App, area: Rect, buffer: &mut Buffer) {
    let palette = app.palette;
    let strong = palette.of(Role::Strong);
    let mut left = vec![
        Span::styled("xpu-top", palette.of(Role::Accent).patch(strong)),
        Span::raw("   "),
        Span::styled(app.job().map_or("", |job| job.name().as_str()), strong),
    ];
    let jobs = app.jobs.iter().count();
    if jobs > 1 {
        let shown = app.jobs.iter().position(|job| Some(job.name()) == app.job().map(|job| job.name()));
        let which = if matches!(app.choice, Choice::Named(_)) { "" } else { ", foremost" };
        let text = format!("   job {} of {jobs}{which}", shown.map_or(0, |at| at + 1));
        left.push(Span::styled(text, palette.of(Role::Muted)));
    }
    let (glyph, words, role) = status(app);
    let mut right = Vec::new();
    let down = app.roads.down().count();
    if down > 0 {
        let text = format!("{} {} down", glyph::ALARM, figure::counted(down, "host", "hosts"));
        right.extend([Span::styled(text, palette.of(Role::Alarm)), Span::raw("   ")]);
    }
    right.push(Span::styled(format!("{glyph} {words}"), palette.of(role).patch(strong)));
    ends::draw(&left.into(), &right.into(), area, buffer);
}

/// Whether what is on the screen is of now.
pub fn status(app: &App) -> (&'static str, String, Role) {
    let survey = &app.survey;
    if app.job().is_none() {
        (glyph::WAITING, "WAITING".to_owned(), Role::Muted)
    } else if survey.is_over() {
        (glyph::ENDED, "ENDED".to_owned(), Role::Muted)
    } else if survey.is_stale() {
        (glyph::STALE, format!("STALE {}", figure::age(survey.age)), Role::Warning)
    } else {
        (glyph::GOOD, "LIVE".to_owned(), Role::Good)
    }
}

/// One figure of the header.
struct Figure {
    label: &'static str,
    value: String,
    unit: String,
    /// Louder than its fellows.
    role: Role,
}

fn figures(survey: &Survey) -> Vec<Figure> {
    let plain = |label, value: String, unit: &str| Figure { label, value, unit: unit.to_owned(), role: Role::Strong };
    let unknown = || glyph::UNKNOWN.to_owned();
    let median = |metric| survey.scale(metric).map_or_else(unknown, |scale| figure::tenths(scale.median));
    let split = |text: String| match text.split_once(' ') {
        Some((value, unit)) => (value.to_owned(), unit.to_owned()),
        None => (text, String::new()),
    };
    let (step_time, step_unit) = split(survey.step_time.map_or_else(unknown, figure::time));
    let dropped = survey.losses.records + survey.losses.frames;
    let loud = |figure: Figure, if_so: bool| if if_so { Figure { role: Role::Warning, ..figure } } else { figure };
    vec![
        step(survey),
        plain("step time", step_time, &step_unit),
        plain("GEMM", median(Metric::Gemm), Metric::Gemm.unit()),
        plain("NCCL bus", median(Metric::Bus), Metric::Bus.unit()),
        loud(
            plain("ranks", figure::count(survey.rows().len() as u64), &format!("of {}", figure::count(survey.world_size.into()))),
            survey.rows().len() < survey.world_size as usize,
        ),
        plain("hosts", figure::count(survey.hosts as u64), ""),
        plain("overhead", format!("{:.2}", survey.overhead * 100.0), "%"),
        loud(plain("dropped", figure::count(dropped), ""), dropped > 0),
    ]
}

/// Steps as a range, because a rank that stays behind is news; and how long ago, once that is longer than it should be.
fn step(survey: &Survey) -> Figure {
    let value = match survey.steps {
        None => glyph::UNKNOWN.to_owned(),
        Some((least, most)) if least == most => figure::count(most.0),
        Some((least, most)) => format!("{}–{}", figure::count(least.0), figure::count(most.0)),
    };
    let expected = survey.step_time.map_or(Duration::ZERO, |time| Duration::from_nanos(time.0 * 3));
    let overdue = survey.since_step.filter(|&since| since > expected.max(Duration::from_secs(5)) && !survey.is_over());
    let unit = overdue.map_or_else(String::new, |since| format!("{} ago", figure::age(since)));
    let role = if overdue.is_some() { Role::Warning } else { Role::Strong };
    Figure { label: "step", value, unit, role }
}

/// Each figure under its label.
fn tiles(figures: &[Figure], palette: Palette, area: Rect, buffer: &mut Buffer) {
    let columns = Layout::horizontal(figures.iter().map(|_| Constraint::Fill(1))).split(area);
    for (figure, column) in figures.iter().zip(columns.iter()) {
        let label = Line::styled(figure.label, palette.of(Role::Muted));
        buffer.set_line(column.x, column.y, &label, column.width);
        buffer.set_line(column.x, column.y + 1, &figure.line(palette), column.width);
    }
}

/// All figures in one line, as many as there is room for.
fn row(figures: &[Figure], palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut line = Line::default();
    for figure in figures {
        let mut piece = Line::default();
        // A unit says what the figure is; without one it takes its label.
        if figure.names_itself() {
            piece.push_span(Span::styled(format!("{} ", figure.label), palette.of(Role::Muted)));
        }
        piece.extend(figure.line(palette));
        let gap = if line.spans.is_empty() { 0 } else { 2 };
        if line.width() + gap + piece.width() > usize::from(area.width) {
            break;
        }
        line.push_span(Span::raw(" ".repeat(gap)));
        line.extend(piece);
    }
    buffer.set_line(area.x, area.y, &line, area.width);
}

impl Figure {
    fn names_itself(&self) -> bool {
        !matches!(self.label, "GEMM" | "NCCL bus")
    }

    fn line(&self, palette: Palette) -> Line<'_> {
        let value = Span::styled(&self.value, palette.of(Role::Strong).patch(palette.of(self.role)));
        let mut spans = vec![value];
        if !self.unit.is_empty() {
            spans.extend([Span::raw(" "), Span::styled(&self.unit, palette.of(Role::Muted))]);
        }
        spans.into()
    }
}
