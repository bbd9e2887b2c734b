//! A relay: one place to watch many hosts from, if a viewer cannot or should not connect to each host.
//!
//! Frames pass unchanged, so numbers, losses and hosts stay correct. A relay may be behind another relay. An
//! unreachable host does not delay the others, because each has a separate socket and the relay never waits.
//!
//! ```text
//! collectors ──PUB──▶ XSUB ─┐                ┌─ XPUB ──▶ viewers
//!            ◀─────DEALER───┤ a relay's loop ├─ ROUTER ◀─
//! ```

use std::{
    fmt,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use xpu_net::{
    connection::{Connection, Contexts, Prober},
    key::Key,
    recall, socket,
};
use xpu_wire::{
    VERSION, codec,
    endpoint::{BasePort, Endpoint},
    frame::{Body, Frame, JobWhatIf, RelaySnapshot, Request},
    id::{HostName, JobName},
    link::Link,
    unit::Moment,
};
use zmq::{Context, DONTWAIT, POLLIN, Socket};

use crate::{
    address::Address,
    envelope::Envelope,
    input_errors::InputErrors,
    listen::{OpenError, ViewerSockets},
    memory::Memory,
    upstream::Upstream,
};

/// Interval of taking answers from the hosts. Published frames are forwarded at once.
const SWEEP: Duration = Duration::from_millis(20);

/// Messages taken from one socket before the others have their turn.
const TURN: usize = 1024;

/// Largest number of hosts behind one relay. Their states fit into one frame.
const MOST_HOSTS: usize = 16_384;

/// A relay's configuration.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    pub address: IpAddr,
    pub base: BasePort,
    /// Its host's name.
    pub host: HostName,
    pub key: Option<Key>,
    /// The hosts behind it.
    pub endpoints: Vec<Endpoint>,
}

/// A relay with its sockets bound.
pub struct Relay {
    config: RelayConfig,
    started: Moment,
    viewers: ViewerSockets,
    hosts: Socket,
    contexts: Contexts,
    connections: Vec<Connection>,
    prober: Prober,
    complaints: InputErrors,
    /// Number of the relay's own frames.
    number: u64,
    /// Messages that did not fit into a viewer's queue.
    lost: u64,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Relay {
    pub fn open(config: RelayConfig, now: Moment) -> Result<Self, OpenError> {
        if config.endpoints.len() > MOST_HOSTS {
            return Err(OpenError::TooManyHosts { hosts: config.endpoints.len(), most: MOST_HOSTS });
        }
        let context = Context::new();
        let viewers = ViewerSockets::bind(&context, config.address, config.base, config.key.as_ref())?;
        let mut contexts = Contexts::new(config.key.clone(), config.endpoints.len());
        Ok(Self {
            hosts: contexts.make(socket::relayed).map_err(OpenError::Library)?,
            connections: config.endpoints.iter().cloned().map(Connection::new).collect(),
            contexts,
            prober: Prober::start(),
            viewers,
            started: now,
            config,
            complaints: InputErrors::default(),
            number: 0,
            lost: 0,
        })
    }

    /// The relay's addresses within this process.
    pub fn upstream(&self) -> Upstream {
        self.viewers.upstream.clone()
    }

    /// Serves until it is stopped.
    pub fn serve(&mut self, stop: &AtomicBool) -> zmq::Result<()> {
        let (mut swept, mut memory) = (Instant::now(), Memory::default());
        while !stop.load(Relaxed) {
            self.wait(SWEEP.saturating_sub(swept.elapsed()))?;
            let asked = self.take_requests(Moment::now())?;
            self.pass_subscriptions()?;
            self.pass_frames()?;
            if asked || swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.sweep(swept);
                memory.tend(Moment::now());
            }
        }
        Ok(())
    }

    fn wait(&self, longest: Duration) -> zmq::Result<()> {
        let sockets = [&self.viewers.data, &self.viewers.control, &self.hosts];
        let mut items = sockets.map(|socket| socket.as_poll_item(POLLIN));
        // Rounded up: a wait of less than a millisecond would spin.
        match zmq::poll(&mut items, longest.as_micros().div_ceil(1000) as i64) {
            Ok(_) | Err(zmq::Error::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Forwards viewers' subscriptions to the hosts.
    fn pass_subscriptions(&mut self) -> zmq::Result<()> {
        for _ in 0..TURN {
            let Some(parts) = receive(&self.viewers.data)? else { break };
            if let [message] = &parts[..] {
                let _ = self.hosts.send(message, DONTWAIT);
            }
        }
        Ok(())
    }

    /// Forwards hosts' frames to the viewers.
    fn pass_frames(&mut self) -> zmq::Result<()> {
        for _ in 0..TURN {
            let Some(parts) = receive(&self.hosts)? else { break };
            let passed = self.viewers.data.send_multipart(&parts, DONTWAIT);
            self.lost += u64::from(passed.is_err());
        }
        Ok(())
    }

    /// Forwards viewers' requests to the hosts concerned. Returns whether there were any.
    fn take_requests(&mut self, now: Moment) -> zmq::Result<bool> {
        let mut asked = false;
        for _ in 0..TURN {
            let Some(Envelope { from, payload }) = Envelope::receive(&self.viewers.control)? else { break };
            asked = true;
            match codec::decode(&payload) {
                Ok(Frame { body: Body::Request(mut request), number, now: at, lost, host }) => {
                    let mut payload = payload;
                    // Thinned here, because the viewer does not know how many hosts there are.
                    if let Request::History { length } | Request::ThinnedHistory { length, .. } = request {
                        let digests = recall::digests(self.connections.len());
                        request = Request::ThinnedHistory { length, digests };
                        let body = Body::Request(request.clone());
                        payload = codec::encode(&Frame { host, number, now: at, lost, body });
                    }
                    if request == Request::Snapshot {
                        let known = self.known();
                        self.answer(&from, Body::Relay(known), now);
                    }
                    let mut route = vec![from.to.0];
                    route.extend(from.route);
                    for connection in &self.connections {
                        connection.pass_on(job_of(&request), &route, &payload);
                    }
                }
                Ok(Frame { body, .. }) => {
                    self.complaints.raise("a viewer may not send this", &body.kind(), now);
                    let why = "only requests are taken here; see docs/wire-format.md".to_owned();
                    self.answer(&from, Body::Refusal(why), now);
                }
                Err(error) => {
                    self.complaints.raise("a viewer's frame", &error, now);
                    self.answer(&from, Body::Refusal(error.to_string()), now);
                }
            }
        }
        Ok(asked)
    }

    /// The hosts behind the relay, and the state of each connection.
    fn known(&self) -> RelaySnapshot {
        RelaySnapshot {
            version: VERSION.to_owned(),
            started: self.started,
            base: self.config.base,
            hosts: self.connections.iter().flat_map(Connection::relayed_hosts).take(MOST_HOSTS).collect(),
        }
    }

    fn answer(&mut self, viewer: &Address, body: Body, now: Moment) {
        let frame = Frame { host: self.config.host.clone(), number: self.number, now, lost: self.lost, body };
        self.number += 1;
        self.lost += u64::from(viewer.answer(&self.viewers.control, &codec::encode(&frame)).is_err());
    }

    /// Forwards hosts' answers to the requesters. Asks each host, gives up on it and retries it when that is
    /// due.
    fn sweep(&mut self, now: Instant) {
        for (connection, found) in self.prober.results() {
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.probed(found, &mut self.contexts, &self.hosts, now);
            }
        }
        for (index, connection) in self.connections.iter_mut().enumerate() {
            for _ in 0..TURN {
                let Some(parts) = connection.receive(now) else { break };
                match &parts[..] {
                    // The answer to the relay's own request. It shows that the host answers, and lists its
                    // jobs.
                    [payload] => drop(connection.understand(payload)),
                    parts => {
                        let passed = self.viewers.control.send_multipart(parts, DONTWAIT);
                        self.lost += u64::from(passed.is_err());
                    }
                }
            }
            if connection.look_after(&self.hosts, now) {
                self.prober.ask(index, connection.endpoint().clone());
            }
            if connection.take_news() {
                log_link(connection);
            }
        }
    }
}

/// The next waiting message, if any.
fn receive(socket: &Socket) -> zmq::Result<Option<Vec<Vec<u8>>>> {
    match socket.recv_multipart(DONTWAIT) {
        Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => Ok(None),
        parts => parts.map(Some),
    }
}

/// The job of a request; `None` for a request about all jobs.
fn job_of(request: &Request) -> Option<&JobName> {
    match request {
        Request::Snapshot | Request::History { .. } | Request::ThinnedHistory { .. } => None,
        Request::Enable { job, .. }
        | Request::Stacks { job, .. }
        | Request::GpuStacks { job, .. }
        | Request::Records { job, .. }
        | Request::Capture { job, .. }
        | Request::CaptureTime { job, .. }
        | Request::EndCapture { job, .. }
        | Request::Sample { job, .. }
        | Request::Ras { job, .. }
        | Request::Kineto { job, .. }
        | Request::FunctionsOnly { job, .. }
        | Request::WhatIf(JobWhatIf { job, .. }) => Some(job),
    }
}

fn log_link(connection: &Connection) {
    match connection.link() {
        Link::Connecting => {}
        Link::Up => tracing::info!("{} answers", connection.endpoint()),
        Link::Down { why } => tracing::warn!("{}: {why}", connection.endpoint()),
    }
}
