//! A viewer inside the collector: `/metrics`, `/api` and OTLP show what any viewer can receive.
//!
//! The thread follows a relay with many hosts like a collector. Without readers, it has no sockets and costs
//! nothing.
//!
//! Instead of a collector, the pages may show a [`Recording`], at one moment or while it plays.

mod known;
mod recording;

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use xpu_net::recall::{self, Recall};
use xpu_wire::unit::Moment;

pub(crate) use known::Known;
pub use recording::Recording;
pub(crate) use recording::Replay;

use crate::{metrics::Pages, upstream::Upstream};

/// A reader that has not asked for this long counts as gone. This is longer than any scrape interval.
const LOOKS: Duration = Duration::from_mins(5);

/// Time that the first reader waits for the first snapshot.
const FIRST: Duration = Duration::from_secs(2);

/// Interval of computing the topics, which takes milliseconds for ten thousand ranks.
const TIDY: Duration = Duration::from_millis(250);

/// Interval at which a playing recording is advanced.
const PLAY: Duration = Duration::from_millis(100);

/// Wait before sockets are opened again after libzmq refused.
const RETRY: Duration = Duration::from_secs(5);

/// The data that the pages show.
#[derive(Debug)]
pub enum Source {
    Live(Upstream),
    Recording(Box<Recording>),
}

/// What the follower has received, while there are readers.
#[derive(Debug)]
pub(crate) struct Follow {
    /// `None`: the pages show a recording.
    upstream: Option<Upstream>,
    pages: Pages,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    known: Known,
    /// The recording that is shown, if any.
    recording: Option<Box<Recording>>,
    looked: Option<Instant>,
    /// Whether to follow even without readers.
    always: bool,
    ended: bool,
}

impl State {
    fn is_wanted(&self) -> bool {
        !self.ended && (self.always || self.looked.is_some_and(|looked| looked.elapsed() < LOOKS))
    }
}

impl Follow {
    /// Starts the thread, which sleeps until the first reader, or until a recording plays.
    pub(crate) fn start(source: Source, pages: Pages) -> std::io::Result<Arc<Self>> {
        let (upstream, state) = match source {
            Source::Live(upstream) => (Some(upstream), State::default()),
            Source::Recording(mut recording) => {
                let known = recording.known(pages)?;
                (None, State { known, recording: Some(recording), ..State::default() })
            }
        };
        let new = Arc::new(Self { upstream, pages, state: Mutex::new(state), news: Condvar::new() });
        let follow = Arc::clone(&new);
        thread::Builder::new().name("follow".to_owned()).spawn(move || match &follow.upstream {
            Some(upstream) => follow.run(upstream),
            None => follow.play(),
        })?;
        Ok(new)
    }

    /// Calls `steer` with the recording that is shown, and its data at that moment. `None` if a job is
    /// followed.
    pub(crate) fn steer<T>(&self, steer: impl FnOnce(&mut Steering<'_>) -> T) -> Option<T> {
        let mut state = self.lock();
        let State { known, recording, .. } = &mut *state;
        let steered = steer(&mut Steering { known, recording: recording.as_mut()?, pages: self.pages });
        drop(state);
        self.news.notify_all();
        Some(steered)
    }

    /// Advances the recording while it plays.
    fn play(&self) {
        let plays = |state: &State| state.recording.as_ref().is_some_and(|recording| recording.is_playing());
        loop {
            let rests = |state: &mut State| !state.ended && !plays(state);
            let state = self.news.wait_while(self.lock(), rests).unwrap_or_else(PoisonError::into_inner);
            let awaits = |state: &mut State| !state.ended;
            let (state, _) =
                self.news.wait_timeout_while(state, PLAY, awaits).unwrap_or_else(PoisonError::into_inner);
            let is_over = state.ended;
            drop(state);
            if is_over {
                return;
            }
            self.steer(|steering| {
                if steering.recording.is_playing() {
                    steering.advance(Instant::now());
                }
            });
        }
    }

    /// The collector's address. `None` if the pages show a recording.
    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        self.upstream.as_ref()
    }

    /// Ends the thread, which closes its sockets.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.news.notify_all();
    }

    /// Follows from now on, even without readers.
    pub(crate) fn always(&self) {
        self.lock().always = true;
        self.news.notify_all();
    }

    /// The current state. Blocks until the first snapshot has come, so a thread that serves others must not
    /// call it.
    pub(crate) fn look<T>(&self, see: impl FnOnce(&mut Known) -> T) -> T {
        let mut state = self.lock();
        state.looked = Some(Instant::now());
        self.news.notify_all();
        let waiting = |state: &mut State| !state.known.has_snapshot() && !state.ended;
        let (mut state, _) =
            self.news.wait_timeout_while(state, FIRST, waiting).unwrap_or_else(PoisonError::into_inner);
        see(&mut state.known)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, upstream: &Upstream) {
        let mut session = 0_u32;
        loop {
            let idle = |state: &mut State| !state.is_wanted() && !state.ended;
            let mut state = self.news.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            if state.ended {
                return;
            }
            state.known = Known::new(Moment::now(), self.pages);
            drop(state);
            session = session.wrapping_add(1);
            if let Err(error) = self.follow(upstream, session) {
                tracing::error!("pages are empty: libzmq: {error}; trying again in {RETRY:?}");
                thread::sleep(RETRY);
            }
            self.lock().known = Known::default();
        }
    }

    /// Receives until there are no readers.
    fn follow(&self, upstream: &Upstream, session: u32) -> zmq::Result<()> {
        let mut feed = upstream.open(&session.to_be_bytes())?;
        // A relay requests as many digests as suit the hosts behind it.
        feed.ask(recall::request(1));
        let mut recall = Some(Recall::begin(Instant::now()));
        let mut tidied: Option<Instant> = None;
        while self.lock().is_wanted() {
            feed.wait(TIDY)?;
            for received in feed.frames() {
                let (topic, frame) = received?;
                match &mut recall {
                    None => self.lock().known.take(&topic, &frame, Moment::now()),
                    Some(recall) => recall.take(topic, frame, Instant::now()),
                }
            }
            if let Some(recall) =
                recall.take_if(|recall| recall.is_over(recall.is_answered(), Instant::now()))
            {
                for (topic, frame) in recall.frames() {
                    self.lock().known.take(&topic, &frame, Moment::now());
                }
            }
            self.news.notify_all();
            if tidied.is_some_and(|tidied| tidied.elapsed() < TIDY) {
                continue;
            }
            tidied = Some(Instant::now());
            let topic_changes = self.lock().known.topic_changes(Instant::now(), Moment::now());
            for topic in topic_changes.subscribe {
                feed.subscribe(&topic)?;
            }
            for topic in topic_changes.unsubscribe {
                feed.unsubscribe(&topic)?;
            }
        }
        Ok(())
    }
}

/// The recording that is shown, and its data at that moment.
#[derive(Debug)]
pub(crate) struct Steering<'a> {
    pub(crate) known: &'a mut Known,
    recording: &'a mut Recording,
    pages: Pages,
}

impl Steering<'_> {
    pub(crate) fn recording(&self) -> &Recording {
        self.recording
    }

    pub(crate) fn replay(&self) -> Replay {
        self.recording.replay()
    }

    pub(crate) fn play(&mut self, plays: bool) {
        self.recording.play(plays, Instant::now());
    }

    pub(crate) fn set_speed(&mut self, speed: f64) {
        self.recording.set_speed(speed);
    }

    pub(crate) fn seek(&mut self, to: Moment) {
        let sought = self.recording.seek(self.known, self.pages, to);
        self.complain(sought);
    }

    fn advance(&mut self, now: Instant) {
        let advanced = self.recording.advance(self.known, self.pages, now);
        self.complain(advanced);
    }

    fn complain(&mut self, read: std::io::Result<()>) {
        if let Err(error) = read {
            self.recording.play(false, Instant::now());
            tracing::error!("cannot read {}: {error}", self.recording.path.display());
        }
    }
}
