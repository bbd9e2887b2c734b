//! Takes messages from ranks, applies their effects, and sends commands to ranks.

use xpu_wire::{
    codec,
    frame::{Body, CaptureOutcome, CapturePart, Command, Frame, topic},
    unit::Moment,
};

use super::{Collector, TURN, publish::CONTROL};
use crate::{
    address::{Address, Identity},
    envelope::{self, Envelope},
    roster::Effect,
};

impl Collector {
    pub(super) fn take_workers(&mut self, now: Moment) -> zmq::Result<()> {
        for _ in 0..TURN {
            let Some(Envelope { from: Address { to: from, .. }, payload }) =
                Envelope::receive(&self.sockets.workers)?
            else {
                break;
            };
            let effects = match codec::decode(&payload) {
                Ok(Frame { number, body, .. }) => match body {
                    Body::Hello(info) => self.roster.hello(&from, number, info, now),
                    Body::Summary(summary) => self.roster.summary(&from, number, summary, now),
                    Body::Nccl(report) => {
                        self.roster.take_nccl(&from, number, report);
                        continue;
                    }
                    Body::Goodbye => self.roster.goodbye(&from, now),
                    Body::CaptureAnswer(_) | Body::CapturePart(_) => {
                        self.pass_on(&from, body, now);
                        continue;
                    }
                    other => {
                        self.complaints.raise("a worker may not send this", &other.kind(), now);
                        continue;
                    }
                },
                Err(error) => {
                    self.complaints.raise("a worker's frame", &error, now);
                    continue;
                }
            };
            self.carry_out(effects, now);
        }
        Ok(())
    }

    /// Forwards a rank's capture frames to the requester, if the sender is that rank.
    fn pass_on(&mut self, from: &Identity, body: Body, now: Moment) {
        let (number, job, rank) = match &body {
            Body::CaptureAnswer(answer) => (answer.number, &answer.job, answer.rank),
            Body::CapturePart(part) => (part.number, &part.job, part.rank),
            _ => return,
        };
        let is_its_own = self.roster.place_of(from) == Some((job, rank));
        let agreed = matches!(&body, Body::CaptureAnswer(answer) if answer.outcome == CaptureOutcome::Agreed);
        if is_its_own && !agreed {
            self.samplers.end(job, rank, number);
        }
        let Some(viewer) = self.captures.viewer(number).filter(|_| is_its_own).cloned() else { return };
        let body = match body {
            Body::CapturePart(part) => {
                let digest = |part: &CapturePart| self.roster.digest_of(&part.job, part.rank);
                match self.functions.take(part, digest) {
                    None => return,
                    Some(part) => Body::CapturePart(part),
                }
            }
            body => body,
        };
        self.send(&viewer, body, now);
    }

    pub(super) fn carry_out(&mut self, effects: Vec<Effect>, now: Moment) {
        for effect in effects {
            match effect {
                Effect::Command(to, command) => self.command(&to, command, now),
                Effect::Publish(body) => self.publish(*body, now),
                Effect::Fresh(job, rank) => {
                    if self.subscriptions.cover(&topic::detail(&job, rank))
                        && let Some(detail) = self.roster.detail(&job, rank)
                    {
                        // Sent before the details, because figures computed from the details may need it.
                        if let Some(nccl) = self.roster.nccl(&job, rank) {
                            self.publish(Body::NcclDetail(nccl), now);
                        }
                        self.publish(Body::Detail(detail), now);
                    }
                }
                Effect::Departed(mut departure) => {
                    if self.stacks.reads_gpus_of(departure.report.pid) {
                        // The core dump is the one being read for the stacks, not one of an exception.
                        departure.context.gpu_core = None;
                    }
                    self.exits.take(*departure);
                }
                Effect::Complain(about, detail) => self.complaints.raise(about, &detail, now),
            }
        }
    }

    pub(super) fn command(&mut self, to: &Identity, command: Command, now: Moment) {
        let bytes = self.encode(CONTROL, Body::Command(command), now);
        self.counting.sent(&envelope::send(&self.sockets.workers, to, &bytes));
    }
}
