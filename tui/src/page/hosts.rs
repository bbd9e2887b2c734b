//! The page of hosts.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{About, View};
use crate::{
    action::Effect,
    app::{App, HostColumn, Item, Order, columns},
    hits::Hits,
    key::char,
    update::go,
    view,
    width::Breakpoint,
};

pub(super) struct Hosts;

impl View for Hosts {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "hosts",
                short: "host",
                title: "Hosts",
                keys: &[char('9')],
                help: "hosts, their collectors and links, drops and cost",
                empty: "no host to select",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::hosts::draw(app, breakpoint, area, buffer, hits);
    }

    fn needs_job(&self) -> bool {
        false
    }

    fn settle(&self, app: &mut App) {
        let job = app.selection.job(&app.observed.jobs);
        app.hosts.settle(&app.observed.jobs, job, &app.connections, &app.observed.arrived, app.now());
    }

    fn lines(&self, app: &App) -> usize {
        app.hosts.all().len()
    }

    fn at(&self, app: &App) -> Option<usize> {
        Some(app.hosts.at())
    }

    fn select(&self, app: &mut App, line: usize) {
        app.hosts.select(line);
    }

    fn open(&self, app: &mut App) -> Option<Effect> {
        self.explain(app)
    }

    /// Shows the rank that explains the host best: one in a finding, one whose GPU is held back, or the
    /// first.
    fn explain(&self, app: &mut App) -> Option<Effect> {
        let host = app.hosts.selected()?;
        let (there, held) = (&host.ranks, host.gpus.held.first().map(|(rank, _)| *rank));
        let named = app.job_view.findings.iter().flat_map(|finding| &finding.ranks).copied();
        app.selection.rank =
            Some(named.into_iter().find(|&rank| there.contains(rank)).or(held).or_else(|| there.first())?);
        go::inspect(app)
    }

    fn unexplained(&self, app: &App) -> Option<&'static str> {
        let seen = app.hosts.selected().is_some_and(|host| !host.ranks.is_empty());
        (!seen).then_some("no rank of this host has been seen")
    }

    fn columns(&self, app: &App) -> Vec<Item> {
        columns::<HostColumn>(app.hosts.order.by)
    }

    fn sort(&self, app: &mut App, column: usize) {
        app.hosts.order = Order::nth(column);
    }

    fn reverse(&self, app: &mut App) {
        app.hosts.order = app.hosts.order.turned();
    }
}
