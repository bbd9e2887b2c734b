//! The page of findings.

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_model::finding::Kind;

use super::{About, Page, View};
use crate::{action::Effect, app::App, hits::Hits, key::char, update::go, view, width::Breakpoint};

pub(super) struct Findings;

impl View for Findings {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "findings",
                short: "find",
                title: "Findings",
                keys: &[char('7'), char('f')],
                help: "all findings, current and past",
                empty: "no finding to select",
            }
        }
    }

    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        view::findings::draw(app, breakpoint, area, buffer, hits);
    }

    fn lines(&self, app: &App) -> usize {
        app.job_view.findings.len()
    }

    fn at(&self, app: &App) -> Option<usize> {
        Some(app.selection.finding)
    }

    fn select(&self, app: &mut App, line: usize) {
        app.selection.finding = line;
    }

    fn open(&self, app: &mut App) -> Option<Effect> {
        self.explain(app)
    }
}

/// Shows the stacks of a hang, or the rank of another finding.
pub(super) fn explain(app: &mut App) -> Option<Effect> {
    let finding = app.job_view.findings.get(app.selection.finding)?;
    if finding.kind == Kind::Hang {
        return go::to(app, Page::Stacks);
    }
    app.selection.rank = finding.ranks.first().copied().or(app.selection.rank);
    go::inspect(app)
}

pub(super) fn unexplained(app: &App) -> Option<&'static str> {
    app.job_view.findings.is_empty().then_some("no finding to explain")
}
