//! State shared by all requests.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use tokio::{sync::Mutex as Turn, task::spawn_blocking};
use xpu_wire::unit::Moment;

use super::{
    HttpConfig,
    capture::{Captures, What},
    error::Problem,
    events::Events,
    gate::Paces,
};
use crate::{
    follow::Follow,
    metrics::{self, Exposition, Own, Pod},
    upstream::Upstream,
    what_if::WhatIfs,
};

/// A page is cached for this time, so more frequent requests get the same page.
const PAGE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct App {
    pub(super) follow: Arc<Follow>,
    pub(super) config: HttpConfig,
    pub(super) own: Own,
    pub(super) what_ifs: WhatIfs,
    pub(super) paces: Paces,
    pub(super) events: Events,
    pub(super) captures: Captures,
    /// Traces by PyTorch's profiler.
    pub(super) traces: Captures,
    /// Held while stacks are read.
    pub(super) stacks: Turn<()>,
    /// Held while a report of a capture is made.
    pub(super) reports: Turn<()>,
    pod: Pod,
    page: Mutex<Option<(Instant, Arc<str>)>>,
}

impl App {
    pub(super) fn new(follow: Arc<Follow>, config: HttpConfig) -> Self {
        Self {
            follow,
            config,
            own: Own::default(),
            what_ifs: WhatIfs::default(),
            paces: Paces::default(),
            events: Events::default(),
            captures: Captures::default(),
            traces: Captures::of(What::Kineto),
            stacks: Turn::default(),
            reports: Turn::default(),
            pod: Pod::of_environment(),
            page: Mutex::default(),
        }
    }

    /// The page of all metrics.
    pub(super) async fn page(self: &Arc<Self>) -> Result<Arc<str>, Problem> {
        let app = Arc::clone(self);
        run_blocking(move || app.page_now()).await
    }

    /// The address for requests to ranks. A recording has none.
    pub(super) fn upstream(&self) -> Result<&Upstream, Problem> {
        let next = "run `xpu-top serve` for a running job, or open the page of its collector";
        let refuse = || Problem::new(StatusCode::CONFLICT, "this is a recording: no rank runs here", next);
        self.follow.upstream().ok_or_else(refuse)
    }

    /// All current metrics. Waits for the first data.
    pub(super) fn exposition(&self) -> Exposition {
        self.follow.look(|known| Exposition::of(known, &self.own, &self.what_ifs, &self.pod, Moment::now()))
    }

    fn page_now(&self) -> Arc<str> {
        let mut kept = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, page)) = &*kept
            && made.elapsed() < PAGE
        {
            return Arc::clone(page);
        }
        let page: Arc<str> = metrics::text(&self.exposition()).into();
        *kept = Some((Instant::now(), Arc::clone(&page)));
        page
    }
}

/// Runs slow or blocking work on a thread that serves no connections.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    spawn_blocking(work).await.map_err(|_panicked| Problem::fault())
}
