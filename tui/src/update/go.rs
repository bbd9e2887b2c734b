//! From view to view.

use super::{folder, select, watch};
use crate::{
    action::{Effect, Motion},
    app::{App, Page},
};
use xpu_shared::finding::Kind;

pub(super) fn to(app: &mut App, page: Page) -> Option<Effect> {
    app.page = page;
    let asked = if page == Page::Stacks { watch::visit(app) } else { None };
    // What goes out later than another effect goes out with time.
    asked.or_else(|| watch::follow(app)).or_else(|| folder::look(app))
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
    watch::follow(app)
}

/// Shows what the selected line is told by.
pub(super) fn explain(app: &mut App) -> Option<Effect> {
    app.settle();
    if app.page == Page::Gemms {
        let (slowest, _) = app.products.selected()?.slowest()?;
        app.selected = Some(slowest);
        return inspect(app);
    }
    if app.page == Page::Hosts {
        let host = app.hosts.selected()?;
        let (there, held) = (&host.ranks, host.gpus.held.first().map(|(rank, _)| *rank));
        let named = app.survey.findings.iter().flat_map(|finding| &finding.ranks).copied();
        app.selected =
            Some(named.into_iter().find(|&rank| there.contains(rank)).or(held).or_else(|| there.first())?);
        return inspect(app);
    }
    let finding = app.survey.findings.get(app.finding)?;
    if finding.kind == Kind::Hang {
        return to(app, Page::Stacks);
    }
    app.selected = finding.ranks.first().copied().or(app.selected);
    inspect(app)
}
