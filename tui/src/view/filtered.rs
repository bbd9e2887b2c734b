//! Texts about the filter: the number of matching ranks.

use xpu_client::filter::Filter;
use xpu_model::figure;

use super::prompt;
use crate::app::App;

/// `64 ranks`, `12 of 64 ranks`
pub(super) fn ranks(app: &App) -> String {
    match &app.job_view.filtered {
        Some(_) => prompt::matched(app),
        None => figure::counted(app.stacks.shown().ranks.len(), "rank", "ranks"),
    }
}

/// The active filter, as a suffix: ` / tflops<0.9*median`.
pub(super) fn filter(app: &App) -> String {
    app.listing.filter.as_ref().map(Filter::text).map_or_else(String::new, |text| format!(" / {text}"))
}

/// No rank matches the filter.
pub(super) fn nobody(app: &App) -> String {
    let filter = app.listing.filter.as_ref().map_or("", Filter::text);
    let key = app.key("filter");
    format!("No rank matches the filter {filter}. {key} edits it; Esc while editing drops it.")
}

/// Whether a filter leaves this list empty.
pub(super) fn is_empty(app: &App) -> bool {
    app.job_view.matching().is_some_and(|matching| matching.is_empty())
}
