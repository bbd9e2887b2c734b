//! Request errors, as JSON with a remedy.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

#[derive(Clone, Debug)]
pub(super) struct Problem {
    status: StatusCode,
    error: String,
    next: String,
}

#[derive(Serialize)]
pub(super) struct Body<'a> {
    /// The error.
    error: &'a str,
    /// The remedy.
    next: &'a str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, error: impl Into<String>, next: impl Into<String>) -> Self {
        Self { status, error: error.into(), next: next.into() }
    }

    pub(super) fn body(&self) -> Body<'_> {
        Body { error: &self.error, next: &self.next }
    }

    pub(super) fn unknown_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not found", "GET /api lists all paths")
    }

    pub(super) fn unknown_method() -> Self {
        let next = "GET /api lists all paths and their methods";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed", next)
    }

    pub(super) fn fault() -> Self {
        let next = "this is a bug in xpu-collector: please report it with its log";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error", next)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
