//! `/metrics`.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};

use super::{app::App, error::Problem};
use crate::metrics::CONTENT_TYPE;

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let page = app.page().await?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], page.to_string()).into_response())
}
