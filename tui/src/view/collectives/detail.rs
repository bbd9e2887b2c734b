//! One communicator: its ranks' positions, its latest ranks, and its traffic; for a hung job, its last calls.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
};
use xpu_model::{figure, finding::Finding};
use xpu_wire::unit::Nanoseconds;

use super::{
    super::{
        headline,
        panel::{self, Title},
        stacks,
    },
    calls,
};
use crate::{
    app::{App, Communicator},
    glyph::{SWATCH, UNKNOWN},
    hits::{Hits, Target},
    palette::Role,
    widget::{
        row::{self, Column},
        scale::ALIKE,
    },
    width::Breakpoint,
};

/// Runs of ranks in the title.
const RUNS: usize = 6;

/// Columns of the longest bar.
const BAR: usize = 16;

/// A late rank, its host, and its delay.
const RANK: Column = Column::figure(6).whole();
const HOST: Column = Column::name(14);
const LATE: Column = Column::figure(9).whole();

/// Operation, size, number of timed ones, bandwidth and time.
const TRAFFIC: [Column; 5] = [
    Column::name(14).whole(),
    Column::figure(9).whole(),
    Column::figure(7).whole(),
    Column::figure(8).whole(),
    Column::figure(9).whole(),
];

pub(super) fn draw(
    app: &App,
    breakpoint: Breakpoint,
    of: &Communicator,
    area: Rect,
    buffer: &mut Buffer,
    hits: &mut Hits,
) {
    if breakpoint == Breakpoint::Wide {
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let [upper, lower] = Layout::vertical([
            Constraint::Length((of.rank_positions.groups.len() as u16 + 5).clamp(6, area.height / 2)),
            Constraint::Fill(1),
        ])
        .areas(area);
        let [left, right] = Layout::horizontal(halves).spacing(1).areas(lower);
        places(app, breakpoint, of, upper, buffer, hits);
        skew_or_calls(app, breakpoint, of, left, buffer, hits);
        traffic(app, breakpoint, of, right, buffer);
    } else {
        let groups = (of.rank_positions.groups.len() as u16 + 3).min(area.height / 3);
        let [upper, middle, lower] = Layout::vertical([
            Constraint::Length(groups),
            Constraint::Fill(1),
            Constraint::Length((of.traffic.len().max(1) as u16 + 2).min(area.height / 3)),
        ])
        .areas(area);
        places(app, breakpoint, of, upper, buffer, hits);
        skew_or_calls(app, breakpoint, of, middle, buffer, hits);
        traffic(app, breakpoint, of, lower, buffer);
    }
}

fn places(
    app: &App,
    breakpoint: Breakpoint,
    of: &Communicator,
    area: Rect,
    buffer: &mut Buffer,
    hits: &mut Hits,
) {
    let from = of.parent.map_or_else(String::new, |parent| format!(", split from {parent}"));
    let of_many = of.kind.as_ref().map_or_else(String::new, |kind| format!(", one of {}", kind.count));
    let title = Title {
        name: "Where ranks are",
        about: format!("{}{of_many}, ranks {}{from}", of.rank_positions.title, of.ranks.brief(RUNS)),
        ..Title::default()
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    stacks::places(app, &of.rank_positions, inner, buffer, hits);
}

/// Draws the arrival skew, or in a hung job the last calls with their divergence, once they were read.
fn skew_or_calls(
    app: &App,
    breakpoint: Breakpoint,
    of: &Communicator,
    area: Rect,
    buffer: &mut Buffer,
    hits: &mut Hits,
) {
    let is_stuck = app.job_view.findings.iter().any(Finding::stops_the_job);
    match app.job().filter(|_| is_stuck).and_then(|job| calls::of(job, &app.job_view.findings, of.id)) {
        Some(lines) => calls::draw(app, breakpoint, &lines, area, buffer),
        None => arrival_skew(app, breakpoint, of, area, buffer, hits),
    }
}

/// Draws the arrival skew, the latest rank first: a bar, and its figure.
fn arrival_skew(
    app: &App,
    breakpoint: Breakpoint,
    of: &Communicator,
    area: Rect,
    buffer: &mut Buffer,
    hits: &mut Hits,
) {
    let title = Title {
        name: "Arrival skew",
        about: "median after the first rank, latest first".to_owned(),
        ..Title::default()
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    if of.late.is_empty() {
        panel::paragraph(app.palette, Role::Muted, &unknown(app, of), inner, buffer);
        return;
    }
    let mut lines = Vec::new();
    let step = app.job_view.step_time.map(Nanoseconds::milliseconds);
    // Noise must not be stretched into bars.
    let noise = step.map_or(0.0, |step| step * ALIKE);
    let most = of.late.first().map_or(0.0, |&(_, late)| late).max(noise);
    for (&(rank, late), y) in of.late.iter().zip(inner.y..inner.bottom()) {
        let place = Rect { y, height: 1, ..inner };
        hits.put(place, Target::Rank(rank));
        if app.selection.rank == Some(rank) {
            buffer.set_style(place, app.palette.selected());
        }
        let host = app.job().and_then(|job| job.rank(rank)).map(|view| view.host().to_string());
        let named = app.job_view.findings.iter().any(|finding| finding.ranks.contains(&rank));
        let loud = named || (step.is_some() && late > noise);
        let length = if most > 0.0 { (late / most * BAR as f64).round() as usize } else { 0 };
        let role = if loud { Role::Warning } else { Role::Faint };
        lines.push(Line::from(vec![
            Span::styled(RANK.cell(&rank.to_string()) + " ", app.palette.of(Role::Strong)),
            Span::styled(HOST.cell(&host.unwrap_or_default()) + " ", app.palette.of(Role::Muted)),
            Span::raw(LATE.cell(&figure::three(late)) + " ms  "),
            Span::styled(SWATCH.to_string().repeat(length), app.palette.of(role)),
        ]));
    }
    headline::lines(&lines, inner, buffer);
}

/// Why no arrival skew is known.
fn unknown(app: &App, of: &Communicator) -> String {
    let (seen, size) = (of.ranks.len(), of.size as usize);
    if seen < size {
        let hosts = app.key("hosts");
        return format!(
            "Unknown: it needs all its ranks, and only {} of {} are seen. {hosts} shows which hosts are silent.",
            figure::count(seen as u64),
            figure::count(size as u64),
        );
    }
    if app.job_view.is_stale() {
        return format!("Its ranks do not report: {} shows why.", app.key("hosts"));
    }
    if let Some(age) = app.job_view.headline.age {
        return format!("Nothing new for {}: no rank makes progress.", figure::age(age));
    }
    "Not known yet: it needs a timed collective of all its ranks, which takes seconds of training.".to_owned()
}

fn traffic(app: &App, breakpoint: Breakpoint, of: &Communicator, area: Rect, buffer: &mut Buffer) {
    let title = Title {
        name: "Traffic",
        about: "timed: GB/s of the transfer, µs with waiting".to_owned(),
        ..Title::default()
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let head = row::line(&TRAFFIC, &["operation", "size", "timed", "GB/s", "p50 µs"]);
    let mut lines = vec![Line::styled(head, app.palette.of(Role::Muted))];
    if of.traffic.is_empty() {
        let text = app.job_view.headline.age.map_or_else(
            || "nothing timed yet".to_owned(),
            |age| format!("nothing new for {}", figure::age(age)),
        );
        lines = vec![Line::styled(text, app.palette.of(Role::Muted))];
    }
    for one in &of.traffic {
        let unknown = || UNKNOWN.to_owned();
        let rate = one.bus_gb_s.map_or_else(unknown, figure::three);
        let time = one.duration.map_or_else(unknown, |time| figure::three(time.0 as f64 / 1e3));
        let (size, timed) = (figure::bytes(one.bytes), figure::count(one.timed as u64));
        lines.push(Line::raw(row::line(&TRAFFIC, &[one.operation.to_string(), size, timed, rate, time])));
    }
    headline::lines(&lines, inner, buffer);
}
