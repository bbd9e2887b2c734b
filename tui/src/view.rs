//! Draws the app without changing it, so the same app and size always give the same screen.
#![forbid(unsafe_code)]

pub(crate) mod captures;
pub(crate) mod collectives;
mod filtered;
pub(crate) mod findings;
mod footer;
pub(crate) mod gemms;
mod header;
mod headline;
mod heatmaps;
mod help;
pub(crate) mod hosts;
mod list;
mod notices;
pub(crate) mod overview;
mod panel;
mod picker;
mod prompt;
pub(crate) mod rank;
mod ranks;
mod rest;
pub(crate) mod stacks;
pub(crate) mod steps;
mod timebar;
mod too_small;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Margin, Rect},
};

use crate::{
    action::Action,
    app::{App, ScreenState},
    glyph,
    hits::{Hits, Target},
    letters::Letters,
    width::Breakpoint,
};

/// Draws the whole screen, and returns the positions of its parts. [`App::settle`] comes first.
pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) -> Hits {
    let hits = compose(app, area, buffer);
    if app.palette.letters() == Letters::Ascii {
        glyph::to_ascii(area, buffer);
    }
    hits
}

fn compose(app: &App, area: Rect, buffer: &mut Buffer) -> Hits {
    let mut hits = Hits::default();
    let breakpoint = Breakpoint::of(area);
    if breakpoint == Breakpoint::Cramped {
        too_small::draw(app, area, buffer);
        return hits;
    }
    let inner = area.inner(Margin::new(1, 0));
    let [main, time, footer] = Layout::vertical([
        Constraint::Min(0),
        Constraint::Length(timebar::height(app)),
        Constraint::Length(if app.overlay.prompt.is_some() { prompt::HEIGHT } else { 1 }),
    ])
    .areas(inner);
    match (app.screen_state(), app.page.view()) {
        (state, view) if view.needs_job() && state != ScreenState::Running => {
            rest::draw(app, breakpoint, state, main, buffer);
        }
        (_, view) => view.draw(app, breakpoint, main, buffer, &mut hits),
    }
    timebar::draw(app, time, buffer, &mut hits);
    match &app.overlay.prompt {
        Some(prompt) => {
            // While a line is typed, the mouse does not reach what is below it.
            hits.cover();
            prompt::draw(app, prompt, footer, buffer);
        }
        None => footer::draw(app, footer, main, buffer, &mut hits),
    }
    if let Some(picker) = app.overlay.picker.as_ref().filter(|_| app.overlay.prompt.is_none()) {
        hits.cover();
        hits.put(area, Target::Do(Action::Close));
        picker::draw(app, picker, main, buffer, &mut hits);
    }
    if app.overlay.help.is_open() {
        hits.cover();
        // While search words for the help page are typed, their line stays visible.
        let typed = if app.overlay.prompt.is_some() { prompt::HEIGHT } else { 0 };
        if typed == 0 {
            hits.put(area, Target::Do(Action::Close));
        }
        help::draw(app, Rect { height: area.height - typed, ..area }, buffer);
    }
    hits
}
