//! Draws the app. Nothing is changed here, so the same app and size always give the same screen.
#![forbid(unsafe_code)]

mod captures;
mod collectives;
mod cramped;
mod findings;
mod footer;
mod gemms;
mod header;
mod headline;
mod heatmaps;
mod help;
mod hosts;
mod list;
mod notices;
mod panel;
mod prompt;
mod rank;
mod ranks;
mod rest;
mod sieve;
mod stacks;
mod steps;
mod timebar;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Margin, Rect},
};

use crate::{
    action::Action,
    app::{App, Overlay, Page, Standing},
    glyph::{self, Letters},
    hits::{Hits, Target},
    width::Room,
};

/// Draws the whole screen, and says what stands where. [`App::settle`] comes first.
pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) -> Hits {
    let hits = compose(app, area, buffer);
    if app.palette.letters() == Letters::Ascii {
        glyph::spell(area, buffer);
    }
    hits
}

fn compose(app: &App, area: Rect, buffer: &mut Buffer) -> Hits {
    let mut hits = Hits::default();
    let room = Room::of(area);
    if room == Room::Cramped {
        cramped::draw(app, area, buffer);
        return hits;
    }
    let inner = area.inner(Margin::new(1, 0));
    let [main, time, footer] = Layout::vertical([
        Constraint::Min(0),
        Constraint::Length(timebar::height(app)),
        Constraint::Length(if app.prompt.is_some() { prompt::HEIGHT } else { 1 }),
    ])
    .areas(inner);
    match app.standing() {
        // Where nothing is shown for want of a job, these still tell why.
        _ if app.page == Page::Hosts => hosts::draw(app, room, main, buffer, &mut hits),
        _ if app.page == Page::Captures => captures::draw(app, room, main, buffer, &mut hits),
        Standing::Running => match app.page {
            Page::Overview => overview(app, room, main, buffer, &mut hits),
            Page::Rank => rank::draw(app, room, main, buffer, &mut hits),
            Page::Gemms => gemms::draw(app, room, main, buffer, &mut hits),
            Page::Collectives => collectives::draw(app, room, main, buffer, &mut hits),
            Page::Steps => steps::draw(app, room, main, buffer, &mut hits),
            Page::Stacks => stacks::draw(app, room, main, buffer, &mut hits),
            Page::Findings => findings::draw(app, room, main, buffer, &mut hits),
            Page::Captures => captures::draw(app, room, main, buffer, &mut hits),
            Page::Hosts => hosts::draw(app, room, main, buffer, &mut hits),
        },
        standing => rest::draw(app, room, standing, main, buffer),
    }
    timebar::draw(app, time, buffer, &mut hits);
    match &app.prompt {
        Some(prompt) => {
            // Who types does not mean what stands under the mouse.
            hits.cover();
            prompt::draw(app, prompt, footer, buffer);
        }
        None => footer::draw(app, footer, buffer, &mut hits),
    }
    if app.overlay == Overlay::Help {
        hits.cover();
        // While its words are typed the line stays in sight.
        let typed = if app.prompt.is_some() { prompt::HEIGHT } else { 0 };
        if typed == 0 {
            hits.put(area, Target::Do(Action::Close));
        }
        help::draw(app, Rect { height: area.height - typed, ..area }, buffer);
    }
    hits
}

fn overview(app: &App, room: Room, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let wide = room == Room::Wide;
    let most = match (wide, app.survey.standstill()) {
        (true, _) => 6,
        (false, Some(_)) => 6,
        (false, None) => 4,
    };
    let notices = notices::lines(app, usize::from(area.width) - if wide { 4 } else { 0 }, most);
    // Where there is room the notices have a frame, else nothing is lost on lines.
    let frame = if wide { 2 } else { 0 };
    let above = header::height(room) + notices.len() as u16 + frame;
    let body = area.height.saturating_sub(above);
    let maps = heatmaps::Panels::plan(app, area.width, body * 11 / 20);
    let [header, told, map_area, _, table] = Layout::vertical([
        Constraint::Length(header::height(room)),
        Constraint::Length(notices.len() as u16 + frame),
        Constraint::Length(maps.height()),
        Constraint::Length(u16::from(wide)),
        Constraint::Min(0),
    ])
    .areas(area);
    header::draw(app, room, header, buffer);
    let told = if wide { panel::draw(app.palette, room, notices::title(app), told, buffer) } else { told };
    headline::lines(&notices, told, buffer);
    if !app.survey.findings.is_empty() {
        hits.put(told, Target::Do(Action::Go(Page::Findings)));
    }
    maps.draw(app, map_area, buffer, hits);
    ranks::draw(app, room, table, buffer, hits);
}
