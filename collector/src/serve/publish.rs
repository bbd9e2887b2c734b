//! Sends frames to viewers: publishes them under a topic, or answers the requester.

use std::time::Instant;

use xpu_wire::{
    codec,
    frame::{Body, Event, Frame, PythonSamples, topic},
    unit::Moment,
};
use zmq::{DONTWAIT, SNDMORE};

use super::Collector;
use crate::{address::Address, kineto::Answers, ras, stacks::Answer, upstream::Upstream};

/// The stream of frames that answer requests and command workers.
pub(super) const CONTROL: &str = "/control";

impl Collector {
    pub(super) fn send(&mut self, viewer: &Address, body: Body, now: Moment) {
        let bytes = self.encode(CONTROL, body, now);
        self.counting.sent(&viewer.answer(&self.sockets.viewers.control, &bytes));
    }

    pub(super) fn send_all(&mut self, answers: Answers, now: Moment) {
        for (viewer, body) in answers {
            self.send(&viewer, body, now);
        }
    }

    /// Keeps new stacks, and sends them to their requesters. If they replace a failed reading, all viewers get
    /// them: those that have the failed one do not ask again.
    pub(super) fn send_stacks(&mut self, now: Moment) {
        for Answer { viewers, mut stacks, looked } in self.stacks.turn(Instant::now()) {
            stacks.read_at = now;
            let is_for_all = self.roster.keep(&mut stacks, looked);
            if viewers.is_empty() {
                tracing::info!("{}: no progress; the stacks of rank {} are kept", stacks.job, stacks.rank);
            }
            let body = Body::Stacks(stacks);
            if is_for_all {
                self.publish(body.clone(), now);
            }
            let bytes = self.encode(CONTROL, body, now);
            for viewer in viewers {
                self.counting.sent(&viewer.answer(&self.sockets.viewers.control, &bytes));
            }
        }
    }

    /// Sends sampled stacks to their requesters.
    pub(super) fn send_samples(&mut self, now: Moment) {
        for (viewer, part) in self.samplers.turn(Instant::now()) {
            self.send_sample(&viewer, part, now);
        }
    }

    /// Sends sampled stacks, unless only functions were requested.
    pub(super) fn send_sample(&mut self, viewer: &Address, part: PythonSamples, now: Moment) {
        if let Some(part) = self.functions.take_samples(part) {
            self.send(viewer, Body::PythonSamples(part), now);
        }
    }

    /// Sends the functions of ranks to the requesters of their captures.
    pub(super) fn send_functions(&mut self, now: Moment) {
        for of in self.functions.made() {
            if let Some(viewer) = self.captures.viewer(of.number).cloned() {
                self.send(&viewer, Body::Functions(of), now);
            }
        }
    }

    /// Sends the answers of RAS, once they are known.
    pub(super) fn send_ras(&mut self, now: Moment) {
        if self.ras.is_asking() {
            self.ras.note(self.roster.creates_communicator());
        }
        for answered in self.ras.turn(Instant::now()) {
            self.send_ras_answer(answered, now);
        }
    }

    /// Sends an answer of RAS to its requesters, and its unchanged bytes to the thread that saves hangs.
    pub(super) fn send_ras_answer(&mut self, answered: ras::Answered, now: Moment) {
        let ras::Answered { viewers, report, raw } = answered;
        let Upstream { name, ras, .. } = &self.sockets.viewers.upstream;
        let (own, mut viewers): (Vec<_>, Vec<_>) =
            viewers.into_iter().partition(|viewer| viewer.to.0.starts_with(name));
        let is_kept = !own.is_empty();
        if is_kept && !raw.is_empty() {
            ras.put(&report.job, raw);
        }
        if is_kept && report.is_answered() {
            // In a hang, all viewers get the report. The thread that saves hangs is a viewer too, and must
            // not get the report twice.
            self.publish(Body::Ras(report.clone()), now);
        } else {
            viewers.extend(own);
        }
        self.send_all(viewers.into_iter().map(|viewer| (viewer, Body::Ras(report.clone()))).collect(), now);
    }

    /// Publishes ranks' ends whose data is complete.
    pub(super) fn publish_exits(&mut self, now: Moment) {
        for exit in self.exits.turn(Instant::now()) {
            tracing::warn!("{}: rank {} {}", exit.job, exit.rank, exit.sentence());
            self.roster.keep_exit(&exit);
            self.publish(Body::Exit(exit), now);
        }
    }

    /// Publishes under the body's topic. Frames without subscribers still count, so that new and old viewers
    /// see the same numbers.
    pub(super) fn publish(&mut self, body: Body, now: Moment) {
        let topic = match &body {
            Body::Digest(digest) => topic::overview(&digest.job),
            Body::Detail(detail) => topic::detail(&detail.job, detail.rank),
            Body::NcclDetail(nccl) => topic::detail(&nccl.job, nccl.rank),
            Body::Event(event) => {
                note(event);
                if let Event::Joined(info) = event {
                    self.sockets.viewers.upstream.hang_actions.note(info);
                }
                topic::events(event.job())
            }
            Body::Exit(exit) => topic::events(&exit.job),
            Body::Cpu(cpu) => topic::events(&cpu.job),
            Body::Times(times) => topic::events(&times.job),
            Body::Work(work) => topic::events(&work.job),
            Body::Load(load) => topic::events(&load.job),
            Body::Neighbours(neighbours) => topic::events(&neighbours.job),
            Body::WhatIf(of) => topic::events(&of.job),
            Body::Record(record) => topic::events(&record.job),
            Body::Ras(report) => topic::events(&report.job),
            Body::Stacks(stacks) => topic::events(&stacks.job),
            _ => return,
        };
        let is_heard = self.subscriptions.cover(&topic);
        let is_kept = matches!(
            body,
            Body::Digest(_)
                | Body::Cpu(_)
                | Body::Times(_)
                | Body::Work(_)
                | Body::Neighbours(_)
                | Body::Event(_)
        );
        if !is_heard && !is_kept {
            self.counting.next(&topic);
            return;
        }
        let frame = self.frame(&topic, body, now);
        let bytes = codec::encode(&frame);
        if is_kept {
            self.past.keep(&frame, &bytes, now);
            self.runs.take(&frame);
        }
        if !is_heard {
            return;
        }
        let data = &self.sockets.viewers.data;
        let outcome =
            data.send(topic.as_bytes(), SNDMORE | DONTWAIT).and_then(|()| data.send(bytes, DONTWAIT));
        self.counting.sent(&outcome);
    }

    pub(super) fn encode(&mut self, stream: &str, body: Body, now: Moment) -> Vec<u8> {
        codec::encode(&self.frame(stream, body, now))
    }

    fn frame(&mut self, stream: &str, body: Body, now: Moment) -> Frame {
        let number = self.counting.next(stream);
        Frame { host: self.config.host.clone(), number, now, lost: self.counting.lost(), body }
    }
}

fn note(event: &Event) {
    match event {
        Event::Joined(info) => tracing::info!("{}: rank {} joined (pid {})", info.job, info.rank, info.pid),
        Event::Life { job, rank, life, .. } => tracing::info!("{job}: rank {rank} is {life:?}"),
    }
}
