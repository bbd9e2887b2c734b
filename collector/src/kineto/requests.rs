//! Viewers' requests for traces, and the answers that are known at once.

use std::fs;

use xpu_wire::{
    endpoint::user_id,
    frame::{Body, KinetoOrder, KinetoRank, KinetoStanding, KinetoWish},
    id::JobName,
};

use super::{JobRank, Kineto, KinetoName, Subject, clients::Client, order::Ordered, trace, trace::Place};
use crate::{address::Address, request_time::RequestTime};

impl Kineto {
    /// Takes a viewer's request for these ranks. Returns the answers that are known at once.
    pub(crate) fn wish(
        &mut self,
        job: &JobName,
        subjects: Vec<Subject>,
        wish: &KinetoWish,
        viewer: &Address,
        asked: RequestTime,
    ) -> Vec<Body> {
        let mut answers = Vec::new();
        for subject in subjects {
            let place = JobRank { job: job.clone(), rank: subject.rank };
            match wish {
                KinetoWish::Tell => answers.push(Body::Kineto(self.of_none(job, &subject, 0, asked.ahead))),
                KinetoWish::Trace(order) => {
                    let rank = self.trace(&place, &subject, order, viewer, asked);
                    answers.push(Body::Kineto(rank));
                }
                KinetoWish::Part { number, part } => {
                    if let Some(ordered) = self.of_number(&place, *number) {
                        ordered.touch(viewer, asked.at);
                        answers.extend(self.part(&place, *part));
                    }
                }
                KinetoWish::End { number } => self.end(&place, *number),
            }
        }
        answers
    }

    fn trace(
        &mut self,
        place: &JobRank,
        subject: &Subject,
        order: &KinetoOrder,
        viewer: &Address,
        asked: RequestTime,
    ) -> KinetoRank {
        if let Some(ordered) = self.of_number(place, order.number) {
            ordered.touch(viewer, asked.at);
            let ordered = &self.ordered[place];
            return self.of_order(place, ordered, subject.count);
        }
        let none = self.of_none(&place.job, subject, order.number, asked.ahead);
        if matches!(none.standing, KinetoStanding::Unregistered { .. }) {
            return none;
        }
        if self.ordered.get(place).is_some_and(|ordered| !ordered.gives_way(asked.at)) {
            let why = "another trace is running there: try again when it has ended".to_owned();
            return KinetoRank { standing: KinetoStanding::Refused { why }, ..none };
        }
        let Some((pid, _)) = self.clients.of(subject.pid) else { return none };
        // The name is unpredictable, because all users share /tmp.
        let stem = format!("xpu-top-kineto-{:016x}-rank{}", order.number, subject.rank.process().0);
        let target = Place::of(pid, subject.pid.0, user_id(), &stem);
        let ordered = Ordered::new(order.clone(), viewer.clone(), subject.pid, target, asked);
        let rank = self.of_order(place, &ordered, subject.count);
        self.queue.remove(place);
        self.ordered.insert(place.clone(), ordered);
        rank
    }

    /// Ends an order that is no longer wanted. If Kineto has it already, the trace is awaited, and then
    /// removed.
    fn end(&mut self, place: &JobRank, number: u64) {
        self.queue.remove(place);
        let ended = self.of_number(place, number).is_some_and(Ordered::abandon);
        if ended {
            self.ordered.remove(place);
        }
    }

    fn of_none(&self, job: &JobName, subject: &Subject, number: u64, clock_offset: i64) -> KinetoRank {
        let client = self.clients.of(subject.pid).map(|(_, client)| client);
        let standing = match client {
            Some(Client { unanswerable: Some(why), .. }) => KinetoStanding::Unregistered { why: why.clone() },
            Some(client) if client.accepts => KinetoStanding::Idle,
            Some(_) => KinetoStanding::Busy,
            None => KinetoStanding::Unregistered { why: self.why_silent(subject) },
        };
        KinetoRank {
            number,
            job: job.clone(),
            rank: subject.rank,
            pid: subject.pid,
            standing,
            polled: client.map(|client| client.polled),
            every: client.and_then(|client| client.every),
            count: subject.count,
            clock_offset,
        }
    }

    /// Why a rank's Kineto never polled, with the remedy.
    fn why_silent(&self, subject: &Subject) -> String {
        let pid = subject.pid.0;
        if !subject.lives {
            return "its process has ended".to_owned();
        }
        if self.shared.name == KinetoName::Off {
            return format!("its host's collector was started with {}=off", KinetoName::VARIABLE);
        }
        let is_readable = fs::metadata(format!("/proc/{pid}/environ")).is_ok();
        if is_readable && trace::variable(pid, KinetoName::USE_DAEMON).is_none() {
            return "its process was started without KINETO_USE_DAEMON=1: start it with `xpu-top run`, without --no-kineto"
                .to_owned();
        }
        let theirs = is_readable.then(|| trace::variable(pid, KinetoName::FOLDER)).flatten();
        if let Some(own) = self.own.as_ref().filter(|own| own.is_of_another())
            && theirs.as_deref() == own.name.folder()
        {
            return format!("another process has {} on its host: end it", own.name.shown());
        }
        let own = self.own_folder();
        let polls_own = theirs.is_some() && theirs == own;
        if !polls_own && self.shared.is_of_another() {
            let name = self.shared.name.shown();
            let who = format!("another daemon has {name} on its host (dynolog, or another collector)");
            return match own {
                Some(own) => format!(
                    "{who}: end it, or start the job with KINETO_IPC_SOCKET_DIR={own}, which `xpu-top run` sets unless KINETO_USE_DAEMON is set already"
                ),
                None => format!("{who}: end it, or use it"),
            };
        }
        if has_torch(pid) == Some(false) {
            return "its process has loaded no PyTorch".to_owned();
        }
        if is_readable
            && !polls_own
            && let Some(why) = self.shared.name.why_elsewhere(theirs.as_deref())
        {
            return why;
        }
        "its PyTorch sent no request: PyTorch 2.7 or newer sends one every 5 s if its KINETO_IPC_SOCKET_DIR is that of the collector"
            .to_owned()
    }
}

/// Whether PyTorch's library is mapped in the process; `None` if the mappings cannot be read.
fn has_torch(pid: u32) -> Option<bool> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    Some(memchr::memmem::find(&maps, b"/libtorch_cpu.so").is_some())
}
