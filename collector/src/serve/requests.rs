//! Takes viewers' requests, and sends the answers that are known at once.

use std::time::Instant;

use xpu_wire::{
    VERSION, codec,
    frame::{Body, CaptureWindow, Command, Frame, HostSnapshot, JobWhatIf, KinetoWish, Request, SampleOrder},
    id::{JobName, Rank},
    unit::Moment,
};

use super::{Collector, TURN};
use crate::{address::Address, envelope::Envelope, request_time::RequestTime, roster::FoundStacks};

impl Collector {
    pub(super) fn take_requests(&mut self, now: Moment) -> zmq::Result<()> {
        for _ in 0..TURN {
            let Some(envelope) = Envelope::receive(&self.sockets.viewers.control)? else { break };
            let answer = match codec::decode(&envelope.payload) {
                Ok(Frame { body: Body::Request(request), now: theirs, .. }) => {
                    // Readers of the pages do not keep the collector alive.
                    if !envelope.from.to.0.starts_with(&self.sockets.viewers.upstream.name) {
                        self.busy = now;
                    }
                    self.answer(request, &envelope.from, RequestTime::new(now, theirs))
                }
                Ok(Frame { body, .. }) => {
                    self.complaints.raise("a viewer may not send this", &body.kind(), now);
                    Some(Body::Refusal("only requests are taken here; see docs/wire-format.md".to_owned()))
                }
                Err(error) => {
                    self.complaints.raise("a viewer's frame", &error, now);
                    Some(Body::Refusal(error.to_string()))
                }
            };
            if let Some(body) = answer {
                self.send(&envelope.from, body, now);
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: Request, viewer: &Address, received: RequestTime) -> Option<Body> {
        let now = received.at;
        match request {
            Request::Snapshot => {
                // Sent before the snapshot, so that a viewer with the snapshot has everything.
                for exit in self.roster.exits() {
                    self.send(viewer, Body::Exit(exit), now);
                }
                for load in self.loads.latest().to_vec() {
                    self.send(viewer, Body::Load(load), now);
                }
                let snapshot = HostSnapshot {
                    version: VERSION.to_owned(),
                    started: self.started,
                    base: self.config.base,
                    jobs: self.roster.snapshot(),
                };
                self.send(viewer, Body::Snapshot(snapshot), now);
                // A viewer keeps the sum of a job that it knows.
                for of in self.roster.what_ifs() {
                    self.send(viewer, Body::WhatIf(of), now);
                }
                None
            }
            Request::History { length } => {
                let jobs = self.roster.jobs();
                for part in self.past.of(&jobs, length.into(), now) {
                    self.send(viewer, Body::History(part), now);
                }
                None
            }
            Request::ThinnedHistory { length, digests } => {
                let jobs = self.roster.jobs();
                for part in self.past.thinned(&jobs, length.into(), digests, now) {
                    self.send(viewer, Body::History(part), now);
                }
                None
            }
            Request::Enable { job, on } => {
                let identities = self.roster.identities(&job);
                if identities.is_empty() {
                    return Some(self.nobody(&job));
                }
                for identity in identities {
                    self.command(&identity, Command::Enable(on), now);
                }
                None
            }
            Request::Capture { job, ranks, order } => {
                self.capture(&job, &ranks, order.number, Command::Capture(order), viewer, now)
            }
            Request::CaptureTime { job, ranks, order, window } => {
                let window = CaptureWindow { at: received.here(window.at), ..window };
                let command = Command::CaptureTime(order, window);
                self.capture(&job, &ranks, order.number, command, viewer, now)
            }
            Request::Sample { job, ranks, order } => self.sample(&job, &ranks, order, viewer, received),
            Request::FunctionsOnly { job: _, number } => {
                self.functions.want(number);
                None
            }
            Request::EndCapture { job, number } => {
                self.samplers.end_all(number);
                self.functions.end(number);
                for identity in self.roster.identities(&job) {
                    self.command(&identity, Command::EndCapture(number), now);
                }
                None
            }
            Request::Kineto { job, ranks, wish } => self.take_kineto(&job, &ranks, &wish, viewer, received),
            Request::Records { job, ranks, most } => {
                let Some(records) = self.roster.records(&job, &ranks, most as usize, now) else {
                    return Some(self.nobody(&job));
                };
                for record in records {
                    self.send(viewer, Body::Record(record), now);
                }
                None
            }
            Request::Stacks { job, ranks, kept, natively } => {
                let found = self.roster.stacks(&job, &ranks, kept, natively, now);
                self.take_stacks(&job, found, viewer, now)
            }
            Request::Ras { job, rank } => {
                let target = self.roster.ras_target(&job, rank, now)?;
                if let Some(known) = self.ras.want(target, viewer, Instant::now()) {
                    self.send_ras_answer(known, now);
                }
                None
            }
            Request::WhatIf(of) => {
                let (since, at) = (received.here(of.since), received.here(of.at));
                let of = JobWhatIf { since, at, ..of.bounded() };
                if self.roster.keep_what_if(&of) {
                    self.publish(Body::WhatIf(of), now);
                }
                None
            }
            Request::GpuStacks { job, ranks } => {
                let found = self.roster.gpu_stacks(&job, &ranks, now);
                self.take_stacks(&job, found, viewer, now)
            }
        }
    }

    /// Sends the stacks that are known, and reads the others.
    fn take_stacks(
        &mut self,
        job: &JobName,
        found: Option<FoundStacks>,
        viewer: &Address,
        now: Moment,
    ) -> Option<Body> {
        let Some(FoundStacks { known, targets }) = found else { return Some(self.nobody(job)) };
        for stacks in known {
            self.send(viewer, Body::Stacks(stacks), now);
        }
        for target in targets {
            self.stacks.want(target, Some(viewer));
        }
        None
    }

    /// Orders ranks to record.
    fn capture(
        &mut self,
        job: &JobName,
        ranks: &[Rank],
        number: u64,
        command: Command,
        viewer: &Address,
        now: Moment,
    ) -> Option<Body> {
        let identities = self.roster.workers_named(job, ranks);
        if identities.is_empty() {
            // Named ranks may live on other hosts.
            return ranks.is_empty().then(|| self.nobody(job));
        }
        self.captures.asked(number, viewer);
        for identity in identities {
            self.command(&identity, command.clone(), now);
        }
        None
    }

    /// Samples the Python stacks of ranks during their capture.
    fn sample(
        &mut self,
        job: &JobName,
        ranks: &[Rank],
        order: SampleOrder,
        viewer: &Address,
        received: RequestTime,
    ) -> Option<Body> {
        let window = order.window.map(|window| CaptureWindow { at: received.here(window.at), ..window });
        let order = SampleOrder { window, ..order };
        self.functions.sampled(order.capture.number);
        for (target, ledger) in self.roster.sampled(job, ranks, received.at) {
            if let Some(refused) = self.samplers.begin(target, ledger, &order, viewer, Instant::now()) {
                self.send_sample(viewer, refused, received.at);
            }
        }
        None
    }

    /// Takes a request to the ranks' Kineto. Sends the answers that are known at once.
    fn take_kineto(
        &mut self,
        job: &JobName,
        ranks: &[Rank],
        wish: &KinetoWish,
        viewer: &Address,
        received: RequestTime,
    ) -> Option<Body> {
        let subjects = self.roster.subjects(job, ranks);
        if subjects.is_empty() && ranks.is_empty() {
            return Some(self.nobody(job));
        }
        let answers = self.kineto.wish(job, subjects, wish, viewer, received);
        self.send_all(answers.into_iter().map(|body| (viewer.clone(), body)).collect(), received.at);
        None
    }

    fn nobody(&self, job: &JobName) -> Body {
        let host = &self.config.host;
        Body::Refusal(format!("job {job} has no rank on {host}; `xpu-top status` lists the jobs there"))
    }
}
