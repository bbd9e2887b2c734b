//! The connection to one host: probed, opened, polled, and closed when no answer arrives.

mod contexts;
mod probe;
mod route;
mod tunnel;

use std::{
    collections::{HashMap, HashSet},
    fmt, iter,
    time::{Duration, Instant},
};

use zmq::{DONTWAIT, Socket};

pub use contexts::Contexts;
pub use probe::{Found, Prober};
pub use route::Route;

use xpu_wire::{
    codec,
    endpoint::Endpoint,
    frame::{Body, Frame, JobSnapshot, Life, RelayedHost, Request},
    id::{HostName, JobName},
    link::Link,
};

use crate::{messages, socket};

/// A host that has not answered for this long is down.
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
    /// When the host last answered, or the connection was opened.
    heard: Instant,
}

/// The connection to one collector, or to a relay and so to the collectors behind it.
pub struct Connection {
    endpoint: Endpoint,
    state: State,
    link: Link,
    /// The host's name, as its collector reports it.
    called: Option<HostName>,
    /// The hosts behind a relay, by its last report.
    behind: Vec<RelayedHost>,
    /// The jobs in each host's last snapshot, each with whether a rank of it lives there.
    jobs: HashMap<HostName, Vec<(JobName, bool)>>,
    /// Whether the host accepted a connection and then sent nothing.
    mute: bool,
    /// Whether [`Connection::relayed_hosts`] has changed since the last [`Connection::take_news`].
    news: bool,
    /// The request for history, which is sent once.
    recall: Option<Request>,
    /// Whether a snapshot or a relay's report has arrived.
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

    /// A connection that first sends this request for history.
    pub fn recalling(endpoint: Endpoint, request: Request) -> Self {
        Self { recall: Some(request), ..Self::new(endpoint) }
    }

    /// Whether the host has answered or cannot be reached, so that a viewer need not wait for it.
    pub fn is_settled(&self) -> bool {
        self.answered || matches!(self.link, Link::Down { .. })
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Whether [`Connection::relayed_hosts`] has changed since the last call.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Notes that the change could not be passed on, so that the next [`Connection::take_news`] reports it
    /// again.
    pub fn report_again(&mut self) {
        self.news = true;
    }

    /// The host itself, and the hosts behind it. If the host cannot be reached, all of them count as
    /// unreachable.
    pub fn relayed_hosts(&self) -> impl Iterator<Item = RelayedHost> {
        let own = RelayedHost {
            endpoint: self.endpoint.clone(),
            link: self.link.clone(),
            called: self.called.clone(),
        };
        let behind = self.behind.iter().map(|host| match &self.link {
            Link::Down { why } => RelayedHost {
                link: Link::Down { why: format!("its relay cannot be reached: {why}") },
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

    /// Takes the result of a probe.
    pub fn probed(&mut self, found: Found, contexts: &mut Contexts, data: &Socket, now: Instant) {
        let opened = found.and_then(|route| {
            open(&route, contexts, data, now).map_err(|error| {
                let at = &route.control;
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
            "{host}:{port} accepts the connection but does not answer: its key differs (copy its ~/.config/xpu-top/key to this host, or set XPU_TOP_KEY_FILE), or it is not an xpu-collector"
        )
    }

    /// The next incoming message: the route back to the requester, if it came through a relay, and a frame.
    pub fn receive(&mut self, now: Instant) -> Option<Vec<Vec<u8>>> {
        let State::Open(open) = &mut self.state else { return None };
        let parts = open.control.recv_multipart(DONTWAIT).ok()?;
        open.heard = now;
        self.mute = false;
        Some(parts)
    }

    /// Decodes the frame, and updates the connection's state from it.
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
        // History may arrive before the first snapshot, and does not show the connection's state.
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
            // A refusal by a host behind a relay does not concern the relay.
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

    /// Whether the host reported the job, and, if `alive`, a living rank of it.
    fn knows(&self, job: &JobName, alive: bool) -> bool {
        self.jobs.values().flatten().any(|(known, lives)| known == job && (*lives || !alive))
    }

    /// Whether this connection has reported jobs of the host.
    pub fn leads_to(&self, host: &HostName) -> bool {
        self.jobs.contains_key(host)
    }

    /// Sends a request about a job if the host reported the job, and, if `alive`, a living rank of it.
    pub fn ask(&self, job: &JobName, alive: bool, request: impl Fn() -> Request) {
        if self.knows(job, alive) {
            self.send(&[], &messages::request(request()));
        }
    }

    /// Forwards another viewer's request. The answer returns along `route`.
    pub fn pass_on(&self, of: Option<&JobName>, route: &[Vec<u8>], request: &[u8]) {
        if of.is_none_or(|job| self.knows(job, false)) {
            self.send(route, request);
        }
    }

    /// Sends a message, or drops it if the queue is full: a host that does not answer is detected by its
    /// silence.
    fn send(&self, route: &[Vec<u8>], payload: &[u8]) {
        let State::Open(open) = &self.state else { return };
        let parts = route.iter().map(Vec::as_slice).chain([payload]);
        let _ = open.control.send_multipart(parts, DONTWAIT);
    }

    /// Sends requests, gives up, and retries, each when due. `true` if the host should be probed.
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
                if open.asked.is_none_or(|asked| now.duration_since(asked) >= messages::ASK) {
                    open.asked = Some(now);
                    if let Some(request) = self.recall.take() {
                        self.send(&[], &messages::request(request));
                    }
                    self.send(&[], &messages::request(Request::Snapshot));
                }
                false
            }
        }
    }
}

fn open(route: &Route, contexts: &mut Contexts, data: &Socket, now: Instant) -> zmq::Result<Open> {
    let control = contexts.make(socket::control_client)?;
    for socket in [&control, data] {
        socket.set_ipv6(route.is_ipv6)?;
    }
    control.connect(&route.control)?;
    data.connect(&route.data)?;
    Ok(Open { control, data: route.data.clone(), asked: None, heard: now })
}

fn lives(job: &JobSnapshot) -> bool {
    job.ranks.iter().any(|rank| matches!(rank.digest.life, Life::Alive | Life::Silent))
}
