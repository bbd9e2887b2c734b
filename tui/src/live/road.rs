//! The way to one host: probed, opened, asked, and closed again when nothing comes back.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use xpu_shared::{
    codec,
    endpoint::host_name,
    frame::{Body, Frame, JobSnapshot, Life, Request},
    id::{HostName, JobName},
    key::Key,
    socket,
    unit::Moment,
};
use zmq::{Context, DONTWAIT, Socket};

use super::probe::Found;
use crate::arrival::{Endpoint, Link};

/// How often a host is asked for its snapshot.
const ASK: Duration = Duration::from_secs(2);

/// A host that answered nothing for this long is down.
const PATIENCE: Duration = Duration::from_secs(3);

/// Wait before a host that could not be reached is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Sockets in one ZeroMQ context, which takes 1023.
const SOCKETS: usize = 1000;

/// ZeroMQ contexts, as many as the sockets need.
pub(super) struct Contexts {
    key: Option<Key>,
    current: Context,
    made: usize,
}

impl Contexts {
    pub(super) fn new(key: Option<Key>, hosts: usize) -> Self {
        raise_descriptor_limit(hosts);
        Self { key, current: Context::new(), made: 0 }
    }

    pub(super) fn make(
        &mut self,
        kind: impl Fn(&Context, Option<&Key>) -> zmq::Result<Socket>,
    ) -> zmq::Result<Socket> {
        if self.made == SOCKETS {
            // Sockets keep their context alive.
            (self.current, self.made) = (Context::new(), 0);
        }
        self.made += 1;
        kind(&self.current, self.key.as_ref())
    }
}

/// A host takes three descriptors; the usual soft limit of 1024 would end at 300 hosts.
fn raise_descriptor_limit(hosts: usize) {
    let needed = hosts as libc::rlim_t * 4 + 256;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 && limit.rlim_cur < needed {
        limit.rlim_cur = needed.min(limit.rlim_max);
        // SAFETY: the pointer is to a live rlimit; a refusal leaves the old limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

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

pub(super) struct Road {
    endpoint: Endpoint,
    state: State,
    link: Link,
    /// The link as it was last told of.
    told: Option<Link>,
    /// What the host calls itself, as it was last told.
    pub(super) called: Option<HostName>,
    /// Jobs it knows, as its last snapshot had them, and whether a rank lives there.
    jobs: Vec<(JobName, bool)>,
    /// It took a connection and then said nothing.
    mute: bool,
}

impl Road {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let state = State::Waiting { until: Instant::now() };
        Self {
            endpoint,
            state,
            link: Link::Connecting,
            told: None,
            called: None,
            jobs: Vec::new(),
            mute: false,
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What has not been told of the link.
    pub(super) fn news(&self) -> Option<Link> {
        (self.told.as_ref() != Some(&self.link)).then(|| self.link.clone())
    }

    pub(super) fn told(&mut self, link: Link) {
        self.told = Some(link);
    }

    /// The probe came back.
    pub(super) fn probed(&mut self, found: Found, contexts: &mut Contexts, data: &Socket, now: Instant) {
        let opened = found.and_then(|address| {
            self.open(address, contexts, data, now).map_err(|error| {
                format!("libzmq cannot connect to {address}: {error}; with many hosts, raise `ulimit -n`")
            })
        });
        match opened {
            Ok(open) => {
                if self.mute {
                    self.link = Link::Down { why: self.why_mute() };
                }
                self.state = State::Open(open);
            }
            Err(why) => {
                self.mute = false;
                self.link = Link::Down { why };
                self.state = State::Waiting { until: now + RETRY };
            }
        }
    }

    fn why_mute(&self) -> String {
        let Endpoint { host, base } = &self.endpoint;
        let port = base.control();
        format!(
            "{host}:{port} takes the connection and does not answer: it has another key \
             (copy its ~/.config/xpu-top/key here, or name it in XPU_TOP_KEY_FILE), or it is no xpu-collector"
        )
    }

    fn open(
        &self,
        address: SocketAddr,
        contexts: &mut Contexts,
        data: &Socket,
        now: Instant,
    ) -> zmq::Result<Open> {
        let control = contexts.make(socket::control_client)?;
        let data_at = format!("tcp://{}", SocketAddr::new(address.ip(), self.endpoint.base.data()));
        for socket in [&control, data] {
            socket.set_ipv6(address.is_ipv6())?;
        }
        control.connect(&format!("tcp://{address}"))?;
        data.connect(&data_at)?;
        Ok(Open { control, data: data_at, asked: None, heard: now })
    }

    /// The next frame the host answered with.
    pub(super) fn receive(&mut self, now: Instant) -> Option<Frame> {
        let State::Open(open) = &mut self.state else { return None };
        let parts = open.control.recv_multipart(DONTWAIT).ok()?;
        open.heard = now;
        self.mute = false;
        match codec::decode(parts.last()?) {
            Ok(frame) => {
                self.link = match &frame.body {
                    Body::Refusal(why) => Link::Down { why: format!("{} refuses: {why}", self.endpoint) },
                    Body::Snapshot(snapshot) => {
                        self.jobs = snapshot.jobs.iter().map(|job| (job.job.clone(), lives(job))).collect();
                        Link::Up
                    }
                    _ => Link::Up,
                };
                Some(frame)
            }
            Err(error) => {
                self.link = Link::Down { why: format!("{} answers with {error}", self.endpoint) };
                None
            }
        }
    }

    /// Asks for something about a job, if the host said that it knows it, or that a rank of it lives there.
    pub(super) fn ask(&mut self, job: &JobName, alive: bool, request: impl Fn() -> Request) {
        if let State::Open(open) = &mut self.state
            && self.jobs.iter().any(|(known, lives)| known == job && (*lives || !alive))
        {
            let _ = open.control.send(message(request()), DONTWAIT);
        }
    }

    /// Asks, gives up, tries anew, each in its time. `true` if the host is to be probed.
    pub(super) fn look_after(&mut self, data: &Socket, now: Instant) -> bool {
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
                    // A full queue is that of a host that does not answer, which is noticed by that.
                    let _ = open.control.send(message(Request::Snapshot), DONTWAIT);
                }
                false
            }
        }
    }
}

fn lives(job: &JobSnapshot) -> bool {
    job.ranks.iter().any(|rank| matches!(rank.digest.life, Life::Alive | Life::Silent))
}

fn message(request: Request) -> Vec<u8> {
    let body = Body::Request(request);
    codec::encode(&Frame { host: host_name(), number: 0, now: Moment::now(), lost: 0, body })
}
