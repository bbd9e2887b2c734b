//! Sets the order of the shown list.

use crate::app::{App, Order, Page, Sort};

/// Sorts by the column of this number, worst first, on a page with its own list.
pub(super) fn by(app: &mut App, column: usize) {
    match app.page {
        Page::Gemms => app.gemms.order = Order::nth(column),
        Page::Steps => app.steps.order = Order::nth(column),
        Page::Hosts => app.hosts.order = Order::nth(column),
        Page::Overview | Page::Rank | Page::Collectives | Page::Stacks | Page::Findings | Page::Captures => {}
    }
}

/// Reverses the order.
pub(super) fn turn(app: &mut App) {
    match app.page {
        Page::Gemms => app.gemms.order = app.gemms.order.turned(),
        Page::Steps => app.steps.order = app.steps.order.turned(),
        Page::Hosts => app.hosts.order = app.hosts.order.turned(),
        _ => app.sort = Sort { reversed: !app.sort.reversed, ..app.sort },
    }
}
