//! The connection to one host: probed, opened, polled, and closed when no answer arrives.

mod contexts;
mod probe;
mod tunnel;

use std::{
    collections::{HashMap, HashSet},
    fmt, iter,
    time::{Duration, Instant},
};

use zmq::{DONTWAIT, Socket};

pub use contexts::Contexts;
pub use probe::{Found, Prober, Way};

use xpu_wire::{
    codec,
    endpoint::{Endpoint, host_name},
    frame::{Body, Frame, JobSnapshot, Life, RelayedHost, Request},
    id::{HostName, JobName},
    link::Link,
    unit::Moment,
};

use crate::socket;

/// How often a host is asked for its snapshot.
const ASK: Duration = Duration::from_secs(2);

/// A host that answered nothing for this long is down.
const PATIENCE: Duration = Duration::from_secs(3);

/// Wait before a host that could not be reached is tried again.
const RETRY: Duration = Duration::from_secs(2);

enum State {
    Waiting { until: Instant },
    Probing,
    Open(Open),
}

struct Open {
    control: Socket,
    data: String,
    asked: Option<Instant>,
    /// When it last answered, or was opened.
    heard: Instant,
}

/// The way to one collector, or to a relay and so to the collectors behind it.
pub struct Connection {
    endpoint: Endpoint,
    state: State,
    link: Link,
    /// What the collector calls its host.
    called: Option<HostName>,
    /// The hosts behind a relay, as it last told of them.
    behind: Vec<RelayedHost>,
    /// Jobs each host knows, as its last snapshot had them, and whether a rank lives there.
    jobs: HashMap<HostName, Vec<(JobName, bool)>>,
    /// It took a connection and then said nothing.
    mute: bool,
    /// Something of [`Connection::relayed_hosts`] has changed since it was last asked.
    news: bool,
    /// How much of the past is asked for, once.
    recall: Option<Duration>,
    /// A snapshot has come, or a relay's word.
    answered: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.endpoint)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

impl Connection {
    pub fn new(endpoint: Endpoint) -> Self {
        let state = State::Waiting { until: Instant::now() };
        Self {
            endpoint,
            state,
            link: Link::Connecting,
            called: None,
            behind: Vec::new(),
            jobs: HashMap::new(),
            mute: false,
            news: true,
            recall: None,
            answered: false,
        }
    }

    /// One on which what was published for so long is asked for before anything else.
    pub fn recalling(endpoint: Endpoint, length: Duration) -> Self {
        Self { recall: Some(length), ..Self::new(endpoint) }
    }

    /// Whether the host has answered, or cannot be reached: nothing is to be waited for.
    pub fn is_settled(&self) -> bool {
        self.answered || matches!(self.link, Link::Down { .. })
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Whether something of [`Connection::relayed_hosts`] has changed since this was last asked.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// What changed could not be passed on.
    pub fn tell_again(&mut self) {
        self.news = true;
    }

    /// The host itself, and the hosts behind it: of those nothing is known where it cannot be reached.
    pub fn relayed_hosts(&self) -> impl Iterator<Item = RelayedHost> {
        let own = RelayedHost {
            endpoint: self.endpoint.clone(),
            link: self.link.clone(),
            called: self.called.clone(),
        };
        let behind = self.behind.iter().map(|host| match &self.link {
            Link::Down { why } => RelayedHost {
                link: Link::Down { why: format!("its relay is out of reach: {why}") },
                ..host.clone()
            },
            Link::Connecting | Link::Up => host.clone(),
        });
        iter::once(own).chain(behind)
    }

    fn set(&mut self, link: Link) {
        if self.link != link {
            self.link = link;
            self.news = true;
        }
    }

    /// The probe came back.
    pub fn probed(&mut self, found: Found, contexts: &mut Contexts, data: &Socket, now: Instant) {
        let opened = found.and_then(|way| {
            open(&way, contexts, data, now).map_err(|error| {
                let at = &way.control;
                format!("libzmq cannot connect to {at}: {error}; with many hosts, raise `ulimit -n`")
            })
        });
        match opened {
            Ok(open) => {
                if self.mute {
                    self.set(Link::Down { why: self.why_mute() });
                }
                self.state = State::Open(open);
            }
            Err(why) => {
                self.mute = false;
                self.set(Link::Down { why });
                self.state = State::Waiting { until: now + RETRY };
            }
        }
    }

    fn why_mute(&self) -> String {
        let Endpoint { host, base, .. } = &self.endpoint;
        let port = base.control();
        format!(
            "{host}:{port} takes the connection and does not answer: it has another key \
             (copy its ~/.config/xpu-top/key here, or name it in XPU_TOP_KEY_FILE), or it is no xpu-collector"
        )
    }

    /// The next message that came back: where it goes on to, if somebody asked through a relay, and a frame.
    pub fn receive(&mut self, now: Instant) -> Option<Vec<Vec<u8>>> {
        let State::Open(open) = &mut self.state else { return None };
        let parts = open.control.recv_multipart(DONTWAIT).ok()?;
        open.heard = now;
        self.mute = false;
        Some(parts)
    }

    /// What the frame says, and what it says of the way.
    pub fn understand(&mut self, payload: &[u8]) -> Option<Frame> {
        match codec::decode(payload) {
            Ok(frame) => {
                self.learn(&frame);
                Some(frame)
            }
            Err(error) => {
                self.set(Link::Down { why: format!("{} answers with {error}", self.endpoint) });
                None
            }
        }
    }

    fn learn(&mut self, frame: &Frame) {
        // What comes before the first snapshot: it tells of the past, and nothing of the way.
        if matches!(frame.body, Body::History(_)) {
            return;
        }
        self.answered |= matches!(frame.body, Body::Snapshot(_) | Body::Relay(_));
        match &frame.body {
            Body::Relay(relay) => {
                self.news |= self.behind != relay.hosts;
                self.behind.clone_from(&relay.hosts);
                let known: HashSet<_> = relay.hosts.iter().filter_map(|host| host.called.as_ref()).collect();
                self.jobs.retain(|host, _| known.contains(host));
            }
            Body::Snapshot(snapshot) => {
                let jobs = snapshot.jobs.iter().map(|job| (job.job.clone(), lives(job))).collect();
                self.jobs.insert(frame.host.clone(), jobs);
            }
            // One of many behind a relay refuses: that is no word on the relay.
            Body::Refusal(why) if self.behind.is_empty() => {
                return self.set(Link::Down { why: format!("{} refuses: {why}", self.endpoint) });
            }
            _ => {}
        }
        let speaks_itself = self.behind.is_empty() || matches!(frame.body, Body::Relay(_));
        if speaks_itself && self.called.as_ref() != Some(&frame.host) {
            self.called = Some(frame.host.clone());
            self.news = true;
        }
        self.set(Link::Up);
    }

    /// Whether the host said that it knows the job, and with `alive`, that a rank of it lives there.
    fn knows(&self, job: &JobName, alive: bool) -> bool {
        self.jobs.values().flatten().any(|(known, lives)| known == job && (*lives || !alive))
    }

    /// Whether this host has told of its jobs along this way.
    pub fn leads_to(&self, host: &HostName) -> bool {
        self.jobs.contains_key(host)
    }

    /// Asks for something about a job, if the host said that it knows it, or that a rank of it lives there.
    pub fn ask(&self, job: &JobName, alive: bool, request: impl Fn() -> Request) {
        if self.knows(job, alive) {
            self.send(&[], &message(request()));
        }
    }

    /// Passes on what another asks, whose answer is to go back along `route`.
    pub fn pass_on(&self, of: Option<&JobName>, route: &[Vec<u8>], request: &[u8]) {
        if of.is_none_or(|job| self.knows(job, false)) {
            self.send(route, request);
        }
    }

    /// A full queue is that of a host that does not answer, which is noticed by that.
    fn send(&self, route: &[Vec<u8>], payload: &[u8]) {
        let State::Open(open) = &self.state else { return };
        let parts = route.iter().map(Vec::as_slice).chain([payload]);
        let _ = open.control.send_multipart(parts, DONTWAIT);
    }

    /// Asks, gives up, tries anew, each in its time. `true` if the host is to be probed.
    pub fn look_after(&mut self, data: &Socket, now: Instant) -> bool {
        match &mut self.state {
            State::Probing => false,
            State::Waiting { until } if now < *until => false,
            State::Waiting { .. } => {
                self.state = State::Probing;
                true
            }
            State::Open(open) if now.duration_since(open.heard) >= PATIENCE => {
                let _ = data.disconnect(&open.data);
                self.mute = true;
                self.state = State::Probing;
                true
            }
            State::Open(open) => {
                if open.asked.is_none_or(|asked| now.duration_since(asked) >= ASK) {
                    open.asked = Some(now);
                    if let Some(length) = self.recall.take() {
                        self.send(&[], &message(Request::History { length: length.into() }));
                    }
                    self.send(&[], &message(Request::Snapshot));
                }
                false
            }
        }
    }
}

fn open(way: &Way, contexts: &mut Contexts, data: &Socket, now: Instant) -> zmq::Result<Open> {
    let control = contexts.make(socket::control_client)?;
    for socket in [&control, data] {
        socket.set_ipv6(way.is_ipv6)?;
    }
    control.connect(&way.control)?;
    data.connect(&way.data)?;
    Ok(Open { control, data: way.data.clone(), asked: None, heard: now })
}

fn lives(job: &JobSnapshot) -> bool {
    job.ranks.iter().any(|rank| matches!(rank.digest.life, Life::Alive | Life::Silent))
}

fn message(request: Request) -> Vec<u8> {
    let body = Body::Request(request);
    codec::encode(&Frame { host: host_name(), number: 0, now: Moment::now(), lost: 0, body })
}
