//! What the list that is shown is sorted by.

use crate::app::{App, Page, Sort};

/// By the next column, worst first.
pub(super) fn next(app: &mut App) {
    match app.page {
        Page::Gemms => app.gemms.order = app.gemms.order.next(),
        Page::Steps => app.steps.order = app.steps.order.next(),
        Page::Hosts => app.hosts.order = app.hosts.order.next(),
        _ => app.sort = app.sort.next(),
    }
}

/// The other way round.
pub(super) fn turn(app: &mut App) {
    match app.page {
        Page::Gemms => app.gemms.order = app.gemms.order.turned(),
        Page::Steps => app.steps.order = app.steps.order.turned(),
        Page::Hosts => app.hosts.order = app.hosts.order.turned(),
        _ => app.sort = Sort { reversed: !app.sort.reversed, ..app.sort },
    }
}
