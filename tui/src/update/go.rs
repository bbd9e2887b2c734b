//! Moves from view to view.

use xpu_model::figure;
use xpu_wire::id::{CommunicatorId, Rank};

use super::{folder, watch};
use crate::{
    action::{Effect, Motion},
    app::App,
    page::{LINES, Page},
};

pub(crate) fn to(app: &mut App, page: Page) -> Option<Effect> {
    app.page = page;
    let asked = page.view().enter(app);
    // A second effect is sent with the next tick.
    asked.or_else(|| watch::follow(app)).or_else(|| folder::look(app))
}

/// Shows one rank alone.
pub(crate) fn inspect(app: &mut App) -> Option<Effect> {
    app.settle();
    // Without a selection, the outlier is shown.
    let named = app.job_view.findings.iter().find_map(|finding| finding.ranks.first().copied());
    let outlier = app.job_view.outlier.map(|outlier| outlier.rank(&app.job_view));
    app.selection.rank = app.selection.rank.or(named).or(outlier);
    if app.selection.rank.is_none() {
        among_ranks(app, Motion::First);
    }
    if app.page != Page::Rank {
        app.back = app.page;
    }
    app.page = Page::Rank;
    watch::follow(app)
}

/// Shows this rank alone.
pub(super) fn to_rank(app: &mut App, rank: Rank) -> Option<Effect> {
    app.settle();
    if app.job_view.row_of(rank).is_none() {
        let rows = app.job_view.rows();
        let last =
            rows.last().map_or_else(String::new, |row| format!(": the last one is {}", row.status.rank));
        app.messages.failed(format!("rank {rank} was not seen{last}"));
        return None;
    }
    app.selection.rank = Some(rank);
    inspect(app)
}

/// Shows one communicator among all.
pub(super) fn to_communicator(app: &mut App, id: CommunicatorId) -> Option<Effect> {
    let effect = to(app, Page::Collectives);
    app.settle();
    if !app.communicators.select_one(id) {
        // Another communicator of its kind represents it.
        app.communicators.every = true;
        app.settle();
        app.communicators.select_one(id);
    }
    effect
}

/// Lists each communicator, or one of each kind.
pub(super) fn communicators(app: &mut App) -> Option<Effect> {
    let selected = app.communicators.selected().map(|one| one.id);
    app.communicators.every = !app.communicators.every;
    let effect = to(app, Page::Collectives);
    app.settle();
    if !selected.is_some_and(|id| app.communicators.select_one(id)) {
        app.communicators.select(0);
    }
    if !app.communicators.has_more() {
        let all = figure::counted(app.communicators.total, "communicator", "communicators");
        app.messages.done(format!("all {all}"));
    }
    effect
}

/// A click on a line of the view's list: the second one acts as Enter.
pub(super) fn line(app: &mut App, line: usize) -> Option<Effect> {
    app.settle();
    let view = app.page.view();
    if view.at(app) == Some(line) {
        return view.open(app);
    }
    view.select(app, line.min(view.lines(app).saturating_sub(1)));
    None
}

/// Shows the evidence of the selected line.
pub(super) fn explain(app: &mut App) -> Option<Effect> {
    app.settle();
    app.page.view().explain(app)
}

/// Selects a rank. The first motion selects the first or the last listed rank.
pub(crate) fn among_ranks(app: &mut App, motion: Motion) {
    app.settle();
    let order = app.job_view.order.clone();
    among(app, &order, motion);
}

/// Selects a rank among rows in this order, in the same way.
pub(crate) fn among(app: &mut App, order: &[usize], motion: Motion) {
    let job_view = &app.job_view;
    let Some(last) = order.len().checked_sub(1) else { return };
    // A folded rank is at the place of its group.
    let place = |row: usize| order.iter().position(|&listed| listed == row);
    let row = app.selection.rank.and_then(|rank| job_view.row_of(rank));
    let at = row.and_then(|row| place(row).or_else(|| place(job_view.bundle_of(row)?.worst)));
    let to = match (at, motion) {
        (Some(at), motion) => motion.from(at, last + 1, LINES),
        (None, Motion::Up | Motion::PageUp | Motion::Last) => last,
        (None, Motion::Down | Motion::PageDown | Motion::First) => 0,
    };
    app.selection.rank = job_view.rows().get(order[to]).map(|row| row.status.rank);
}
