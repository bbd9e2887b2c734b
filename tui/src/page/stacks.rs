//! The page of merged stacks.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{About, View};
use crate::{
    action::{Effect, Motion},
    app::App,
    hits::Hits,
    key::char,
    update::watch,
    view,
    width::Breakpoint,
};

pub(super) struct Stacks;

impl View for Stacks {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "stacks",
                short: "stack",
                title: "Stacks",
                keys: &[char('6'), char('s')],
                help: "stacks: where every rank is in its code",
                empty: "no stacks to move in yet",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::stacks::draw(app, breakpoint, area, buffer, hits);
    }

    fn offers_filter(&self) -> bool {
        true
    }

    fn settle(&self, app: &mut App) {
        app.settle_stacks();
    }

    fn enter(&self, app: &mut App) -> Option<Effect> {
        watch::visit(app)
    }

    fn lines(&self, app: &App) -> usize {
        app.stacks.rows().len()
    }

    fn at(&self, app: &App) -> Option<usize> {
        app.stacks.at()
    }

    fn select(&self, app: &mut App, line: usize) {
        app.stacks.select(line);
    }

    fn travel(&self, app: &mut App, motion: Motion) -> Option<Effect> {
        app.stacks.travel(motion);
        None
    }

    fn open(&self, app: &mut App) -> Option<Effect> {
        app.stacks.toggle_branch();
        None
    }
}
