//! A live job: one thread that is connected to every host's collector and passes on what they say.
//!
//! One SUB hears all hosts, one DEALER a host asks for snapshots, which is also how a host shows that it is there. What
//! comes in waits in a bounded queue; what finds it full is dropped and counted in the frames that follow.

mod outbox;

use std::{
    collections::{BTreeSet, HashMap},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use outbox::Outbox;
use tokio::sync::mpsc as queue;
use xpu_net::{
    connection::{Connection, Contexts, Prober},
    key::Key,
    recall::{self, Recall},
    socket,
};
use xpu_wire::{
    codec,
    endpoint::BasePort,
    frame::{Body, CaptureOrder, CaptureWindow, Frame, KinetoWish, RankRecord, Request, SampleOrder, topic},
    id::{HostName, JobName, Rank},
};
use zmq::{DONTWAIT, POLLIN, Socket};

use crate::{
    arrival::{Arrival, Arrivals, Endpoint, Link, QUEUE},
    follow::LATELY,
};

/// How often the connections are looked after. Frames of the SUB are passed on as they come.
const SWEEP: Duration = Duration::from_millis(40);

/// Frames taken from the SUB between two sweeps.
const TURN: usize = 1024;

/// Jobs subscribed to when none was named.
const JOBS: usize = 1024;

/// The thread's handle: it ends when this and the arrivals are dropped.
#[derive(Clone, Debug)]
pub struct Live {
    /// viewer --Order--> the thread
    orders: mpsc::Sender<Order>,
}

#[derive(Debug)]
pub enum Order {
    WatchRanks(Option<(JobName, BTreeSet<Rank>)>),
    WatchAll(bool),
    Switch { job: JobName, on: bool },
    Stacks { job: JobName, ranks: Vec<Rank>, kept: bool, natively: bool },
    GpuStacks { job: JobName, ranks: Vec<Rank> },
    Records { job: JobName, ranks: Vec<Rank> },
    Ras { job: JobName, rank: Rank },
    Capture { job: JobName, ranks: Vec<Rank>, asked: (CaptureOrder, Option<CaptureWindow>) },
    EndCapture { job: JobName, number: u64 },
    Sample { job: JobName, ranks: Vec<Rank>, order: SampleOrder },
    Kineto { job: JobName, ranks: Vec<Rank>, host: Option<HostName>, wish: KinetoWish },
}

impl Live {
    /// Asks for the full summaries of these ranks, and of no other any more.
    pub fn watch_ranks(&self, ranks: Option<(JobName, BTreeSet<Rank>)>) {
        // The thread ends only without receivers: then nobody misses the order.
        let _ = self.orders.send(Order::WatchRanks(ranks));
    }

    /// Asks for the full summaries of all ranks, or for them no more.
    pub fn watch_all(&self, on: bool) {
        let _ = self.orders.send(Order::WatchAll(on));
    }

    /// Asks every host that has said that the job lives there to switch its hooks. What comes of it is in the digests.
    pub fn switch(&self, job: JobName, on: bool) {
        let _ = self.orders.send(Order::Switch { job, on });
    }

    /// Asks every host that has said that the job lives there for the stacks of these ranks, or of all, as they are now.
    /// They arrive as frames, one a rank.
    ///
    /// `natively`: with native frames, for which each thread is held for a moment.
    pub fn stacks(&self, job: JobName, ranks: Vec<Rank>, natively: bool) {
        let _ = self.orders.send(Order::Stacks { job, ranks, kept: false, natively });
    }

    /// As [`Self::stacks`] with native frames, of a job that hangs, and what runs on its GPUs: **that ends it**.
    pub fn gpu_stacks(&self, job: JobName, ranks: Vec<Rank>) {
        let _ = self.orders.send(Order::GpuStacks { job, ranks });
    }

    /// Asks every host that has said that the job lives there to have these ranks record some steps, or a time.
    /// Answers and what was recorded arrive as frames.
    pub fn capture(&self, job: JobName, ranks: Vec<Rank>, asked: (CaptureOrder, Option<CaptureWindow>)) {
        let _ = self.orders.send(Order::Capture { job, ranks, asked });
    }

    /// Asks every host that the job lives at, or only one, for something of these ranks' Kineto. Answers arrive as frames.
    pub fn kineto(&self, job: JobName, ranks: Vec<Rank>, host: Option<HostName>, wish: KinetoWish) {
        let _ = self.orders.send(Order::Kineto { job, ranks, host, wish });
    }

    /// Asks every host that has said that the job lives, or lived, there for the last NCCL calls of these ranks. They arrive as frames, one
    /// a rank.
    pub fn records(&self, job: JobName, ranks: Vec<Rank>) {
        let _ = self.orders.send(Order::Records { job, ranks });
    }

    /// Asks the host of this rank for what NCCL's RAS service says of the job. It arrives as one frame.
    pub fn ras(&self, job: JobName, rank: Rank) {
        let _ = self.orders.send(Order::Ras { job, rank });
    }

    /// Has every host that the job lives at sample the Python stacks of these ranks during a capture. The samples arrive as frames.
    pub fn sample(&self, job: JobName, ranks: Vec<Rank>, order: SampleOrder) {
        let _ = self.orders.send(Order::Sample { job, ranks, order });
    }

    /// Takes that back.
    pub fn end_capture(&self, job: JobName, number: u64) {
        let _ = self.orders.send(Order::EndCapture { job, number });
    }

    /// The same for a hung or dead job, with native frames: stacks read since it last moved are not read
    /// again.
    pub fn kept_stacks(&self, job: JobName, ranks: Vec<Rank>) {
        let _ = self.orders.send(Order::Stacks { job, ranks, kept: true, natively: true });
    }
}

#[cfg(test)]
impl Live {
    /// Without collectors; its requests come out here.
    pub fn deaf() -> (Self, mpsc::Receiver<Order>) {
        let (orders, ordered) = mpsc::channel();
        (Self { orders }, ordered)
    }
}

/// Connects to every endpoint, and retries silent ones. History comes first.
pub fn connect(endpoints: Vec<Endpoint>, key: Option<Key>, job: Option<JobName>) -> (Live, Arrivals) {
    let past = recall::length(endpoints.len());
    connect_with(endpoints, key, job, past)
}

/// The same for a capture: only as much history as detects stragglers.
pub fn connect_to_capture(
    endpoints: Vec<Endpoint>,
    key: Option<Key>,
    job: Option<JobName>,
) -> (Live, Arrivals) {
    let past = recall::length(endpoints.len()).min(LATELY);
    connect_with(endpoints, key, job, past)
}

fn connect_with(
    endpoints: Vec<Endpoint>,
    key: Option<Key>,
    job: Option<JobName>,
    past: Duration,
) -> (Live, Arrivals) {
    let (arrivals, receiver) = queue::channel(QUEUE);
    let (orders, ordered) = mpsc::channel();
    thread::spawn(move || {
        if let Err(error) =
            Follower::new(endpoints, key, job, past, arrivals.clone()).and_then(|mut f| f.follow(&ordered))
        {
            tell_failure(&arrivals, error);
        }
    });
    (Live { orders }, receiver)
}

/// Without sockets no requests are possible.
fn tell_failure(arrivals: &queue::Sender<Arrival>, error: zmq::Error) {
    let endpoint = Endpoint { host: "this host".to_owned(), base: BasePort::DEFAULT, ssh: None };
    let why = format!("libzmq: {error}; too many open files? raise `ulimit -n`");
    let _ = arrivals.try_send(Arrival::Link(endpoint, Link::Down { why }));
}

/// What comes while the past is waited for.
enum Held {
    Answer(Frame),
    Published(Vec<u8>, Frame),
}

struct Follower {
    contexts: Contexts,
    data: Socket,
    connections: Vec<Connection>,
    /// The last report about each host: its connection's state, and its name.
    told: HashMap<Endpoint, (Link, Option<HostName>)>,
    prober: Prober,
    outbox: Outbox,
    /// The past of all hosts, while it is waited for, and what came meanwhile.
    recall: Option<(Recall, Vec<Held>)>,
    /// The only job to be followed, if one was named.
    job: Option<JobName>,
    jobs: BTreeSet<JobName>,
    /// Topics of the ranks whose details are asked for.
    watched: BTreeSet<String>,
    /// The details of all ranks are asked for.
    all: bool,
}

impl Follower {
    fn new(
        endpoints: Vec<Endpoint>,
        key: Option<Key>,
        job: Option<JobName>,
        past: Duration,
        arrivals: queue::Sender<Arrival>,
    ) -> zmq::Result<Self> {
        let mut contexts = Contexts::new(key, endpoints.len());
        let data = contexts.make(socket::subscriber)?;
        let connections =
            endpoints.into_iter().map(|endpoint| Connection::recalling(endpoint, past)).collect();
        let mut new = Self {
            contexts,
            data,
            connections,
            told: HashMap::new(),
            prober: Prober::start(),
            outbox: Outbox::new(arrivals),
            recall: Some((Recall::begin(Instant::now()), Vec::new())),
            job: job.clone(),
            jobs: BTreeSet::new(),
            watched: BTreeSet::new(),
            all: false,
        };
        if let Some(job) = job {
            new.learn(&job);
        }
        Ok(new)
    }

    fn follow(&mut self, orders: &mpsc::Receiver<Order>) -> zmq::Result<()> {
        while !self.outbox.is_closed() {
            for order in orders.try_iter() {
                match order {
                    Order::WatchRanks(ranks) => self.watch(ranks),
                    Order::WatchAll(on) => self.watch_all(on),
                    Order::Switch { job, on } => {
                        self.ask(&job, true, || Request::Enable { job: job.clone(), on });
                    }
                    Order::Capture { job, ranks, asked: (order, window) } => {
                        self.ask(&job, true, || {
                            let (job, ranks) = (job.clone(), ranks.clone());
                            match window {
                                Some(window) => Request::CaptureTime { job, ranks, order, window },
                                None => Request::Capture { job, ranks, order },
                            }
                        });
                    }
                    Order::EndCapture { job, number } => {
                        self.ask(&job, true, || Request::EndCapture { job: job.clone(), number });
                    }
                    Order::Kineto { job, ranks, host, wish } => {
                        let leads = |connection: &&Connection| {
                            host.as_ref().is_none_or(|host| connection.leads_to(host))
                        };
                        for connection in self.connections.iter().filter(leads) {
                            connection.ask(&job, true, || Request::Kineto {
                                job: job.clone(),
                                ranks: ranks.clone(),
                                wish: wish.clone(),
                            });
                        }
                    }
                    Order::Sample { job, ranks, order } => {
                        self.ask(&job, true, || Request::Sample {
                            job: job.clone(),
                            ranks: ranks.clone(),
                            order,
                        });
                    }
                    Order::Records { job, ranks } => {
                        let most = RankRecord::share(u32::try_from(ranks.len()).unwrap_or(u32::MAX));
                        self.ask(&job, false, || Request::Records {
                            job: job.clone(),
                            ranks: ranks.clone(),
                            most: u32::try_from(most).unwrap_or(u32::MAX),
                        });
                    }
                    Order::Ras { job, rank } => {
                        self.ask(&job, true, || Request::Ras { job: job.clone(), rank });
                    }
                    Order::GpuStacks { job, ranks } => {
                        self.ask(&job, true, || Request::GpuStacks {
                            job: job.clone(),
                            ranks: ranks.clone(),
                        });
                    }
                    Order::Stacks { job, ranks, kept, natively } => self.ask(&job, !kept, || {
                        Request::Stacks { job: job.clone(), ranks: ranks.clone(), kept, natively }
                    }),
                }
            }
            let now = Instant::now();
            for (connection, found) in self.prober.results() {
                if let Some(connection) = self.connections.get_mut(connection) {
                    connection.probed(found, &mut self.contexts, &self.data, now);
                }
            }
            for index in 0..self.connections.len() {
                self.sweep(index, now);
            }
            self.tell_past(now);
            self.hear(now + SWEEP)?;
        }
        Ok(())
    }

    fn ask(&mut self, job: &JobName, alive: bool, request: impl Fn() -> Request) {
        self.connections.iter().for_each(|connection| connection.ask(job, alive, &request));
    }

    /// Takes what came back along one connection, and asks again when it is time.
    fn sweep(&mut self, index: usize, now: Instant) {
        while let Some(parts) = self.connections[index].receive(now) {
            let Some(frame) = parts.last().and_then(|payload| self.connections[index].understand(payload))
            else {
                continue;
            };
            // With one job named, the others are known by their snapshots alone.
            if let Body::Snapshot(snapshot) = &frame.body
                && self.job.is_none()
            {
                for job in &snapshot.jobs {
                    self.learn(&job.job);
                }
            }
            match &mut self.recall {
                None => self.outbox.push(frame),
                Some((recall, held)) => {
                    recall.hear(&frame, now);
                    if !matches!(frame.body, Body::History(_)) {
                        held.push(Held::Answer(frame));
                    }
                }
            }
        }
        let connection = &mut self.connections[index];
        if connection.look_after(&self.data, now) {
            self.prober.ask(index, connection.endpoint().clone());
        }
        // A host's frames come before the report that its connection is up.
        if self.recall.is_none() {
            self.tell_news(index);
        }
    }

    /// Passes on the past of all hosts once it is there, and then what came meanwhile.
    fn tell_past(&mut self, now: Instant) {
        let settled = self.connections.iter().all(Connection::is_settled);
        let Some((recall, held)) = self.recall.take_if(|(recall, _)| recall.is_over(settled, now)) else {
            return;
        };
        recall.told().into_iter().for_each(|past| self.outbox.push(past));
        for held in held {
            match held {
                Held::Answer(frame) => self.outbox.push(frame),
                Held::Published(topic, frame) => self.outbox.push_published(&topic, frame),
            }
        }
    }

    /// Passes on what is new of the connections to a host and to those behind it.
    fn tell_news(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.take_news() {
            return;
        }
        let mut all = true;
        for host in connection.relayed_hosts() {
            let told = self.told.get(&host.endpoint);
            let (link, called) = told.map_or((None, None), |(link, called)| (Some(link), called.as_ref()));
            let tells_link = link != Some(&host.link);
            let tells_name = host.called.as_ref().filter(|&name| called != Some(name));
            let link_taken = !tells_link || self.outbox.tell(&host.endpoint, &host.link);
            let name_taken = tells_name.is_none_or(|name| self.outbox.name(&host.endpoint, name));
            if link_taken && name_taken {
                self.told.insert(host.endpoint, (host.link, host.called));
            } else {
                all = false;
            }
        }
        if !all {
            connection.tell_again();
        }
    }

    /// Passes on what is published, until `until`.
    fn hear(&mut self, until: Instant) -> zmq::Result<()> {
        let wait = until.saturating_duration_since(Instant::now());
        match self.data.poll(POLLIN, i64::try_from(wait.as_millis()).unwrap_or(0)) {
            Ok(0) | Err(zmq::Error::EINTR) => return Ok(()),
            ready => ready?,
        };
        for _ in 0..TURN {
            let parts = match self.data.recv_multipart(DONTWAIT) {
                Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => break,
                parts => parts?,
            };
            let [topic, payload] = &parts[..] else { continue };
            // A frame that does not decode is not passed on; its number is missing in the count of its stream.
            let Ok(frame) = codec::decode(payload) else { continue };
            match &mut self.recall {
                None => self.outbox.push_published(topic, frame),
                Some((_, held)) => held.push(Held::Published(topic.clone(), frame)),
            }
        }
        Ok(())
    }

    /// Subscribes to a new job.
    fn learn(&mut self, job: &JobName) {
        if self.jobs.len() < JOBS && self.jobs.insert(job.clone()) {
            let details = self.all.then(|| topic::details(job));
            for topic in [topic::overview(job), topic::events(job)].iter().chain(&details) {
                subscribe(&self.data, &mut self.outbox, topic);
            }
        }
    }

    fn watch_all(&mut self, on: bool) {
        if std::mem::replace(&mut self.all, on) == on {
            return;
        }
        for job in &self.jobs {
            let topic = topic::details(job);
            if on {
                subscribe(&self.data, &mut self.outbox, &topic);
            } else {
                let _ = self.data.set_unsubscribe(topic.as_bytes());
            }
        }
    }

    fn watch(&mut self, ranks: Option<(JobName, BTreeSet<Rank>)>) {
        let topics = |(job, ranks): (JobName, BTreeSet<Rank>)| -> BTreeSet<String> {
            ranks.into_iter().map(|rank| topic::detail(&job, rank)).collect()
        };
        let wanted = ranks.map(topics).unwrap_or_default();
        for topic in self.watched.difference(&wanted) {
            let _ = self.data.set_unsubscribe(topic.as_bytes());
        }
        for topic in wanted.difference(&self.watched) {
            subscribe(&self.data, &mut self.outbox, topic);
        }
        self.watched = wanted;
    }
}

fn subscribe(data: &Socket, outbox: &mut Outbox, topic: &str) {
    outbox.begin(topic);
    // It fails only on a socket that is no SUB.
    let _ = data.set_subscribe(topic.as_bytes());
}

#[cfg(test)]
mod tests;
