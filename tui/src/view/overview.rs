//! All ranks: findings, two maps of quantities, step times if there is room, the table of ranks, and the same
//! quantities over time in the lines that are left.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
};

use super::{
    header, headline, heatmaps,
    notices::{self, Notices},
    panel, ranks, steps,
};
use crate::{
    action::Action,
    app::App,
    hits::{Hits, Target},
    page::Page,
    width::Breakpoint,
};

/// Smallest width at which step times are next to the maps: 200 columns, less one on each side.
const ROOMY: u16 = 198;

/// Columns of the step times, columns between them and the maps, and the lines that they need to be useful.
const STEPS: u16 = 58;
const BETWEEN: u16 = 2;
const TALL: u16 = 12;

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let wide = breakpoint == Breakpoint::Wide;
    let most = if wide || app.job_view.stall().is_some() { 6 } else { 4 };
    let width = usize::from(area.width) - if wide { 4 } else { 0 };
    let found = Notices::of(app, width);
    let mut notices = found.lines(most);
    // The notices have a frame only if there is room for it.
    let frame = if wide { 2 } else { 0 };
    let below =
        |notices: usize| area.height.saturating_sub(header::height(breakpoint) + notices as u16 + frame);
    let beside = if wide && area.width >= ROOMY { STEPS + BETWEEN } else { 0 };
    let plan = |body: u16| heatmaps::Panels::plan(app, area.width - beside, body * 11 / 20);
    let mut maps = plan(below(notices.len()));
    if let Some(bound) = found.bound_line() {
        let with_bound = plan(below(notices.len() + 1));
        // In a frame, it is added if the maps stay as they are.
        if !wide || with_bound.height() == maps.height() {
            maps = with_bound;
            notices.push(bound);
        }
    }
    let body = below(notices.len());
    let least = if beside > 0 { TALL.min(body / 2) } else { 0 };
    let [header, notices_area, map_area, _, table] = Layout::vertical([
        Constraint::Length(header::height(breakpoint)),
        Constraint::Length(notices.len() as u16 + frame),
        Constraint::Length(maps.height().max(least)),
        Constraint::Length(u16::from(wide)),
        Constraint::Min(0),
    ])
    .areas(area);
    header::draw(app, breakpoint, header, buffer);
    let notices_area = if wide {
        panel::draw(app.palette, breakpoint, notices::title(app), notices_area, buffer)
    } else {
        notices_area
    };
    headline::lines(&notices, notices_area, buffer);
    if !app.job_view.findings.is_empty() {
        hits.put(notices_area, Target::Do(Action::Go(Page::Findings)));
    }
    let [maps_area, _, steps_area] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Length(beside.min(BETWEEN)),
        Constraint::Length(beside.saturating_sub(BETWEEN)),
    ])
    .areas(map_area);
    maps.draw(app, Rect { height: maps.height(), ..maps_area }, buffer, hits);
    if beside > 0 {
        steps::beside(app, steps_area, buffer);
        hits.put(steps_area, Target::Do(Action::Go(Page::Steps)));
    }
    let listed = ranks::draw(app, breakpoint, table, buffer, hits);
    if !wide {
        return;
    }
    let y = (listed.bottom() + 1).min(table.bottom());
    let free = Rect { y, height: table.bottom() - y, ..table };
    if let Some(past) = heatmaps::FreeLines::plan(app, free.width, free.height) {
        past.draw(app, free, buffer);
    }
}
