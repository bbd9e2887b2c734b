//! Draws the app. Nothing is changed here, so the same app and size always give the same screen.
#![forbid(unsafe_code)]

mod cramped;
mod footer;
mod header;
mod heatmaps;
mod help;
mod notices;
mod rank;
mod ranks;
mod rest;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Margin, Rect},
};

use crate::{
    app::{App, Overlay, Page, Standing},
    width::Room,
};

/// Draws the whole screen. [`App::settle`] comes first.
pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let room = Room::of(area);
    if room == Room::Cramped {
        return cramped::draw(app, area, buffer);
    }
    let inner = area.inner(Margin::new(1, 0));
    let [main, footer] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(inner);
    match app.standing() {
        Standing::Running => overview(app, room, main, buffer),
        standing => rest::draw(app, room, standing, main, buffer),
    }
    footer::draw(app, footer, buffer);
    if app.overlay == Overlay::Help {
        help::draw(app, area, buffer);
    }
}

fn overview(app: &App, room: Room, area: Rect, buffer: &mut Buffer) {
    let wide = room == Room::Wide;
    let notices = notices::lines(app, usize::from(area.width), if wide { 6 } else { 3 });
    let air = u16::from(wide);
    let above = header::height(room) + notices.len() as u16 + 2 * air;
    let body = area.height.saturating_sub(above);
    let maps = heatmaps::Panels::plan(app, area.width, body * 11 / 20);
    let [header, told, _, map_area, _, table] = Layout::vertical([
        Constraint::Length(header::height(room)),
        Constraint::Length(notices.len() as u16),
        Constraint::Length(air),
        Constraint::Length(maps.height()),
        Constraint::Length(air),
        Constraint::Min(0),
    ])
    .areas(area);
    header::draw(app, room, header, buffer);
    for (line, y) in notices.iter().zip(told.y..) {
        buffer.set_line(told.x, y, line, told.width);
    }
    maps.draw(app, map_area, buffer);
    match app.page {
        Page::Overview => ranks::draw(app, room, table, buffer),
        Page::Rank => rank::draw(app, room, table, buffer),
    }
}
