//! The routes and their handlers. `openapi.json` documents the same routes.

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::from_fn_with_state,
    routing::{get, post},
};

use super::{
    api,
    app::App,
    capture, document,
    error::Problem,
    events,
    gate::{self, BODY, HEALTH, METRICS},
    hosting, kineto, page, replay, report, web, what_if,
};

pub(super) fn all(app: &Arc<App>) -> Router {
    let mut routes = Router::new()
        .route("/", get(web::index))
        .route("/web/{*file}", get(web::file))
        .route("/api", get(document::page))
        .route("/openapi.json", get(document::openapi))
        .route(HEALTH, get(async || "ok\n"))
        .route(METRICS, get(page::metrics))
        .route("/api/v1/jobs", get(api::jobs))
        .route("/api/v1/jobs/{job}", get(api::job))
        .route("/api/v1/jobs/{job}/what-if", get(what_if::show))
        .route("/api/v1/ranks", get(api::ranks))
        .route("/api/v1/findings", get(api::findings))
        .route("/api/v1/steps", get(api::steps))
        .route("/api/v1/events", get(events::listen))
        .route("/api/v1/replay", get(replay::show).post(replay::steer))
        .route("/api/v1/hook", post(api::hook))
        .route("/api/v1/stacks", post(api::stacks))
        .route("/api/v1/capture", get(capture::list).post(capture::begin))
        .route("/api/v1/capture/{id}", get(capture::show))
        .route("/api/v1/capture/{id}/file", get(capture::file))
        .route("/api/v1/capture/{id}/report", get(report::show))
        .route("/api/v1/capture/{id}/functions", get(report::functions))
        .route("/api/v1/kineto", get(kineto::list).post(kineto::begin))
        .route("/api/v1/kineto/{id}", get(kineto::show))
        .route("/api/v1/kineto/{id}/{file}", get(kineto::file));
    if app.config.pages.compat {
        let trace = get(hosting::dump_kernel_trace).post(hosting::dump_kernel_trace);
        let stacks = get(hosting::dump_string_stacktrace).post(hosting::dump_string_stacktrace);
        routes = routes
            .route("/HostingService/DumpKernelTrace", trace)
            .route("/HostingService/DumpStringStacktrace", stacks);
    }
    routes
        .fallback(async || Problem::unknown_path())
        .method_not_allowed_fallback(async || Problem::unknown_method())
        .layer(DefaultBodyLimit::max(BODY))
        .layer(from_fn_with_state(Arc::clone(app), gate::pass))
        .with_state(Arc::clone(app))
}
