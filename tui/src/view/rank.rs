//! One rank: its identity, its figures next to those of its peers, its GPU and the memory in use there, its
//! GEMMs and collectives, and how closely it is watched.

mod communicators;
mod device;
mod figures;
pub(super) mod load;
mod memory;
mod tables;
mod watching;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
};
use xpu_model::figure;
use xpu_wire::frame::Life;

use super::{
    filtered, header,
    panel::{self, Title},
};
use crate::{
    app::{App, Inspection},
    glyph,
    hits::Hits,
    palette::Role,
    widget::wrap::{cut_at_word, cut_spans},
    width::Breakpoint,
};

/// Smallest number of lines of a useful list: its head and one entry.
const LEAST: u16 = 2;

/// Columns of the right side, enough for the driver's description of an error.
const SIDE: u16 = 56;

/// Communicators that are listed if other panels need the space too.
const MEMBERSHIPS: u16 = 8;

/// Columns between two panels.
const BETWEEN: u16 = 2;

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let area = header::draw_brief(app, breakpoint, area, buffer);
    let Some(rank) = &app.job_view.inspected else {
        nobody(app, breakpoint, area, buffer);
        return;
    };
    let area = identity(app, rank, breakpoint, area, buffer);
    if breakpoint == Breakpoint::Wide {
        wide(app, rank, area, buffer, hits);
    } else {
        narrow(app, rank, breakpoint, area, buffer, hits);
    }
}

/// The text if no rank is selected, with the keys that select one.
fn nobody(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let text = if filtered::is_empty(app) {
        filtered::nobody(app)
    } else {
        let list = app.key("overview");
        format!("No rank selected. {list} lists them, j and k select one, Enter shows it here.")
    };
    let inner =
        panel::draw(app.palette, breakpoint, Title { name: "Rank", ..Title::default() }, area, buffer);
    panel::paragraph(app.palette, Role::Muted, &text, inner, buffer);
}

/// Its activity on the left, its properties on the right; the tables take the remaining height.
fn wide(app: &App, rank: &Inspection, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let right = (area.width * 2 / 5).clamp(SIDE, 80);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(right)]).spacing(BETWEEN).areas(area);
    let figures = figures::Comparisons::of(app, rank);
    let (gemms, collectives) = (&rank.status.gemms, &rank.status.collectives);
    let tall = |rows: usize| rows.max(1) as u16 + 3;
    let [first, second, third, rest] = Layout::vertical([
        Constraint::Length(figures.height() + 2),
        Constraint::Max(tall(gemms.len())),
        Constraint::Max(tall(collectives.len())),
        Constraint::Fill(1),
    ])
    .areas(left);
    let inner = panel::draw(app.palette, Breakpoint::Wide, figures.title(), first, buffer);
    figures.draw(app, rank, inner, buffer, hits);
    tables::gemms(app, rank, Breakpoint::Wide, second, buffer);
    tables::collectives(app, rank, Breakpoint::Wide, third, buffer);
    memory::draw(app, rank, rest, buffer);
    let health = device::lines(app, rank);
    let watched = watching::lines(app, rank, usize::from(right.width).saturating_sub(4));
    // The health is next to the figures, with their height.
    let health_height = (health.len() as u16).max(figures.height()) + 2;
    let communicators = (rank.memberships.len() as u16 + 3).clamp(LEAST + 2, MEMBERSHIPS + 3);
    let [first, second, third, _] = Layout::vertical([
        Constraint::Length(health_height),
        Constraint::Length(communicators),
        Constraint::Max(watched.len() as u16 + 2),
        Constraint::Fill(1),
    ])
    .areas(right);
    let inner = panel::draw(app.palette, Breakpoint::Wide, device::title(rank), first, buffer);
    lines(&health, inner, buffer);
    let inner = panel::draw(app.palette, Breakpoint::Wide, communicators::title(rank), second, buffer);
    communicators::draw(app, rank, inner, buffer, hits);
    let inner = panel::draw(app.palette, Breakpoint::Wide, watching::title(rank), third, buffer);
    lines(&watched, inner, buffer);
}

/// Draws the panels one below the other; the least important one is left out first.
fn narrow(
    app: &App,
    rank: &Inspection,
    breakpoint: Breakpoint,
    area: Rect,
    buffer: &mut Buffer,
    hits: &mut Hits,
) {
    let figures = figures::Comparisons::of(app, rank);
    let gemms = (rank.status.gemms.len().max(1) as u16 + 1).max(LEAST) + 1;
    let collectives = (rank.status.collectives.len().max(1) as u16 + 1).max(LEAST) + 1;
    let mut left = area.height;
    let mut take = |wanted: u16, least: u16| {
        let taken = if left >= least { wanted.min(left) } else { 0 };
        left -= taken;
        taken
    };
    // The three most important ones share the height.
    let share = area.height / 3;
    let first = take((figures.height() + 1).min(share.max(5) + 2), LEAST);
    let health = take(1, 1);
    let half = (area.height.saturating_sub(first + health) / 2).max(LEAST + 1);
    let second = take(gemms.min(half), LEAST + 1);
    let third = take(collectives.min(half), LEAST + 1);
    let fourth = take(rank.memberships.len() as u16 + 2, LEAST + 1);
    let watched = watching::lines(app, rank, usize::from(area.width).saturating_sub(2));
    let fifth = take(watched.len() as u16 + 1, LEAST);
    let parts = [first, health, second, third, fourth, fifth].map(Constraint::Length);
    let [first, health, second, third, fourth, fifth] = Layout::vertical(parts).areas(area);
    let indented = |area: Rect| Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    if first.height > 0 {
        let inner = panel::draw(app.palette, breakpoint, figures.title(), first, buffer);
        figures.draw(app, rank, indented(inner), buffer, hits);
    }
    let health = indented(health);
    let gpu = cut_spans(device::brief(app, rank).spans, usize::from(health.width));
    lines(&[gpu], health, buffer);
    if second.height > 0 {
        tables::gemms(app, rank, breakpoint, second, buffer);
    }
    if third.height > 0 {
        tables::collectives(app, rank, breakpoint, third, buffer);
    }
    if fourth.height > 0 {
        let inner = panel::draw(app.palette, breakpoint, communicators::title(rank), fourth, buffer);
        communicators::draw(app, rank, indented(inner), buffer, hits);
    }
    if fifth.height > 0 {
        let inner = panel::draw(app.palette, breakpoint, watching::title(rank), fifth, buffer);
        lines(&watched, indented(inner), buffer);
    }
}

fn lines(lines: &[Line<'_>], area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// Draws its identity on the frame, and its progress and state inside. Returns the area below.
fn identity(app: &App, rank: &Inspection, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) -> Rect {
    let palette = app.palette;
    let status = &rank.status;
    let frame = if breakpoint == Breakpoint::Wide { 3 } else { 2 };
    let [top, below] = Layout::vertical([Constraint::Length(frame), Constraint::Fill(1)]).areas(area);
    let mut about = vec![status.host.to_string(), format!("pid {}", status.pid)];
    if let Some(info) = &rank.info {
        about.extend(info.local_rank.map(|device| format!("local rank {device}")));
        about.push(info.program.clone());
    }
    let pinned = match app.selection.pinned {
        Some(pinned) if pinned == status.rank => "pinned".to_owned(),
        Some(pinned) => format!("beside rank {pinned}"),
        None => String::new(),
    };
    let taken = pinned.len() + 24;
    let about = cut_at_word(&about.join(", "), usize::from(area.width).saturating_sub(taken));
    let name = format!("Rank {}", status.rank);
    let title = Title { name: &name, about, right: pinned };
    let inner = panel::draw(palette, breakpoint, title, top, buffer);
    let glyph::Sign { glyph: sign, word, role } = glyph::state(status.state);
    let row = &app.job_view.rows()[rank.row];
    let (sign, word, role) = match (row.is_heard(), status.enabled) {
        (false, _) if row.life == Life::Alive => {
            (glyph::STALE, format!("last heard {} ago", figure::age(row.age)), Role::Warning)
        }
        _ if row.life == Life::Ended => (glyph::ENDED, "ended".to_owned(), Role::Muted),
        (_, false) => (glyph::OFF, "off: xpu-top ctl --hook on".to_owned(), Role::Warning),
        _ => (sign, word.to_owned(), role),
    };
    let mut line = Line::from(vec![
        Span::raw(if breakpoint == Breakpoint::Wide { "" } else { " " }),
        Span::styled(format!("{sign} {word}"), palette.of(role).patch(palette.of(Role::Strong))),
    ]);
    for text in progress(rank) {
        line.push_span(Span::styled(format!("   {text}"), palette.of(Role::Text)));
    }
    let line = cut_spans(line.spans, usize::from(inner.width));
    buffer.set_line(inner.x, inner.y, &line, inner.width);
    below
}

/// Its progress, and its reported work.
fn progress(rank: &Inspection) -> Vec<String> {
    use xpu_model::status::StepSign;
    let status = &rank.status;
    let detected = match status.step_source {
        Some(StepSign::Detected) => " detected",
        Some(StepSign::DetectedLate) => " or more, detected",
        Some(StepSign::Optimizer) => " of the optimizer",
        _ => "",
    };
    let known = [
        status.step_or_bound().map(|step| format!("step {}{detected}", figure::count(step.0))),
        status.step_ms_mean.map(|ms| format!("{} ms a step", figure::tenths(ms))),
        status.mfu.map(|share| format!("MFU {}", figure::percent(share))),
        status.achieved_tflops.map(|rate| format!("achieves {} TFLOPS", figure::three(rate.0))),
        status.tokens_per_s.map(|rate| format!("{} tokens/s", figure::three(rate))),
        status.samples_per_s.map(|rate| format!("{} samples/s", figure::three(rate))),
        status.loss.map(|loss| format!("loss {loss:.4}")),
        status.loss_not_finite.then(|| "loss is not finite".to_owned()),
        status.inside.first().map(|inside| format!("in {} for {:.0} s", inside.call, inside.for_s)),
    ];
    known.into_iter().flatten().collect()
}
