//! The job's name, whether it runs, and its pace.

use std::time::Duration;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{
    figure,
    finding::{Cost, Kind},
    status::StepSign,
};

use super::{headline, timebar};
use crate::{
    app::{App, Choice, Headline, JobView, Metric},
    glyph,
    palette::{Palette, Role},
    widget::ends,
    width::Breakpoint,
};

pub(super) fn height(breakpoint: Breakpoint) -> u16 {
    if breakpoint == Breakpoint::Wide { 5 } else { 2 }
}

pub(super) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    draw_title(app, breakpoint, Rect { height: 1, ..area }, buffer);
    let mut figures = figures(&app.job_view);
    if breakpoint == Breakpoint::Wide {
        figures.splice(5..5, lost(&app.job_view));
        ends::rule(app.palette.of(Role::Faint), Rect { y: area.y + 1, height: 1, ..area }, buffer);
        tiles(&figures, app.palette, Rect { y: area.y + 2, height: 2, ..area }, buffer);
    } else {
        row(&figures, app.palette, Rect { y: area.y + 1, height: 1, ..area }, buffer);
    }
}

/// The title, and the worst finding on a line below it. Returns the remaining area.
pub(super) fn draw_brief(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) -> Rect {
    draw_title(app, breakpoint, Rect { height: 1, ..area }, buffer);
    let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let reported: Vec<_> = headline::brief(app, usize::from(area.width)).into_iter().collect();
    headline::lines(&reported, below, buffer)
}

pub(super) fn draw_title(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let palette = app.palette;
    let strong = palette.of(Role::Strong);
    let mut left = vec![
        Span::styled("xpu-top", palette.of(Role::Accent).patch(strong)),
        Span::raw("   "),
        Span::styled(app.job().map_or("", |job| job.name().as_str()), strong),
    ];
    let jobs = app.observed.jobs.iter().count();
    if jobs > 1 {
        let shown = app
            .observed
            .jobs
            .iter()
            .position(|job| Some(job.name()) == app.job().map(xpu_model::job::Job::name));
        let which = if matches!(app.selection.choice, Choice::Named(_)) { "" } else { ", foremost" };
        let text = format!("   job {} of {jobs}{which}", shown.map_or(0, |at| at + 1));
        left.push(Span::styled(text, palette.of(Role::Muted)));
    }
    let Sign { glyph, word: words, role } = status(app);
    let mut right: Vec<_> = timebar::recording(app).into_iter().chain(timebar::capture(app)).collect();
    let down = app.connections.down().count();
    if down > 0 {
        let text = format!("{} {} down", glyph::ALARM, figure::counted(down, "host", "hosts"));
        right.extend([Span::styled(text, palette.of(Role::Alarm)), Span::raw("   ")]);
    }
    right.push(Span::styled(format!("{glyph} {words}"), palette.of(role).patch(strong)));
    if breakpoint < Breakpoint::Wide && app.job().is_some() {
        // The additional text of the tiles on a wide terminal, if there is room.
        let dropped = app.job_view.losses.records + app.job_view.losses.frames;
        let overhead = format!(
            "overhead {}   dropped {}   ",
            figure::fine_percent(app.job_view.overhead),
            figure::count(dropped)
        );
        let lost = app.job_view.lost.map(|lost| {
            let since = figure::age(lost.since());
            (format!("lost {} in {since}   ", lost_hours(&lost.cost)), Role::Warning)
        });
        for (text, role) in lost.into_iter().chain([(overhead, Role::Muted)]) {
            let taken: usize = left.iter().chain(&right).map(Span::width).sum();
            if taken + text.width() < usize::from(area.width) {
                right.insert(0, Span::styled(text, palette.of(role)));
            }
        }
    }
    ends::draw(&left.into(), &right.into(), area, buffer);
}

/// A state: its glyph, its word, and its emphasis.
pub(super) struct Sign {
    pub(super) glyph: &'static str,
    pub(super) word: String,
    pub(super) role: Role,
}

/// The sign of whether the screen shows the present, and of the job's state.
pub(super) fn status(app: &App) -> Sign {
    let job_view = &app.job_view;
    if app.job().is_none() {
        Sign { glyph: glyph::WAITING, word: "WAITING".to_owned(), role: Role::Muted }
    } else if job_view.is_over() {
        Sign { glyph: glyph::ENDED, word: "ENDED".to_owned(), role: Role::Muted }
    } else if job_view.is_stale() {
        Sign {
            glyph: glyph::STALE,
            word: format!("STALE {}", figure::age(job_view.age)),
            role: Role::Warning,
        }
    } else if let Some(finding) = job_view.stall() {
        let since = Duration::from_secs_f64(finding.since_s.max(0.0));
        let what = if finding.kind == Kind::Exited { "RANK GONE" } else { "HANG" };
        Sign { glyph: glyph::ALARM, word: format!("{what} {}", figure::age(since)), role: Role::Alarm }
    } else if app.connections.down().next().is_some() || job_view.heard < job_view.world_size as usize {
        Sign { glyph: glyph::WARNING, word: "PARTIAL".to_owned(), role: Role::Warning }
    } else {
        match app.playback() {
            Some(playback) => {
                Sign { glyph: glyph::GOOD, word: timebar::word(playback).to_owned(), role: Role::Accent }
            }
            None => Sign { glyph: glyph::GOOD, word: "LIVE".to_owned(), role: Role::Good },
        }
    }
}

/// One figure of the header.
struct Figure {
    label: String,
    value: String,
    unit: String,
    /// Text before the value that identifies the figure where there is no label.
    before: &'static str,
    after: &'static str,
    /// The emphasis.
    role: Role,
}

impl Figure {
    fn new(
        label: &'static str,
        before: &'static str,
        after: &'static str,
        value: String,
        unit: &str,
    ) -> Self {
        Self { label: label.to_owned(), value, unit: unit.to_owned(), before, after, role: Role::Strong }
    }

    fn emphasize_if(self, loud: bool) -> Self {
        if loud { Self { role: Role::Warning, ..self } } else { self }
    }
}

fn figures(job_view: &JobView) -> Vec<Figure> {
    let unknown = || glyph::UNKNOWN.to_owned();
    let Headline { step_time, gemm, bus, tokens_per_s, mfu, age } = job_view.headline;
    let median = |known: Option<f64>| known.map_or_else(unknown, figure::tenths);
    let step_time = step_time.map_or_else(unknown, figure::time);
    let (step_time, step_unit) = step_time.split_once(' ').unwrap_or((&step_time, ""));
    let (heard, of) = (job_view.heard, job_view.world_size as usize);
    let ranks = if heard < of { "ranks heard" } else { "ranks" };
    let labels = if age.is_some() {
        [
            ("last step time", "last "),
            ("last GEMM", "last "),
            ("last NCCL bus", "last "),
            ("last tokens", "last "),
            ("last MFU", "last MFU "),
        ]
    } else {
        [("step time", ""), ("GEMM", ""), ("NCCL bus", ""), ("tokens", ""), ("MFU", "MFU ")]
    };
    // If steps are known, the age of the last step is shown instead.
    let ago = age.filter(|_| job_view.since_step.is_none());
    let ago = ago.map_or_else(String::new, |age| format!(" {} ago", figure::age(age)));
    let dropped = job_view.losses.records + job_view.losses.frames;
    let all = format!("of {}", figure::count(of as u64));
    // These figures are shown only if known: few programs report tokens, and not every GPU's peak is listed.
    let tokens = tokens_per_s.map(figure::three);
    let mfu = mfu.map(|share| figure::tenths(share * 100.0));
    let known = [
        tokens.map(|rate| Figure::new(labels[3].0, labels[3].1, "", rate, "/s")),
        mfu.map(|share| Figure::new(labels[4].0, labels[4].1, "", share, "%")),
    ];
    let always = [
        step(job_view),
        Figure::new(labels[0].0, labels[0].1, "/step", step_time.to_owned(), step_unit),
        Figure::new(labels[1].0, labels[1].1, "", median(gemm), &format!("{}{ago}", Metric::Gemm.unit())),
        Figure::new(labels[2].0, labels[2].1, "", median(bus), Metric::Bus.unit()),
        Figure::new(ranks, "", " ranks", figure::count(heard as u64), &all).emphasize_if(heard < of),
        Figure::new("hosts", "", " hosts", figure::count(job_view.hosts as u64), ""),
        Figure::new("overhead", "overhead ", "", format!("{:.2}", job_view.overhead * 100.0), "%"),
        Figure::new("dropped", "dropped ", "", figure::count(dropped), "").emphasize_if(dropped > 0),
    ];
    let mut all: Vec<_> = always.into();
    all.splice(5..5, known.into_iter().flatten());
    all
}

/// What the findings cost together, and since when.
fn lost(job_view: &JobView) -> Option<Figure> {
    let lost = job_view.lost?;
    let hours = lost_hours(&lost.cost);
    let (value, unit) = hours.split_once(' ').unwrap_or((&hours, ""));
    let figure = Figure::new("", "", "", value.to_owned(), unit).emphasize_if(true);
    Some(Figure { label: format!("lost in {}", figure::age(lost.since())), ..figure })
}

/// `0.13 GPU h, $3.10`
fn lost_hours(cost: &Cost) -> String {
    let money = cost.money.map_or_else(String::new, |money| format!(", {money}"));
    format!("{:.2} GPU h{money}", cost.gpu_hours)
}

/// The steps as a range, which shows that a rank falls behind, and the age of the last step if it is unusual.
fn step(job_view: &JobView) -> Figure {
    let value = match job_view.steps {
        None => glyph::UNKNOWN.to_owned(),
        Some((least, most)) if least == most => figure::count(most.0),
        Some((least, most)) => format!("{}–{}", figure::count(least.0), figure::count(most.0)),
    };
    let value = match job_view.step_sign {
        Some(StepSign::DetectedLate) => format!("{}{value}", glyph::AT_LEAST),
        _ => value,
    };
    let expected =
        job_view.headline.step_time.map_or(Duration::ZERO, |time| Duration::from_nanos(time.0 * 3));
    let overdue = job_view
        .since_step
        .filter(|&since| since > expected.max(Duration::from_secs(5)) && !job_view.is_over());
    let unit = overdue.map_or_else(String::new, |since| format!("{} ago", figure::age(since)));
    let (label, before) = match job_view.step_sign {
        Some(StepSign::Detected | StepSign::DetectedLate) => ("step detected", "detected step "),
        Some(StepSign::Optimizer) => ("optimizer step", "optimizer step "),
        _ => ("step", "step "),
    };
    Figure::new(label, before, "", value, &unit).emphasize_if(overdue.is_some())
}

/// Each figure under its label.
fn tiles(figures: &[Figure], palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut widths: Vec<u16> = figures
        .iter()
        .map(|figure| figure.line(palette).width().max(figure.label.len()) as u16 + 2)
        .collect();
    // The last figures matter least.
    while widths.iter().sum::<u16>() > area.width && widths.len() > 1 {
        widths.pop();
    }
    // All have the same width, so that nothing moves when a figure gets longer, unless a figure does not fit
    // or there is too little room.
    let alike = area.width / widths.len().max(1) as u16;
    let even: Vec<u16> = widths.iter().map(|&width| width.max(alike)).collect();
    let total = even.iter().sum::<u16>();
    let is_apart = |(&even, &width): (&u16, &u16)| {
        u32::from(even) * u32::from(area.width) >= u32::from(width - 1) * u32::from(total)
    };
    let fits = total <= area.width + alike && even.iter().zip(&widths).all(is_apart);
    let widths = if fits { even } else { widths };
    let columns = Layout::horizontal(widths.into_iter().map(Constraint::Fill)).split(area);
    for (figure, column) in figures.iter().zip(columns.iter()) {
        let label = Line::styled(&*figure.label, palette.of(Role::Muted));
        buffer.set_line(column.x, column.y, &label, column.width);
        buffer.set_line(column.x, column.y + 1, &figure.line(palette), column.width);
    }
}

/// Draws the first figures that fit into one line.
fn row(figures: &[Figure], palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut line = Line::default();
    for figure in figures {
        let piece = figure.said(palette);
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
    fn said(&self, palette: Palette) -> Line<'_> {
        let muted = palette.of(Role::Muted);
        let mut line = Line::styled(self.before, muted);
        line.extend(self.line(palette));
        line.push_span(Span::styled(self.after, muted));
        line
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
