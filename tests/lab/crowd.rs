//! Many hosts in one process. Each sends over ZeroMQ as its collector would; its ranks are simulated.

use std::{
    collections::{BTreeSet, VecDeque},
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use xpu_net::socket;
use xpu_simulation::Simulation;
use xpu_wire::{
    codec,
    endpoint::BasePort,
    frame::{
        Body, Frame, History, KinetoBytes, KinetoEnd, KinetoPart, KinetoRank, KinetoStanding, KinetoWish,
        RankDetail, Request, Summary, topic,
    },
    id::{JobName, Pid, Rank},
    sampling,
    unit::{Moment, Nanoseconds},
};
use zmq::{Context, DONTWAIT, SNDMORE, Socket};

/// The first port of every host. Each host has its own address.
pub const BASE: BasePort = BasePort(29_700);

/// The number of hosts with consecutive addresses.
const BLOCK: u32 = 250;

/// The number of hosts per ZeroMQ context: a context allows 1023 sockets.
const TOGETHER: usize = 500;

/// The interval between two checks for viewers' requests, short enough for a prompt answer.
const LOOK: Duration = Duration::from_millis(10);

/// How many seconds the job has run when it is first seen.
pub const BEFORE: u64 = 1_800;

/// A cluster that sends until it is dropped.
#[derive(Debug)]
pub struct Crowd {
    hosts: u32,
    /// From the test to the thread.
    orders: mpsc::Sender<Order>,
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Counts of what was sent.
#[derive(Debug, Default)]
pub struct Tally {
    pub digests: AtomicU64,
    pub details: AtomicU64,
    pub snapshots: AtomicU64,
    /// Frames that a full queue did not accept.
    pub refused: AtomicU64,
    /// The largest delay of a digest so far, in microseconds.
    pub late: AtomicU64,
}

#[derive(Debug)]
enum Order {
    /// Makes these hosts send, or stop. `done` gets a message once their ports are bound, or closed.
    Switch { hosts: std::ops::Range<u32>, on: bool, done: mpsc::Sender<()> },
}

impl Crowd {
    /// No host sends yet.
    pub fn new(hosts: u32, ranks_per_host: u32) -> Self {
        Self::of(Simulation::new(7, hosts, ranks_per_host))
    }

    /// The hosts of this job, none of which sends yet.
    pub fn of(simulation: Simulation) -> Self {
        Self::start_of(simulation, TRACE_PARTS, Vec::new())
    }

    /// As [`Self::of`], with this many parts in the trace of every rank.
    pub fn tracing(simulation: Simulation, trace_parts: u32) -> Self {
        Self::start_of(simulation, trace_parts, Vec::new())
    }

    /// As [`Self::of`]. Each host answers a request for its history with these parts, which end at [`BEFORE`],
    /// and what it has published since. For a short time, because the hosts keep all of it.
    pub fn remembering(simulation: Simulation, past: Vec<Vec<History>>) -> Self {
        Self::start_of(simulation, TRACE_PARTS, past)
    }

    fn start_of(simulation: Simulation, trace_parts: u32, past: Vec<Vec<History>>) -> Self {
        let hosts = simulation.hosts;
        let (orders, ordered) = mpsc::channel();
        let (tally, stop) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let thread = thread::spawn({
            let (tally, stop) = (Arc::clone(&tally), Arc::clone(&stop));
            let mut hosts = Hosts::new(simulation, trace_parts, past, tally);
            move || {
                while !stop.load(Relaxed) {
                    for order in ordered.try_iter() {
                        hosts.run(order);
                    }
                    hosts.play();
                }
            }
        });
        Self { hosts, orders, tally, stop, thread: Some(thread) }
    }

    /// The hosts in the form of the command line.
    pub fn list(&self) -> String {
        let block = |first: u32| {
            let [a, b, c, d] = address(first).octets();
            format!("{a}.{b}.{c}.[{d}-{}]", u32::from(d) + (self.hosts - first).min(BLOCK) - 1)
        };
        (0..self.hosts).step_by(BLOCK as usize).map(block).collect::<Vec<_>>().join(",")
    }

    /// Starts these hosts. Returns once they answer connections.
    pub fn start(&self, hosts: std::ops::Range<u32>) {
        self.order(hosts, true);
    }

    pub fn stop(&self, hosts: std::ops::Range<u32>) {
        self.order(hosts, false);
    }

    fn order(&self, hosts: std::ops::Range<u32>, on: bool) {
        let (done, is_done) = mpsc::channel();
        let _ = self.orders.send(Order::Switch { hosts, on, done });
        let _ = is_done.recv();
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The address block belongs to this process, because tests run in parallel.
fn address(host: u32) -> Ipv4Addr {
    let process = std::process::id();
    let block = (process / 100 + host / BLOCK) % 250;
    Ipv4Addr::new(127, 100 + (process % 100) as u8, block as u8, 1 + (host % BLOCK) as u8)
}

/// A host that sends.
struct SendingHost {
    data: Socket,
    control: Socket,
    /// Ranks that a viewer looks at.
    watched: BTreeSet<Rank>,
}

struct Hosts {
    simulation: Simulation,
    contexts: Vec<Context>,
    sending: Vec<Option<SendingHost>>,
    tally: Arc<Tally>,
    began: Instant,
    second: u64,
    /// Frames of this second that are not sent yet.
    due: VecDeque<(u32, Frame)>,
    /// What every host answers in this second, computed at the first request.
    known: (u64, Vec<Frame>),
    /// The history of each host, or none.
    past: Vec<Vec<History>>,
    profiler: Profiler,
}

impl Hosts {
    fn new(simulation: Simulation, trace_parts: u32, past: Vec<Vec<History>>, tally: Arc<Tally>) -> Self {
        let sending = (0..simulation.hosts).map(|_| None).collect::<Vec<_>>();
        let contexts = (0..sending.len().div_ceil(TOGETHER)).map(|_| Context::new()).collect();
        Self {
            profiler: Profiler::new(simulation.job.clone(), trace_parts),
            simulation,
            contexts,
            sending,
            tally,
            began: Instant::now(),
            second: 0,
            due: VecDeque::new(),
            known: (0, Vec::new()),
            past,
        }
    }

    fn run(&mut self, order: Order) {
        let Order::Switch { hosts, on, done } = order;
        for host in hosts {
            let context = &self.contexts[host as usize / TOGETHER];
            self.sending[host as usize] = on.then(|| SendingHost::new(context, address(host)));
        }
        let _ = done.send(());
    }

    /// Sends the due frames, answers requests, and waits a moment.
    fn play(&mut self) {
        let at = self.began.elapsed();
        if self.due.is_empty() && at >= Duration::from_secs(self.second) {
            self.second = at.as_secs() + 1;
            let digests = self.simulation.digests(BEFORE + self.second);
            self.due = (0..).zip(digests).collect();
        }
        while let Some((host, _)) = self.due.front() {
            // Each host has its own clock, so the digests are spread over the second.
            let share = f64::from(*host) / f64::from(self.simulation.hosts);
            let when = Duration::from_secs(self.second - 1) + Duration::from_secs_f64(share);
            let now = self.began.elapsed();
            if now < when {
                break;
            }
            self.tally.late.fetch_max(now.saturating_sub(when).as_micros() as u64, Relaxed);
            if let Some((host, frame)) = self.due.pop_front() {
                self.publish(host, frame);
            }
        }
        for host in 0..self.sending.len() {
            self.answer(host);
        }
        thread::sleep(LOOK);
    }

    fn publish(&mut self, host: u32, digest: Frame) {
        if let Some(last) = self.past.get_mut(host as usize).and_then(|parts| parts.last_mut()) {
            last.frames.push(&codec::encode(&digest));
        }
        let Some(sender) = &mut self.sending[host as usize] else { return };
        sender.learn();
        let details: Vec<_> = match &digest.body {
            Body::Digest(digest) => digest
                .ranks
                .iter()
                .map(|rank| rank.rank)
                .filter(|rank| sender.watched.contains(rank))
                .collect(),
            _ => Vec::new(),
        };
        let job = self.simulation.job.clone();
        sender.publish(&topic::overview(&job), &digest, &self.tally.digests, &self.tally.refused);
        for rank in details {
            let detail = RankDetail { job: job.clone(), rank, summary: Summary::default() };
            let frame = Frame { body: Body::Detail(detail), ..digest.clone() };
            sender.publish(&topic::detail(&job, rank), &frame, &self.tally.details, &self.tally.refused);
        }
    }

    fn answer(&mut self, host: usize) {
        let Some(sender) = &self.sending[host] else { return };
        while let Ok(parts) = sender.control.recv_multipart(DONTWAIT) {
            let Some((payload, back)) = parts.split_last() else { continue };
            let Ok(Frame { body: Body::Request(request), .. }) = codec::decode(payload) else { continue };
            if let Request::Kineto { ranks, wish, .. } = &request {
                let ranks: Vec<_> = ranks
                    .iter()
                    .filter(|rank| rank.0 / self.simulation.ranks_per_host == host as u32)
                    .collect();
                for body in ranks.into_iter().filter_map(|rank| self.profiler.answer(*rank, wish)) {
                    let name = self.simulation.host(host as u32);
                    let frame = Frame { host: name, number: 0, now: Moment::now(), lost: 0, body };
                    let answer = codec::encode(&frame);
                    let sent = sender.control.send_multipart(back.iter().chain([&answer]), DONTWAIT);
                    self.tally.refused.fetch_add(u64::from(sent.is_err()), Relaxed);
                }
                continue;
            }
            if matches!(request, Request::ThinnedHistory { .. }) {
                for part in self.past.get(host).into_iter().flatten() {
                    let body = Body::History(part.clone());
                    let now = self.simulation.at(BEFORE + self.second);
                    let frame =
                        Frame { host: self.simulation.host(host as u32), number: 0, now, lost: 0, body };
                    let answer = codec::encode(&frame);
                    let sent = sender.control.send_multipart(back.iter().chain([&answer]), DONTWAIT);
                    self.tally.refused.fetch_add(u64::from(sent.is_err()), Relaxed);
                }
                continue;
            }
            if request != Request::Snapshot {
                continue;
            }
            if self.known.0 != self.second {
                self.known = (self.second, self.simulation.snapshots(BEFORE + self.second));
            }
            let answer = &self.known.1[host];
            let answer = codec::encode(answer);
            let parts = back.iter().chain([&answer]);
            let sent = sender.control.send_multipart(parts, DONTWAIT);
            let counted = if sent.is_ok() { &self.tally.snapshots } else { &self.tally.refused };
            counted.fetch_add(1, Relaxed);
        }
    }
}

/// The number of parts of a rank's trace, unless the test sets another.
pub const TRACE_PARTS: u32 = 4;

/// Simulates every rank's Kineto: a trace is complete at once.
struct Profiler {
    job: JobName,
    parts: u32,
    /// One part of each trace, except its first byte. It is noise, because a trace is compressed before it is
    /// sent.
    noise: Vec<u8>,
}

impl Profiler {
    fn new(job: JobName, parts: u32) -> Self {
        let noise =
            (0..KinetoPart::BYTES as u64 / 8).flat_map(|number| sampling::priority(number).to_ne_bytes());
        Self { job, parts, noise: noise.collect() }
    }

    fn answer(&self, rank: Rank, wish: &KinetoWish) -> Option<Body> {
        let bytes = KinetoPart::BYTES as u64 * u64::from(self.parts);
        match wish {
            KinetoWish::Tell => Some(self.rank(0, rank, KinetoStanding::Idle)),
            KinetoWish::Trace(order) => {
                Some(self.rank(order.number, rank, KinetoStanding::Written { bytes }))
            }
            KinetoWish::Part { number, part } => {
                let mut its = self.noise.clone();
                its[0] = rank.0 as u8;
                Some(Body::KinetoPart(KinetoPart {
                    number: *number,
                    job: self.job.clone(),
                    rank,
                    part: *part,
                    bytes: KinetoBytes(its),
                    end: (part + 1 == self.parts).then(|| KinetoEnd { bytes, ..KinetoEnd::default() }),
                }))
            }
            KinetoWish::End { .. } => None,
        }
    }

    fn rank(&self, number: u64, rank: Rank, standing: KinetoStanding) -> Body {
        Body::Kineto(KinetoRank {
            number,
            job: self.job.clone(),
            rank,
            pid: Pid(1000 + rank.0),
            standing,
            polled: Some(Moment::now()),
            every: Some(Nanoseconds(1_000_000_000)),
            count: None,
            clock_offset: 0,
        })
    }
}

impl SendingHost {
    fn new(context: &Context, address: Ipv4Addr) -> Self {
        let data = socket::publisher(context, None).expect("a ZeroMQ socket");
        let control = socket::control_server(context, None).expect("a ZeroMQ socket");
        for (socket, port) in [(&data, BASE.data()), (&control, BASE.control())] {
            socket.bind(&format!("tcp://{address}:{port}")).expect("an address of this process's own");
        }
        Self { data, control, watched: BTreeSet::new() }
    }

    /// Reads which ranks' details are wanted, from topics like `\x01job/r/37/`.
    fn learn(&mut self) {
        while let Ok(message) = self.data.recv_bytes(DONTWAIT) {
            let Some((wanted, topic)) = message.split_first() else { continue };
            let topic = String::from_utf8_lossy(topic);
            let Some(rank) =
                topic.trim_end_matches('/').rsplit_once("/r/").and_then(|(_, rank)| rank.parse().ok())
            else {
                continue;
            };
            let _ =
                if *wanted == 1 { self.watched.insert(Rank(rank)) } else { self.watched.remove(&Rank(rank)) };
        }
    }

    fn publish(&self, topic: &str, frame: &Frame, sent: &AtomicU64, refused: &AtomicU64) {
        let bytes = codec::encode(frame);
        let outcome =
            self.data.send(topic, SNDMORE | DONTWAIT).and_then(|()| self.data.send(bytes, DONTWAIT));
        let counted = if outcome.is_ok() { sent } else { refused };
        counted.fetch_add(1, Relaxed);
    }
}
