//! The page of all ranks.

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_client::sample::sample;
use xpu_wire::id::Rank;

use super::{About, View};
use crate::{
    action::{Action, Effect, Motion},
    app::{App, Column, Item, Sort},
    hits::Hits,
    key::char,
    update::go,
    view,
    width::Breakpoint,
};

pub(super) struct Overview;

impl View for Overview {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "overview",
                short: "over",
                title: "Overview",
                keys: &[char('1')],
                help: "all ranks, and what is wrong",
                empty: "no rank to select",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::overview::draw(app, breakpoint, area, buffer, hits);
    }

    fn offers_filter(&self) -> bool {
        true
    }

    fn settle(&self, app: &mut App) {
        let Some(job) = app.selection.job(&app.observed.jobs) else { return };
        let counts = |&rank: &Rank| app.job_view.counts(rank);
        let ranks = || sample(job, None, &[]).into_iter().filter(counts).collect();
        app.steps.refresh_overview(job, ranks, &app.observed.step_times, app.now());
    }

    fn lines(&self, app: &App) -> usize {
        app.job_view.order.len()
    }

    fn travel(&self, app: &mut App, motion: Motion) -> Option<Effect> {
        go::among_ranks(app, motion);
        None
    }

    fn columns(&self, app: &App) -> Vec<Item> {
        let item = |column: Column| Item {
            text: column.title().to_owned(),
            about: column.means().to_owned(),
            is_current: column == app.listing.sort.column,
            action: Action::SortBy(Sort { column, reversed: false }),
        };
        Column::ALL.map(item).into()
    }

    fn close(&self, app: &mut App) -> Option<Effect> {
        if app.maps.over_time && app.maps.zoom.clear() {
            return None;
        }
        if app.selection.rank.take().is_none() {
            app.listing.filter = None;
        }
        None
    }
}
