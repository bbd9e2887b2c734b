//! The page of the selected rank alone.

use std::collections::BTreeSet;

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_model::job::Job;
use xpu_wire::id::Rank;

use super::{About, Page, View};
use crate::{
    action::{Action, Effect, Motion},
    app::App,
    hits::Hits,
    key::char,
    update::{go, watch},
    view,
    width::Breakpoint,
};

pub(super) struct OneRank;

impl View for OneRank {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "rank",
                short: "rank",
                title: "Rank",
                keys: &[char('2')],
                help: "the selected rank, by shape and size",
                empty: "no rank to select",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::rank::draw(app, breakpoint, area, buffer, hits);
    }

    /// It needs a selected rank.
    fn can_be_first(&self) -> bool {
        false
    }

    fn has_list_keys(&self) -> bool {
        false
    }

    fn offers_filter(&self) -> bool {
        true
    }

    fn action(&self, _: Page) -> Action {
        Action::Inspect
    }

    fn watches(&self, app: &App, _: &Job) -> BTreeSet<Rank> {
        app.selection.rank.into_iter().collect()
    }

    fn lines(&self, app: &App) -> usize {
        app.job_view.order.len()
    }

    fn travel(&self, app: &mut App, motion: Motion) -> Option<Effect> {
        go::among_ranks(app, motion);
        watch::follow(app)
    }

    fn close(&self, app: &mut App) -> Option<Effect> {
        go::to(app, app.back)
    }
}
