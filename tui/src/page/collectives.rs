//! The page of communicators.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{About, View};
use crate::{app::App, hits::Hits, key::char, view, width::Breakpoint};

pub(super) struct Collectives;

impl View for Collectives {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "collectives",
                short: "coll",
                title: "Collectives",
                keys: &[char('4')],
                help: "communicators: which ranks entered, which wait",
                empty: "no communicator to select yet",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::collectives::draw(app, breakpoint, area, buffer, hits);
    }

    fn offers_filter(&self) -> bool {
        true
    }

    fn settle(&self, app: &mut App) {
        let Some(job) = app.selection.job(&app.observed.jobs) else { return };
        let counts = |rank| app.job_view.counts(rank);
        let matching = app.job_view.matching();
        app.communicators.settle(job, matching.as_ref(), counts);
    }

    fn lines(&self, app: &App) -> usize {
        app.communicators.lines.len()
    }

    fn at(&self, app: &App) -> Option<usize> {
        Some(app.communicators.at())
    }

    fn select(&self, app: &mut App, line: usize) {
        app.communicators.select(line);
    }
}
