//! The page of captures and recordings.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{About, Page, View};
use crate::{
    action::{Action, Effect},
    app::App,
    hits::Hits,
    key::char,
    update::{folder, go},
    view,
    width::Breakpoint,
};

pub(super) struct Captures;

impl View for Captures {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "captures",
                short: "file",
                title: "Captures",
                keys: &[char('8')],
                help: "captures and recordings: running, and in this folder",
                empty: "no capture or recording in this folder",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::captures::draw(app, breakpoint, area, buffer, hits);
    }

    fn needs_job(&self) -> bool {
        false
    }

    fn lines(&self, app: &App) -> usize {
        app.files.all().len()
    }

    fn at(&self, app: &App) -> Option<usize> {
        Some(app.files.at())
    }

    fn select(&self, app: &mut App, line: usize) {
        app.files.select(line);
    }

    fn open(&self, app: &mut App) -> Option<Effect> {
        folder::act(app, Action::OpenFile)
    }

    fn close(&self, app: &mut App) -> Option<Effect> {
        if app.files.close() { None } else { go::to(app, Page::Overview) }
    }
}
