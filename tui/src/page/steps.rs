//! The page of step times.

use std::collections::BTreeSet;

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_model::job::Job;
use xpu_wire::id::Rank;

use super::{About, View};
use crate::{
    action::{Effect, Motion},
    app::{App, Item, Order, StepColumn, columns},
    hits::Hits,
    key::char,
    update::go,
    view,
    width::Breakpoint,
};

pub(super) struct Steps;

impl View for Steps {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "steps",
                short: "step",
                title: "Steps",
                keys: &[char('5')],
                help: "step time, its changes, and its parts",
                empty: "no rank to select",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::steps::draw(app, breakpoint, area, buffer, hits);
    }

    fn settle(&self, app: &mut App) {
        let Some(job) = app.selection.job(&app.observed.jobs) else { return };
        app.steps.settle(job, &app.job_view, &app.watched, &app.observed.step_times, app.now());
    }

    fn watches(&self, app: &App, job: &Job) -> BTreeSet<Rank> {
        app.sampled(job)
    }

    fn lines(&self, app: &App) -> usize {
        app.job_view.order.len()
    }

    fn travel(&self, app: &mut App, motion: Motion) -> Option<Effect> {
        let order = app.steps.lines.clone();
        go::among(app, &order, motion);
        None
    }

    fn columns(&self, app: &App) -> Vec<Item> {
        columns::<StepColumn>(app.steps.order.by)
    }

    fn sort(&self, app: &mut App, column: usize) {
        app.steps.order = Order::nth(column);
    }

    fn reverse(&self, app: &mut App) {
        app.steps.order = app.steps.order.turned();
    }
}
