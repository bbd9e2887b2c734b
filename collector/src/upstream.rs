//! Connects viewers within this process to its collector, or relay, over sockets within the process.
//!
//! Each such viewer has its own thread, so the poll loop never waits for a page's reader, a slow disk or a
//! user's program.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use xpu_net::{messages, socket};
use xpu_wire::frame::{Frame, Request};
use zmq::{Context, DONTWAIT, POLLIN, PollItem, Socket};

use crate::{on_hang::HangActions, ras::RawAnswers};

/// The addresses of a collector, or of a relay, within its process.
#[derive(Clone)]
pub struct Upstream {
    pub context: Context,
    /// The address of the data socket (XPUB): `inproc://...`.
    pub data: String,
    /// The address of the control socket (ROUTER).
    pub control: String,
    /// Prefix of the identities of viewers in this process. Their requests do not keep an idle collector
    /// alive.
    pub name: Vec<u8>,
    /// Whether a part of this process has work to finish, so that an idle collector does not exit.
    pub held: Arc<AtomicBool>,
    /// The hang actions of jobs.
    pub(crate) hang_actions: HangActions,
    /// Unchanged answers of RAS.
    pub(crate) ras: RawAnswers,
}

impl Upstream {
    /// Creates addresses that are unique in this process, and a name that cannot be guessed outside it.
    pub fn within(context: Context) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        let name = [random().to_be_bytes(), random().to_be_bytes()].concat();
        Self {
            context,
            data: "inproc://data".to_owned(),
            control: "inproc://control".to_owned(),
            name,
            held: Arc::default(),
            hang_actions: HangActions::default(),
            ras: RawAnswers::default(),
        }
    }

    /// Opens a viewer's sockets. The viewer's identity is the name followed by `viewer`.
    pub(crate) fn open(&self, viewer: &[u8]) -> zmq::Result<Feed> {
        let data = socket::subscriber(&self.context, None)?;
        data.connect(&self.data)?;
        let control = socket::control_client(&self.context, None)?;
        control.set_identity(&[&self.name[..], viewer].concat())?;
        control.connect(&self.control)?;
        Ok(Feed { data, control, asked: None })
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("data", &self.data).finish_non_exhaustive()
    }
}

/// The sockets of one viewer.
pub(crate) struct Feed {
    data: Socket,
    control: Socket,
    /// When a snapshot was last requested.
    asked: Option<Instant>,
}

impl Feed {
    /// Sends a request, without waiting. If the queue is full, the poll loop is late, and waiting would not
    /// help.
    pub(crate) fn ask(&self, wanted: Request) {
        let _ = self.control.send(messages::request(wanted), DONTWAIT);
    }

    pub(crate) fn subscribe(&self, topic: &str) -> zmq::Result<()> {
        self.data.set_subscribe(topic.as_bytes())
    }

    pub(crate) fn unsubscribe(&self, topic: &str) -> zmq::Result<()> {
        self.data.set_unsubscribe(topic.as_bytes())
    }

    /// Waits for frames, at most for `most`. Requests snapshots at intervals.
    pub(crate) fn wait(&mut self, most: Duration) -> zmq::Result<()> {
        if self.asked.is_none_or(|asked| asked.elapsed() >= messages::ASK) {
            self.asked = Some(Instant::now());
            self.ask(Request::Snapshot);
        }
        let mut items: [PollItem<'_>; 2] =
            [&self.data, &self.control].map(|socket| socket.as_poll_item(POLLIN));
        match zmq::poll(&mut items, most.as_millis() as i64) {
            Ok(_) | Err(zmq::Error::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The waiting frames with their topics, answers first. An answer's topic is empty. Frames are decoded
    /// one by one, because decoded frames take many times as much memory.
    pub(crate) fn frames(&self) -> impl Iterator<Item = zmq::Result<(Vec<u8>, Frame)>> {
        [&self.control, &self.data].into_iter().flat_map(messages::waiting)
    }
}
