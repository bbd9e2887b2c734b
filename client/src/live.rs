//! A live job: one thread is connected to every host's collector and passes its frames on.
//!
//! One SUB socket receives from all hosts. One DEALER socket per host requests snapshots, whose arrival also
//! shows that the host is up. Frames wait in a bounded queue. If it is full, frames are dropped, and later
//! frames have the number of dropped frames.

mod follower;
mod outbox;

use std::{collections::BTreeSet, sync::mpsc, thread};

use follower::Follower;
use tokio::sync::mpsc as queue;
use xpu_net::{key::Key, recall};
use xpu_wire::{
    endpoint::BasePort,
    frame::{CaptureOrder, CaptureWindow, JobWhatIf, KinetoWish, Request, SampleOrder},
    id::{HostName, JobName, Rank},
};

use crate::{
    arrival::{Arrival, Arrivals, Endpoint, Link, QUEUE},
    follow::LATELY,
};

/// The handle of the thread, which ends when this handle and the arrivals are dropped.
#[derive(Clone, Debug)]
pub struct Live {
    /// viewer --Order--> the thread
    orders: mpsc::Sender<Order>,
}

/// Ranks of one job whose full summaries the viewer requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedRanks {
    pub job: JobName,
    pub ranks: BTreeSet<Rank>,
}

#[derive(Debug)]
pub enum Order {
    WatchRanks(Option<WatchedRanks>),
    WatchAll(bool),
    Switch { job: JobName, on: bool },
    Stacks { job: JobName, ranks: Vec<Rank>, kept: bool, natively: bool },
    GpuStacks { job: JobName, ranks: Vec<Rank> },
    Records { job: JobName, ranks: Vec<Rank> },
    Ras { job: JobName, rank: Rank },
    WhatIf { of: JobWhatIf, host: Option<HostName> },
    FunctionsOnly { job: JobName, number: u64 },
    Capture { job: JobName, ranks: Vec<Rank>, order: CaptureOrder, window: Option<CaptureWindow> },
    EndCapture { job: JobName, number: u64 },
    Sample { job: JobName, ranks: Vec<Rank>, order: SampleOrder },
    Kineto { job: JobName, ranks: Vec<Rank>, host: Option<HostName>, wish: KinetoWish },
}

impl Live {
    /// Asks for the full summaries of these ranks only.
    pub fn watch_ranks(&self, ranks: Option<WatchedRanks>) {
        // The send fails only if there are no receivers, and then the order is not needed.
        let _ = self.orders.send(Order::WatchRanks(ranks));
    }

    /// Asks for the full summaries of all ranks, or stops asking.
    pub fn watch_all(&self, on: bool) {
        let _ = self.orders.send(Order::WatchAll(on));
    }

    /// Asks every host with ranks of the job to pause or resume its hooks. The digests show the result.
    pub fn switch(&self, job: JobName, on: bool) {
        let _ = self.orders.send(Order::Switch { job, on });
    }

    /// Asks every host with living ranks of the job for the current stacks of these ranks, or of all. They
    /// arrive as frames, one per rank.
    ///
    /// `natively`: with native frames, which stop each thread for a moment.
    pub fn stacks(&self, job: JobName, ranks: Vec<Rank>, natively: bool) {
        let _ = self.orders.send(Order::Stacks { job, ranks, kept: false, natively });
    }

    /// Like [`Self::stacks`] with native frames, for a hung job, and also reads the kernels on its GPUs.
    /// **This ends the job**.
    pub fn gpu_stacks(&self, job: JobName, ranks: Vec<Rank>) {
        let _ = self.orders.send(Order::GpuStacks { job, ranks });
    }

    /// Asks every host with living ranks of the job to let these ranks record some steps, or a period.
    /// Answers and recorded data arrive as frames.
    pub fn capture(
        &self,
        job: JobName,
        ranks: Vec<Rank>,
        order: CaptureOrder,
        window: Option<CaptureWindow>,
    ) {
        let _ = self.orders.send(Order::Capture { job, ranks, order, window });
    }

    /// Asks every host of the job to send what ranks spend their steps on, in place of their operations. To be
    /// followed by the order of the capture. An older collector sends the operations.
    pub fn functions_only(&self, job: JobName, number: u64) {
        let _ = self.orders.send(Order::FunctionsOnly { job, number });
    }

    /// Sends a request for these ranks' Kineto to every host of the job, or to one. Answers arrive as frames.
    pub fn kineto(&self, job: JobName, ranks: Vec<Rank>, host: Option<HostName>, wish: KinetoWish) {
        let _ = self.orders.send(Order::Kineto { job, ranks, host, wish });
    }

    /// Asks every host with living or ended ranks of the job for the last NCCL calls of these ranks. They
    /// arrive as frames, one per rank.
    pub fn records(&self, job: JobName, ranks: Vec<Rank>) {
        let _ = self.orders.send(Order::Records { job, ranks });
    }

    /// Asks this rank's host for the answer of NCCL's RAS service about the job. It arrives as one frame.
    pub fn ras(&self, job: JobName, rank: Rank) {
        let _ = self.orders.send(Order::Ras { job, rank });
    }

    /// Asks the host of the job's rank 0 to publish what stragglers have cost the job; every host of the job,
    /// if it is not known which one that is.
    pub fn publish_what_if(&self, of: JobWhatIf, host: Option<HostName>) {
        let _ = self.orders.send(Order::WhatIf { of, host });
    }

    /// Asks every host of the job to sample the Python stacks of these ranks during a capture. The samples
    /// arrive as frames.
    pub fn sample(&self, job: JobName, ranks: Vec<Rank>, order: SampleOrder) {
        let _ = self.orders.send(Order::Sample { job, ranks, order });
    }

    /// Ends a capture that was requested.
    pub fn end_capture(&self, job: JobName, number: u64) {
        let _ = self.orders.send(Order::EndCapture { job, number });
    }

    /// Like [`Self::stacks`] with native frames, for a hung or ended job. Stacks read since the rank last
    /// moved are not read again.
    pub fn kept_stacks(&self, job: JobName, ranks: Vec<Rank>) {
        let _ = self.orders.send(Order::Stacks { job, ranks, kept: true, natively: true });
    }
}

#[cfg(test)]
impl Live {
    /// A handle without collectors, and the receiver of its requests.
    pub fn disconnected() -> (Self, mpsc::Receiver<Order>) {
        let (orders, ordered) = mpsc::channel();
        (Self { orders }, ordered)
    }
}

/// Connects to every endpoint, and retries silent ones. History arrives first.
pub fn connect(endpoints: Vec<Endpoint>, key: Option<Key>, job: Option<JobName>) -> (Live, Arrivals) {
    let past = recall::request(endpoints.len());
    connect_with(endpoints, key, job, past)
}

/// Like [`connect`], for a capture or a single answer: requests only as much history as is needed to detect
/// stragglers.
pub fn connect_briefly(endpoints: Vec<Endpoint>, key: Option<Key>, job: Option<JobName>) -> (Live, Arrivals) {
    let past = recall::request_of(LATELY, endpoints.len());
    connect_with(endpoints, key, job, past)
}

fn connect_with(
    endpoints: Vec<Endpoint>,
    key: Option<Key>,
    job: Option<JobName>,
    past: Request,
) -> (Live, Arrivals) {
    let (arrivals, receiver) = queue::channel(QUEUE);
    let (orders, ordered) = mpsc::channel();
    thread::spawn(move || {
        if let Err(error) =
            Follower::new(endpoints, key, job, &past, arrivals.clone()).and_then(|mut f| f.follow(&ordered))
        {
            report_failure(&arrivals, error);
        }
    });
    (Live { orders }, receiver)
}

/// Reports that there are no sockets, and so no requests.
fn report_failure(arrivals: &queue::Sender<Arrival>, error: zmq::Error) {
    let endpoint = Endpoint { host: "this host".to_owned(), base: BasePort::DEFAULT, ssh: None };
    let why = format!("libzmq: {error}; too many open files? raise `ulimit -n`");
    let _ = arrivals.try_send(Arrival::Link(endpoint, Link::Down { why }));
}

#[cfg(test)]
mod tests;
