//! From view to view.

use super::{select, watch};
use crate::{
    action::{Effect, Motion},
    app::{App, Page},
};
use xpu_shared::finding::Kind;

pub(super) fn to(app: &mut App, page: Page) -> Option<Effect> {
    let left = std::mem::replace(&mut app.page, page);
    if page == Page::Stacks {
        return watch::visit(app);
    }
    (left == Page::Rank).then_some(Effect::WatchRank(None))
}

/// Shows one rank alone.
pub(super) fn inspect(app: &mut App) -> Option<Effect> {
    app.settle();
    // Who selects nothing wants to know about the rank that stands out.
    let named = app.survey.findings.iter().find_map(|finding| finding.ranks.first().copied());
    let odd = app.survey.odd.map(|odd| odd.rank(&app.survey));
    app.selected = app.selected.or(named).or(odd);
    if app.selected.is_none() {
        select(app, Motion::First);
    }
    app.selected?;
    app.page = Page::Rank;
    Some(watched(app))
}

/// Shows what the selected finding is told by.
pub(super) fn explain(app: &mut App) -> Option<Effect> {
    app.settle();
    let finding = app.survey.findings.get(app.finding)?;
    if finding.kind == Kind::Hang {
        return to(app, Page::Stacks);
    }
    app.selected = finding.ranks.first().copied().or(app.selected);
    inspect(app)
}

pub(super) fn watched(app: &App) -> Effect {
    let job = app.job().map(|job| job.name().clone());
    Effect::WatchRank(job.zip(app.selected))
}
