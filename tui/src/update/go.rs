//! Moves from view to view.

use xpu_model::{figure, finding::Kind};
use xpu_wire::id::{CommunicatorId, Rank};

use super::{folder, select, watch};
use crate::{
    action::{Action, Effect, Folding, Motion},
    app::{App, Note, Page},
};

pub(super) fn to(app: &mut App, page: Page) -> Option<Effect> {
    app.page = page;
    let asked = if page == Page::Stacks { watch::visit(app) } else { None };
    // A second effect is sent with the next tick.
    asked.or_else(|| watch::follow(app)).or_else(|| folder::look(app))
}

/// Shows one rank alone.
pub(super) fn inspect(app: &mut App) -> Option<Effect> {
    app.settle();
    // Without a selection, the outlier is shown.
    let named = app.job_view.findings.iter().find_map(|finding| finding.ranks.first().copied());
    let outlier = app.job_view.outlier.map(|outlier| outlier.rank(&app.job_view));
    app.selected = app.selected.or(named).or(outlier);
    if app.selected.is_none() {
        select(app, Motion::First);
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
        app.note = Some(Note::Failed(format!("rank {rank} was not seen{last}")));
        return None;
    }
    app.selected = Some(rank);
    inspect(app)
}

/// Shows one communicator among all.
pub(super) fn to_communicator(app: &mut App, id: CommunicatorId) -> Option<Effect> {
    let effect = to(app, Page::Collectives);
    app.settle();
    let place = |app: &App| app.communicators.lines.iter().position(|one| one.id == id);
    let mut at = place(app);
    if at.is_none() {
        // Another communicator of its kind represents it.
        app.every_communicator = true;
        app.settle();
        at = place(app);
    }
    app.communicator = at.unwrap_or(app.communicator);
    effect
}

/// Lists each communicator, or one of each kind.
pub(super) fn communicators(app: &mut App) -> Option<Effect> {
    let selected = app.communicators.lines.get(app.communicator).map(|one| one.id);
    app.every_communicator = !app.every_communicator;
    let effect = to(app, Page::Collectives);
    app.settle();
    let lines = &app.communicators.lines;
    app.communicator = lines.iter().position(|one| Some(one.id) == selected).unwrap_or(0);
    let (lines, total) = (lines.len(), app.communicators.total);
    if lines == total {
        app.note =
            Some(Note::Done(format!("all {}", figure::counted(total, "communicator", "communicators"))));
    }
    effect
}

/// A click on a line of the view's list: the second one acts as Enter.
pub(super) fn line(app: &mut App, line: usize) -> Option<Effect> {
    app.settle();
    match app.page {
        Page::Findings if app.finding == line => return explain(app),
        Page::Findings => app.finding = line.min(app.job_view.findings.len().saturating_sub(1)),
        Page::Collectives => app.communicator = line.min(app.communicators.lines.len().saturating_sub(1)),
        Page::Stacks if app.stacks.at() == Some(line) => app.stacks.fold(Folding::Turn),
        Page::Stacks => app.stacks.select(line),
        Page::Gemms | Page::Hosts if selected_line(app) == line => return explain(app),
        Page::Gemms => app.gemms.select(line),
        Page::Hosts => app.hosts.select(line),
        Page::Captures if app.files.at() == line => return folder::act(app, Action::OpenFile),
        Page::Captures => app.files.select(line),
        Page::Overview | Page::Rank | Page::Steps => {}
    }
    None
}

fn selected_line(app: &App) -> usize {
    if app.page == Page::Gemms { app.gemms.at() } else { app.hosts.at() }
}

/// Shows the evidence of the selected line.
pub(super) fn explain(app: &mut App) -> Option<Effect> {
    app.settle();
    if app.page == Page::Gemms {
        let (slowest, _) = app.gemms.selected()?.slowest()?;
        app.selected = Some(slowest);
        return inspect(app);
    }
    if app.page == Page::Hosts {
        let host = app.hosts.selected()?;
        let (there, held) = (&host.ranks, host.gpus.held.first().map(|(rank, _)| *rank));
        let named = app.job_view.findings.iter().flat_map(|finding| &finding.ranks).copied();
        app.selected =
            Some(named.into_iter().find(|&rank| there.contains(rank)).or(held).or_else(|| there.first())?);
        return inspect(app);
    }
    let finding = app.job_view.findings.get(app.finding)?;
    if finding.kind == Kind::Hang {
        return to(app, Page::Stacks);
    }
    app.selected = finding.ranks.first().copied().or(app.selected);
    inspect(app)
}
