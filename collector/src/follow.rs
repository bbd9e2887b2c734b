//! A viewer inside the collector: `/metrics`, `/api` and OTLP show what any viewer can receive.
//!
//! It connects over sockets within the process, on a separate thread, so the poll loop never waits for a
//! page's reader, and a relay with many hosts can be followed the same way. While it has no readers it has no
//! sockets and costs nothing.
//!
//! Instead of a collector, the pages may show a [`Recording`], at one moment or while it plays.

mod known;
mod recording;

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use xpu_net::{
    recall::{self, Recall},
    socket,
};
use xpu_wire::{
    codec,
    endpoint::host_name,
    frame::{Body, Frame, Request},
    unit::Moment,
};
use zmq::{Context, DONTWAIT, POLLIN, PollItem, Socket};

pub(crate) use known::Known;
pub use recording::Recording;
pub(crate) use recording::Replay;

use crate::{hangs::Wishes, metrics::Pages, ras::RawAnswers};

/// After this time a reader counts as gone: longer than any scrape interval.
const LOOKS: Duration = Duration::from_mins(5);

/// Interval of snapshot requests, which reveal new jobs.
const ASK: Duration = Duration::from_secs(2);

/// Time that the first reader waits for the first snapshot.
const FIRST: Duration = Duration::from_secs(2);

/// Frames taken before waiting readers are checked.
const TURN: usize = 1024;

/// Interval of computing the topics: for ten thousand ranks that takes milliseconds.
const TIDY: Duration = Duration::from_millis(250);

/// While a recording plays, how often it is advanced.
const PLAY: Duration = Duration::from_millis(100);

/// Wait before sockets are opened again after libzmq refused.
const RETRY: Duration = Duration::from_secs(5);

/// Where a collector, or a relay, is reached within its process.
#[derive(Clone)]
pub struct Upstream {
    pub context: Context,
    /// Where its data socket (XPUB) is bound: `inproc://...`.
    pub data: String,
    /// Where its control socket (ROUTER) is bound.
    pub control: String,
    /// Prefix of the follower's identity: its requests do not keep a collector alive.
    pub name: Vec<u8>,
    /// Set while some part of this process has work to finish: an idle collector does not exit then.
    pub held: Arc<AtomicBool>,
    /// The hang actions of jobs.
    pub(crate) wishes: Wishes,
    /// Unchanged answers of RAS.
    pub(crate) ras: RawAnswers,
}

impl Upstream {
    /// Addresses that are unique in this process, and a name that cannot be guessed outside it.
    pub fn within(context: Context) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        let name = [random().to_be_bytes(), random().to_be_bytes()].concat();
        Self {
            context,
            data: "inproc://data".to_owned(),
            control: "inproc://control".to_owned(),
            name,
            held: Arc::default(),
            wishes: Wishes::default(),
            ras: RawAnswers::default(),
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("data", &self.data).finish_non_exhaustive()
    }
}

/// Whose data the pages show.
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
    /// Follows without readers too.
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

    /// The recording that is shown, and what it has at its moment; `None` if a job is followed.
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

    /// Where the collector answers; `None`: the pages show a recording.
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

    /// The current state. Blocks until the first snapshot has come; not for threads that serve others.
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
        let Upstream { context, data: data_at, control: control_at, name, .. } = upstream;
        let data = socket::subscriber(context, None)?;
        data.connect(data_at)?;
        let control = socket::control_client(context, None)?;
        control.set_identity(&[&name[..], &session.to_be_bytes()].concat())?;
        control.connect(control_at)?;
        // A relay shortens it to what suits the hosts behind it.
        let length = recall::length(1).into();
        let _ = control.send(request(Request::History { length }), DONTWAIT);
        let mut recall = Some((Recall::begin(Instant::now()), Vec::new()));
        let (mut asked, mut tidied): (Option<Instant>, Option<Instant>) = (None, None);
        while self.lock().is_wanted() {
            if asked.is_none_or(|asked| asked.elapsed() >= ASK) {
                asked = Some(Instant::now());
                // If the queue is full, the poll loop is late, and another request would not help.
                let _ = control.send(request(Request::Snapshot), DONTWAIT);
            }
            let mut items: [PollItem<'_>; 2] = [&data, &control].map(|socket| socket.as_poll_item(POLLIN));
            match zmq::poll(&mut items, TIDY.as_millis() as i64) {
                Ok(_) | Err(zmq::Error::EINTR) => {}
                Err(error) => return Err(error),
            }
            self.receive(&control, &mut recall)?;
            self.receive(&data, &mut recall)?;
            self.take_past(&mut recall);
            self.news.notify_all();
            if tidied.is_some_and(|tidied| tidied.elapsed() < TIDY) {
                continue;
            }
            tidied = Some(Instant::now());
            let wishes = self.lock().known.wishes(Instant::now(), Moment::now());
            for topic in wishes.subscribe {
                data.set_subscribe(topic.as_bytes())?;
            }
            for topic in wishes.unsubscribe {
                data.set_unsubscribe(topic.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Takes waiting messages from a socket one by one: queued decoded frames would take many times as much
    /// memory.
    fn receive(&self, socket: &Socket, recall: &mut Option<Recalling>) -> zmq::Result<()> {
        for _ in 0..TURN {
            let mut parts = match socket.recv_multipart(DONTWAIT) {
                Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => break,
                parts => parts?,
            };
            let payload = parts.pop().unwrap_or_default();
            // An answer has no topic. A frame that does not decode is missing in the count of its stream.
            let Ok(frame) = codec::decode(&payload) else { continue };
            let topic = parts.pop().unwrap_or_default();
            match recall {
                None => self.lock().known.take(&topic, &frame, Moment::now()),
                Some((recall, held)) => {
                    recall.hear(&frame, Instant::now());
                    if !matches!(frame.body, Body::History(_)) {
                        held.push((topic, frame));
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the history once it is complete, and then the frames that arrived meanwhile.
    fn take_past(&self, recall: &mut Option<Recalling>) {
        let answered = |held: &[(Vec<u8>, Frame)]| {
            held.iter().any(|(_, frame)| matches!(frame.body, Body::Snapshot(_) | Body::Relay(_)))
        };
        let over = recall.take_if(|(recall, held)| recall.is_over(answered(held), Instant::now()));
        let Some((recall, held)) = over else { return };
        let past = recall.frames().into_iter().map(|frame| (Vec::new(), frame));
        for (topic, frame) in past.chain(held) {
            self.lock().known.take(&topic, &frame, Moment::now());
        }
    }
}

/// The recording that is shown, at its moment.
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

/// History while it is awaited, and the frames that arrived meanwhile.
type Recalling = (Recall, Vec<(Vec<u8>, Frame)>);

/// A request as it goes over the control socket.
pub(crate) fn request(request: Request) -> Vec<u8> {
    let body = Body::Request(request);
    codec::encode(&Frame { host: host_name(), number: 0, now: Moment::now(), lost: 0, body })
}
