//! The page of GEMMs by shape.

use std::collections::BTreeSet;

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_model::job::Job;
use xpu_wire::id::Rank;

use super::{About, View};
use crate::{
    action::Effect,
    app::{App, Gemm, GemmColumn, Item, Order, columns},
    hits::Hits,
    key::char,
    update::go,
    view,
    width::Breakpoint,
};

pub(super) struct Gemms;

impl View for Gemms {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "gemm",
                short: "gemm",
                title: "GEMM",
                keys: &[char('3')],
                help: "GEMMs by shape: how fast, and on which ranks slow",
                empty: "no GEMM shape to select yet",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::gemms::draw(app, breakpoint, area, buffer, hits);
    }

    fn settle(&self, app: &mut App) {
        let Some(job) = app.selection.job(&app.observed.jobs) else { return };
        app.gemms.settle(job, &app.watched, app.now());
    }

    fn watches(&self, app: &App, job: &Job) -> BTreeSet<Rank> {
        app.sampled(job)
    }

    fn lines(&self, app: &App) -> usize {
        app.gemms.shapes().len()
    }

    fn at(&self, app: &App) -> Option<usize> {
        Some(app.gemms.at())
    }

    fn select(&self, app: &mut App, line: usize) {
        app.gemms.select(line);
    }

    fn open(&self, app: &mut App) -> Option<Effect> {
        self.explain(app)
    }

    /// Shows the slowest rank of the shape.
    fn explain(&self, app: &mut App) -> Option<Effect> {
        let (slowest, _) = app.gemms.selected()?.slowest()?;
        app.selection.rank = Some(slowest);
        go::inspect(app)
    }

    fn unexplained(&self, app: &App) -> Option<&'static str> {
        let slowest = app.gemms.selected().and_then(Gemm::slowest);
        slowest.is_none().then_some("no GEMM shape to explain yet")
    }

    fn columns(&self, app: &App) -> Vec<Item> {
        columns::<GemmColumn>(app.gemms.order.by)
    }

    fn sort(&self, app: &mut App, column: usize) {
        app.gemms.order = Order::nth(column);
    }

    fn reverse(&self, app: &mut App) {
        app.gemms.order = app.gemms.order.turned();
    }
}
