//! `/api/v1/events`: the status document of a job once a second, as server-sent events.
//!
//! All listeners of a job share one document, written and compressed once. A task makes the documents while
//! there are listeners. A listener that reads slowly skips documents, so it takes no memory.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde::Serialize;
use serde_json::json;
use tokio::{
    sync::{
        Notify,
        watch::{Receiver, Sender},
    },
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use xpu_model::{job::Job, status::Status, what_if};
use xpu_wire::unit::Moment;

use super::{
    acceptor::LIFE,
    api::{self, query, seen, status},
    app::{App, run_blocking},
    error::Problem,
    gzip::{Member, Piece},
};
use crate::follow::{Known, Replay};

const EVERY: Duration = Duration::from_secs(1);

/// A stream ends before its connection would be cut, so that its listener sees an end instead of an error.
const LENGTH: Duration = LIFE.saturating_sub(Duration::from_secs(10));

/// A job's name; `None` means the foremost job.
type Selected = Option<String>;

#[derive(Debug, Default)]
pub(super) struct Events {
    streams: Mutex<BTreeMap<Selected, Sender<Piece>>>,
    /// Signals that the pages show another moment of a recording, so that documents are made at once.
    woken: Notify,
}

/// The status, the sentence on what limits the job, the sentences of the last what-if, and the sum of them
/// all.
#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    status: Status,
    bound_sentence: Option<String>,
    what_if_sentences: Vec<String>,
    what_if_sum: Option<String>,
    /// The moment of a recording that is shown, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_at: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<Replay>,
}

pub(super) async fn listen(
    State(app): State<Arc<App>>,
    which: Result<Query<api::JobSelector>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let job = query(which)?.job;
    if let Some(name) = job.clone() {
        // An unknown name must not be kept.
        seen(&app, move |known| api::find(known, Some(&name)).map(|_job| ())).await?;
    }
    let compressed = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains("gzip")));
    let body = Body::from_stream(unfold(Listener::new(receiver(&app, job), compressed), Listener::next));
    let mut response = ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response();
    if compressed {
        let encoding = header::HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, encoding);
    }
    Ok(response)
}

fn receiver(app: &Arc<App>, job: Option<String>) -> Receiver<Piece> {
    let mut streams = app.events.lock();
    if let Some(sender) = streams.get(&job) {
        return sender.subscribe();
    }
    let (sender, receiver) = tokio::sync::watch::channel(Piece::default());
    streams.insert(job.clone(), sender.clone());
    tokio::spawn(make(Arc::clone(app), job, sender));
    receiver
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Selected, Sender<Piece>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        self.woken.notify_waiters();
    }

    /// Removes a stream without listeners.
    fn ends(&self, job: &Selected, sender: &Sender<Piece>) -> bool {
        let mut streams = self.lock();
        // Counted under the lock: a new listener is either counted here or starts another stream.
        let is_over = sender.receiver_count() == 0;
        if is_over {
            streams.remove(job);
        }
        is_over
    }
}

/// Makes documents while there are listeners.
async fn make(app: Arc<App>, job: Option<String>, sender: Sender<Piece>) {
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = app.events.woken.notified() => {}
        }
        if app.events.ends(&job, &sender) {
            return;
        }
        let name = job.clone();
        let whose = Arc::clone(&app);
        let made = run_blocking(move || {
            let replay = whose.follow.steer(|steering| steering.replay());
            whose.follow.look(|known| piece(known, name.as_deref(), replay))
        })
        .await;
        if let Ok(made) = made {
            sender.send_replace(made);
        }
    }
}

fn piece(known: &Known, job: Option<&str>, replay: Option<Replay>) -> Piece {
    let (event, data) = match status(known, job) {
        Ok(status) => {
            let bound_sentence = status.bound.as_ref().map(ToString::to_string);
            let what_if = known.jobs().get(&status.job).and_then(Job::what_if);
            let document = Document {
                status,
                bound_sentence,
                what_if_sentences: what_if.map(what_if::last).unwrap_or_default(),
                what_if_sum: what_if.and_then(|of| what_if::sum(of, known.pages().price)),
                recorded_at: known.recorded_at().map(|at| at.0 as f64 / 1e9),
                replay,
            };
            ("status", serde_json::to_string(&document))
        }
        // The stream goes on, because the job may still appear.
        Err(problem) => ("problem", serde_json::to_string(&json!(problem.body()))),
    };
    // The JSON is one line: lines of an event may have any length.
    let at = Moment::now().0 / 1_000_000;
    data.map_or_else(
        |_unwritable| Piece::default(),
        |data| Piece::of(format!("event: {event}\nid: {at}\ndata: {data}\n\n")),
    )
}

/// One listener's stream.
struct Listener {
    pieces: Receiver<Piece>,
    until: Instant,
    member: Option<Member>,
    is_over: bool,
}

impl Listener {
    fn new(mut pieces: Receiver<Piece>, compressed: bool) -> Self {
        if !pieces.borrow().is_empty() {
            // The latest piece is new to this listener.
            pieces.mark_changed();
        }
        let member = compressed.then(Member::default);
        Self { pieces, until: Instant::now() + LENGTH, member, is_over: false }
    }

    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.is_over {
            return None;
        }
        let changed = tokio::select! {
            changed = self.pieces.changed() => changed.is_ok(),
            () = sleep_until(self.until) => false,
        };
        self.is_over = !changed;
        let piece = self.pieces.borrow_and_update().clone();
        let bytes = match &mut self.member {
            Some(member) if changed => member.next(&piece),
            Some(member) => member.end(),
            None if changed => piece.plain(),
            None => return None,
        };
        Some((Ok(bytes), self))
    }
}
