//! Texts about the filter: how many ranks match.

use xpu_client::filter::Filter;
use xpu_model::figure;

use super::prompt;
use crate::app::App;

/// `64 ranks`, `12 of 64 ranks`
pub(super) fn ranks(app: &App) -> String {
    match &app.job_view.sifted {
        Some(_) => prompt::matched(app),
        None => figure::counted(app.stacks.shown().ranks.len(), "rank", "ranks"),
    }
}

/// The filter that is in force, to be put after something: ` / tflops<0.9*median`.
pub(super) fn filter(app: &App) -> String {
    app.filter.as_ref().map(Filter::text).map_or_else(String::new, |text| format!(" / {text}"))
}

/// The filter leaves no rank.
pub(super) fn nobody(app: &App) -> String {
    let filter = app.filter.as_ref().map_or("", Filter::text);
    let key = app.key("filter");
    format!("No rank matches the filter {filter}. {key} edits it; Esc while editing drops it.")
}

/// Whether a filter leaves this list empty.
pub(super) fn is_empty(app: &App) -> bool {
    app.job_view.meant().is_some_and(|meant| meant.is_empty())
}
