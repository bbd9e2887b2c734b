//! HTTP: the web page, the Prometheus page, and the API for scripts.
//!
//! Two threads run in addition to the poll loop. One serves connections. The other is a viewer
//! ([`crate::follow`]), which receives what any viewer receives. The loop does not depend on them, so nothing
//! over HTTP can block it.
//!
//! Without a key, the server listens only on this host's own addresses. With a key, it requires a token.
//! Everything an unknown client can send is bounded: connections ([`acceptor`], [`connection_limit`]), requests
//! per second, bytes of a body, seconds for each part of a request ([`gate`]).

mod acceptor;
mod api;
mod app;
mod ask;
mod capture;
mod connection_limit;
mod document;
mod error;
mod events;
mod gate;
mod gzip;
mod hosting;
mod kineto;
mod page;
mod push;
mod replay;
mod report;
mod routes;
mod token;
mod web;
mod what_if;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

pub use capture::{CaptureWay, KeyWay};
pub use push::{Push, PushError};
pub use token::{Token, TokenError};

use crate::{
    follow::{Follow, Recording, Source},
    metrics::Pages,
};
use app::App;
use capture::{Capture, Window};

/// Threads that compute pages; further requests wait.
const PAGES: usize = 2;

/// A server's configuration.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Listen addresses. The first is required.
    pub addresses: Vec<SocketAddr>,
    /// The token that requests must carry. `None`: every request is allowed.
    pub token: Option<Token>,
    /// Whether `/metrics` needs no token.
    pub open_metrics: bool,
    /// Options of the pages, in addition to the native metrics.
    pub pages: Pages,
    /// How captures are made; `None` if they are refused.
    pub captures: Option<CaptureWay>,
    /// The receiver of pushed metrics.
    pub push: Option<Push>,
    /// Interval of what-if captures; `None` if there are none.
    pub what_if_every: Option<Duration>,
}

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    follow: Arc<Follow>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.follow.end();
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error(
        "cannot listen at {address}: {error}; if another program has this port, choose --base-port N on all hosts, or serve no HTTP with --no-http"
    )]
    Listen { address: SocketAddr, error: io::Error },
    #[error("cannot start a thread for HTTP: {0}; raise `ulimit -u`")]
    Thread(io::Error),
    #[error("cannot follow the job or recording: {0}")]
    Start(io::Error),
}

/// Serves the data of a collector, of a relay, or of a recording.
pub fn serve(source: Source, config: HttpConfig) -> Result<Server, HttpError> {
    let mut listeners = Vec::new();
    for (number, &address) in config.addresses.iter().enumerate() {
        match listen(address) {
            Ok(listener) => listeners.push(listener),
            // Only the first address is required.
            Err(error) if number > 0 => tracing::warn!("{error}; the other port serves the same"),
            Err(error) => return Err(error),
        }
    }
    let follow = Follow::start(source, config.pages).map_err(HttpError::Start)?;
    let app = Arc::new(App::new(Arc::clone(&follow), config));
    if let Some((capture, traces)) = follow.steer(|steering| recorded(steering.recording())).flatten() {
        app.captures.hold(capture);
        if let Some(traces) = traces {
            app.traces.hold(traces);
        }
    }
    if app.config.push.is_some() {
        follow.always();
        let pushing = Arc::clone(&app);
        let pushes = thread::Builder::new().name("otlp".to_owned()).spawn(move || push::run(&pushing));
        pushes.map_err(HttpError::Thread)?;
    }
    if let Some(every) = app.config.what_if_every {
        follow.always();
        let asking = Arc::clone(&app);
        let asks =
            thread::Builder::new().name("what-ifs".to_owned()).spawn(move || what_if::run(&asking, every));
        asks.map_err(HttpError::Thread)?;
    }
    thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || run(listeners, &app))
        .map_err(HttpError::Thread)?;
    Ok(Server { follow })
}

/// The captured steps of a recording, and the traces by PyTorch's profiler beside it, in the form of this
/// program's own captures.
fn recorded(recording: &Recording) -> Option<(Capture, Option<Capture>)> {
    let (sheet, window) = recording.capture.as_ref()?;
    let window = match window {
        Some(window) => Window::ForMs(window.length.0 / 1_000_000),
        None => Window::Steps(sheet.order.steps),
    };
    let of = |path: &Path, window| Capture::recorded(sheet.job.clone(), window, path);
    let mut beside = recording.path.clone().into_os_string();
    beside.push(".kineto");
    let traces = Some(PathBuf::from(beside)).filter(|folder| folder.is_dir());
    let traced = match window {
        Window::ForMs(time) => Window::DurationMs(time),
        other => other,
    };
    Some((of(&recording.path, window), traces.as_deref().map(|folder| of(folder, traced))))
}

fn listen(address: SocketAddr) -> Result<TcpListener, HttpError> {
    let listener =
        TcpListener::bind(address).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|error| HttpError::Listen { address, error })
}

fn run(listeners: Vec<TcpListener>, app: &Arc<App>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(PAGES).build();
    let served = runtime.and_then(|runtime| runtime.block_on(acceptor::open(listeners, app)));
    if let Err(error) = served {
        tracing::error!("HTTP stopped: {error}; everything else continues");
    }
}
