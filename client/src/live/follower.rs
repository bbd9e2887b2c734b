//! The thread of a live job: connections, subscriptions, and the path of each frame from a socket to the
//! queue.

use std::{
    collections::{BTreeSet, HashMap},
    sync::mpsc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc as queue;
use xpu_net::{
    connection::{Connection, Contexts, Prober},
    key::Key,
    messages,
    recall::Recall,
    socket,
    subscriptions::{self, Subscriptions},
};
use xpu_wire::{
    frame::{Body, RankRecord, Request, topic},
    id::{HostName, JobName},
};
use zmq::{POLLIN, Socket};

use super::{Order, WatchedRanks, outbox::Outbox};
use crate::arrival::{Arrival, Endpoint, Link};

/// Interval of the work on connections. Frames of the SUB socket are passed on at once.
const SWEEP: Duration = Duration::from_millis(40);

/// Jobs subscribed to when none was named.
const JOBS: usize = 1024;

pub(super) struct Follower {
    contexts: Contexts,
    data: Socket,
    connections: Vec<Connection>,
    /// The last report about each host: its connection's state, and its name.
    reported: HashMap<Endpoint, (Link, Option<HostName>)>,
    prober: Prober,
    outbox: Outbox,
    /// The history of all hosts, until it is complete.
    recall: Option<Recall>,
    /// The job to follow, if one was named.
    job: Option<JobName>,
    jobs: BTreeSet<JobName>,
    /// The ranks whose details are requested.
    watched: Option<WatchedRanks>,
    /// Whether the details of all ranks are requested.
    all: bool,
    subscriptions: Subscriptions,
}

impl Follower {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        key: Option<Key>,
        job: Option<JobName>,
        past: &Request,
        arrivals: queue::Sender<Arrival>,
    ) -> zmq::Result<Self> {
        let mut contexts = Contexts::new(key, endpoints.len());
        let data = contexts.make(socket::subscriber)?;
        let recalling = |endpoint| Connection::recalling(endpoint, past.clone());
        let connections = endpoints.into_iter().map(recalling).collect();
        let mut new = Self {
            contexts,
            data,
            connections,
            reported: HashMap::new(),
            prober: Prober::start(),
            outbox: Outbox::new(arrivals),
            recall: Some(Recall::begin(Instant::now())),
            job: job.clone(),
            jobs: BTreeSet::new(),
            watched: None,
            all: false,
            subscriptions: Subscriptions::default(),
        };
        if let Some(job) = job {
            new.learn(&job);
        }
        Ok(new)
    }

    pub(super) fn follow(&mut self, orders: &mpsc::Receiver<Order>) -> zmq::Result<()> {
        while !self.outbox.is_closed() {
            for order in orders.try_iter() {
                match order {
                    Order::WatchRanks(ranks) => {
                        self.watched = ranks;
                        self.subscribe();
                    }
                    Order::WatchAll(on) => {
                        self.all = on;
                        self.subscribe();
                    }
                    Order::Switch { job, on } => {
                        self.ask(&job, true, || Request::Enable { job: job.clone(), on });
                    }
                    Order::Capture { job, ranks, order, window } => {
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
                        self.ask_one(host.as_ref(), &job, || Request::Kineto {
                            job: job.clone(),
                            ranks: ranks.clone(),
                            wish: wish.clone(),
                        });
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
                    Order::FunctionsOnly { job, number } => {
                        self.ask(&job, true, || Request::FunctionsOnly { job: job.clone(), number });
                    }
                    Order::WhatIf { of, host } => {
                        self.ask_one(host.as_ref(), &of.job, || Request::WhatIf(of.clone()));
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
            self.forward_history(now);
            self.receive(now + SWEEP)?;
        }
        Ok(())
    }

    fn ask(&mut self, job: &JobName, alive: bool, request: impl Fn() -> Request) {
        self.connections.iter().for_each(|connection| connection.ask(job, alive, &request));
    }

    /// Asks one host, or all.
    fn ask_one(&mut self, host: Option<&HostName>, job: &JobName, request: impl Fn() -> Request) {
        let leads = |connection: &&Connection| host.is_none_or(|host| connection.leads_to(host));
        self.connections.iter().filter(leads).for_each(|connection| connection.ask(job, true, &request));
    }

    /// Takes the replies of one connection, and sends its next requests when they are due.
    fn sweep(&mut self, index: usize, now: Instant) {
        while let Some(parts) = self.connections[index].receive(now) {
            let Some(frame) = parts.last().and_then(|payload| self.connections[index].understand(payload))
            else {
                continue;
            };
            // If one job is named, the others are known only from snapshots.
            if let Body::Snapshot(snapshot) = &frame.body
                && self.job.is_none()
            {
                for job in &snapshot.jobs {
                    self.learn(&job.job);
                }
            }
            match &mut self.recall {
                None => self.outbox.push(frame),
                Some(recall) => recall.take(Vec::new(), frame, now),
            }
        }
        let connection = &mut self.connections[index];
        if connection.look_after(&self.data, now) {
            self.prober.ask(index, connection.endpoint().clone());
        }
        // A host's frames come before the report that its connection is up.
        if self.recall.is_none() {
            self.report_news(index);
        }
    }

    /// Passes on the history of all hosts once it is complete, and then the frames that arrived meanwhile.
    fn forward_history(&mut self, now: Instant) {
        let settled = self.connections.iter().all(Connection::is_settled);
        let Some(recall) = self.recall.take_if(|recall| recall.is_over(settled, now)) else { return };
        for (topic, frame) in recall.frames() {
            if topic.is_empty() {
                self.outbox.push(frame);
            } else {
                self.outbox.push_published(&topic, frame);
            }
        }
    }

    /// Passes on changes of the connections to a host and to those behind it.
    fn report_news(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.take_news() {
            return;
        }
        let mut all = true;
        for host in connection.relayed_hosts() {
            let reported = self.reported.get(&host.endpoint);
            let (link, called) =
                reported.map_or((None, None), |(link, called)| (Some(link), called.as_ref()));
            let is_link_new = link != Some(&host.link);
            let new_name = host.called.as_ref().filter(|&name| called != Some(name));
            let link_taken = !is_link_new || self.outbox.report(&host.endpoint, &host.link);
            let name_taken = new_name.is_none_or(|name| self.outbox.name(&host.endpoint, name));
            if link_taken && name_taken {
                self.reported.insert(host.endpoint, (host.link, host.called));
            } else {
                all = false;
            }
        }
        if !all {
            connection.report_again();
        }
    }

    /// Passes on published frames, until `until`.
    fn receive(&mut self, until: Instant) -> zmq::Result<()> {
        let wait = until.saturating_duration_since(Instant::now());
        match self.data.poll(POLLIN, i64::try_from(wait.as_millis()).unwrap_or(0)) {
            Ok(0) | Err(zmq::Error::EINTR) => return Ok(()),
            ready => ready?,
        };
        for received in messages::waiting(&self.data) {
            let (topic, frame) = received?;
            match &mut self.recall {
                None => self.outbox.push_published(&topic, frame),
                Some(recall) => recall.take(topic, frame, Instant::now()),
            }
        }
        Ok(())
    }

    /// Follows a new job.
    fn learn(&mut self, job: &JobName) {
        if self.jobs.len() < JOBS && self.jobs.insert(job.clone()) {
            self.subscribe();
        }
    }

    /// Subscribes to what is wanted now, and to nothing else.
    fn subscribe(&mut self) {
        let mut wanted: BTreeSet<_> = self.jobs.iter().flat_map(subscriptions::of_job).collect();
        if self.all {
            wanted.extend(self.jobs.iter().map(topic::details));
        }
        if let Some(WatchedRanks { job, ranks }) = &self.watched {
            wanted.extend(ranks.iter().map(|&rank| topic::detail(job, rank)));
        }
        let changes = self.subscriptions.change_to(wanted);
        for topic in changes.subscribe {
            self.outbox.begin(&topic);
            // This fails only on a socket that is not a SUB socket.
            let _ = self.data.set_subscribe(topic.as_bytes());
        }
        for topic in changes.unsubscribe {
            let _ = self.data.set_unsubscribe(topic.as_bytes());
        }
    }
}
