//! The pages of the screen: one line of the table for each, and one file with its content and behaviour.
#![forbid(unsafe_code)]

mod captures;
mod collectives;
mod findings;
mod gemms;
mod hosts;
mod overview;
mod rank;
mod stacks;
mod steps;

use std::collections::BTreeSet;

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_model::job::Job;
use xpu_wire::id::Rank;

use crate::{
    action::{Action, Effect, Motion},
    app::{App, Item},
    hits::Hits,
    key::Key,
    update::go,
    width::Breakpoint,
};

/// Lines by which a page key moves. The number is fixed, because the number that fits is known only when
/// drawing.
pub(crate) const LINES: usize = 10;

macro_rules! pages {
    ($($page:ident: $view:expr,)*) => {
        /// A page of the screen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Page {
            $($page,)*
        }

        impl Page {
            /// All pages, in the order of their numbers.
            pub const ALL: [Self; [$(stringify!($page),)*].len()] = [$(Self::$page,)*];

            pub(crate) fn view(self) -> &'static dyn View {
                match self {
                    $(Self::$page => &$view,)*
                }
            }
        }
    };
}

pages! {
    Overview: overview::Overview,
    Rank: rank::OneRank,
    Gemms: gemms::Gemms,
    Collectives: collectives::Collectives,
    Steps: steps::Steps,
    Stacks: stacks::Stacks,
    Findings: findings::Findings,
    Captures: captures::Captures,
    Hosts: hosts::Hosts,
}

impl Page {
    /// Its name in `:`, in the settings and in the footer.
    pub fn name(self) -> &'static str {
        self.view().about().name
    }

    /// The pages that the screen can open with, by their names.
    pub(crate) fn first() -> impl Iterator<Item = (&'static str, Self)> + Clone {
        Self::ALL.into_iter().filter(|page| page.view().can_be_first()).map(|page| (page.name(), page))
    }
}

/// The words and keys of a page.
pub(crate) struct About {
    pub name: &'static str,
    /// A short name, for nine in 80 columns.
    pub short: &'static str,
    /// The head above its keys on the help page.
    pub title: &'static str,
    /// The keys that lead to it.
    pub keys: &'static [Key],
    /// The text of these keys on the help page.
    pub help: &'static str,
    /// Why the cursor cannot move: the list is empty.
    pub empty: &'static str,
}

/// What a page is and does.
pub(crate) trait View {
    fn about(&self) -> &'static About;

    /// Draws the page, above the screen's footer.
    fn draw(&self, app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits);

    /// Whether it shows something without a job.
    fn needs_job(&self) -> bool {
        true
    }

    /// Whether the screen can open with it.
    fn can_be_first(&self) -> bool {
        true
    }

    /// Whether the keys of lists are active on it.
    fn has_list_keys(&self) -> bool {
        true
    }

    /// Whether the footer offers the filter.
    fn offers_filter(&self) -> bool {
        false
    }

    /// The action that leads to it.
    fn action(&self, page: Page) -> Action {
        Action::Go(page)
    }

    /// Computes before a redraw what only this page shows.
    fn settle(&self, _app: &mut App) {}

    /// The ranks whose details it needs.
    fn watches(&self, _app: &App, _job: &Job) -> BTreeSet<Rank> {
        BTreeSet::new()
    }

    /// Called when the page is opened.
    fn enter(&self, _app: &mut App) -> Option<Effect> {
        None
    }

    /// Number of lines that the cursor can be on.
    fn lines(&self, app: &App) -> usize;

    /// The line of the cursor. `None` if its list has no cursor of its own, but selects ranks.
    fn at(&self, _app: &App) -> Option<usize> {
        None
    }

    /// Moves the cursor to this line.
    fn select(&self, _app: &mut App, _line: usize) {}

    /// Moves the cursor.
    fn travel(&self, app: &mut App, motion: Motion) -> Option<Effect> {
        let to = motion.from(self.at(app).unwrap_or(0), self.lines(app), LINES);
        self.select(app, to);
        None
    }

    /// The effect of a click on the line of the cursor.
    fn open(&self, _app: &mut App) -> Option<Effect> {
        None
    }

    /// Shows the evidence of the selected line; of the selected finding on pages without evidence of their
    /// own.
    fn explain(&self, app: &mut App) -> Option<Effect> {
        findings::explain(app)
    }

    /// Why there is no evidence.
    fn unexplained(&self, app: &App) -> Option<&'static str> {
        findings::unexplained(app)
    }

    /// The columns by which its list can be sorted; none if it has one order.
    fn columns(&self, _app: &App) -> Vec<Item> {
        Vec::new()
    }

    /// Sorts its list by the column of this number, worst first.
    fn sort(&self, _app: &mut App, _column: usize) {}

    /// Reverses the order of its list; of the ranks on pages with one order.
    fn reverse(&self, app: &mut App) {
        app.listing.sort.reversed = !app.listing.sort.reversed;
    }

    /// Undoes the latest choice on it, or leaves it.
    fn close(&self, app: &mut App) -> Option<Effect> {
        go::to(app, Page::Overview)
    }
}
