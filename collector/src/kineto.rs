//! Acts as the daemon that PyTorch's profiler, Kineto, polls, and requests traces from ranks through it.
//!
//! ```text
//! rank: Kineto ──request, every 5 s──▶ Socket ──▶ Clients ─┐
//!              ◀───────config────────        ◀── Ordered ◀┴── Request::Kineto ── viewer
//!              ──file──▶ Place ──▶ Reading ──KinetoPart──────────────────────▶
//! ```
//!
//! A program polls only if it was started with `KINETO_USE_DAEMON=1`. The daemon sends nothing except answers
//! to polls. It listens in a folder of its own, which `xpu-top run` names to its job, and at dynolog's name
//! while a living rank polls there and no other daemon has the name.

mod clients;
mod config;
mod datagram;
mod delivery;
mod listener;
mod name;
mod need;
mod order;
mod requests;
mod scan;
mod socket;
mod trace;
mod written;

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd as _, RawFd},
    path::Path,
};

use clients::{Clients, Poll};
use datagram::Message;
use delivery::Bell;
use listener::{Fate, Listener};
use need::Settings;
use order::{Known, Ordered};
use xpu_wire::{
    endpoint::user_id,
    frame::{Body, KinetoRank},
    id::{JobName, Pid, Rank},
    ledger::KinetoCount,
    unit::Moment,
};

use crate::{
    address::Address,
    input_errors::InputErrors,
    roster::{Roster, Subject},
};
pub use name::KinetoName;
use name::Peer;
use socket::Received;

/// Largest number of datagrams taken from a listener before other sockets have their turn.
const TURN: u32 = 64;

/// A rank of one of the user's jobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct JobRank {
    job: JobName,
    rank: Rank,
}

/// Answers, each with its recipient.
pub(crate) type Answers = Vec<(Address, Body)>;

#[derive(Debug)]
pub(crate) struct Kineto {
    /// In the folder of this collector. `None` if it cannot be used.
    own: Option<Listener>,
    /// At the name that programs poll which name no folder, or the folder of the user's own variable. Other
    /// daemons may have it.
    shared: Listener,
    /// The variables of the living ranks' processes.
    settings: Settings,
    clients: Clients,
    ordered: BTreeMap<JobRank, Ordered>,
    /// Parts requested while too many traces are read, by rank.
    queue: BTreeMap<JobRank, u32>,
    /// The pipe through which reading threads wake the poll loop. Created when the first thread starts.
    bell: Option<Bell>,
    complaints: InputErrors,
}

/// Which of the listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Own,
    Shared,
}

impl Kineto {
    /// `folder`: the folder of this collector.
    pub(crate) fn new(name: KinetoName, folder: &Path, now: Moment) -> Self {
        let own = (name != KinetoName::Off).then(|| Listener::in_own_folder(folder, now)).flatten();
        let mut new = Self {
            own,
            shared: Listener::new(name, now),
            settings: Settings::default(),
            clients: Clients::default(),
            ordered: BTreeMap::new(),
            queue: BTreeMap::new(),
            bell: None,
            complaints: InputErrors::default(),
        };
        new.bind_own(now);
        new
    }

    /// Binds the names. The shared one is bound only while a rank of this collector needs it: dynolog tries to
    /// bind it once, at its start, and serves no program if it fails.
    fn bind_for(&mut self, needs_shared: bool, now: Moment) {
        self.bind_own(now);
        if needs_shared {
            self.bind_shared(now);
        } else if self.shared.release() {
            tracing::info!("{} is free again: no rank here needs it", self.shared.name.shown());
            self.clients.forget_those_of(Which::Shared);
        }
    }

    fn bind_shared(&mut self, now: Moment) {
        match self.shared.bind(now) {
            Fate::Unchanged => {}
            Fate::Lost => self.clients.forget_those_of(Which::Shared),
            Fate::Taken => {
                let name = self.shared.name.shown();
                let reached = self.own_folder().map_or_else(
                    || "no rank here".to_owned(),
                    |folder| {
                        format!("only ranks with KINETO_IPC_SOCKET_DIR={folder}, which `xpu-top run` sets,")
                    },
                );
                tracing::warn!(
                    "{name} belongs to another daemon (dynolog, another collector): `xpu-top kineto` reaches {reached} until it ends"
                );
            }
        }
    }

    fn bind_own(&mut self, now: Moment) {
        let Some(own) = &mut self.own else { return };
        match own.bind(now) {
            Fate::Unchanged => {}
            Fate::Lost => self.clients.forget_those_of(Which::Own),
            Fate::Taken => tracing::warn!(
                "{} belongs to another process: `xpu-top kineto` reaches no rank of `xpu-top run` until it ends",
                own.name.shown()
            ),
        }
    }

    /// The folder of this collector's own socket, while it is bound.
    fn own_folder(&self) -> Option<String> {
        let own = self.own.as_ref().filter(|own| own.socket.is_some())?;
        own.name.folder().map(str::to_owned)
    }

    fn listener(&mut self, which: Which) -> Option<&mut Listener> {
        match which {
            Which::Own => self.own.as_mut(),
            Which::Shared => Some(&mut self.shared),
        }
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let sockets = self.own.iter().chain([&self.shared]).filter_map(Listener::descriptor);
        let bell = self.bell.as_ref().map(|(heard, _)| heard.as_raw_fd());
        sockets.chain(bell)
    }

    /// Answers polls, and sends awaited parts. Never blocks.
    pub(crate) fn turn(&mut self, roster: &Roster, now: Moment) -> Answers {
        let mut answers = Vec::new();
        for which in [Which::Own, Which::Shared] {
            for _ in 0..TURN {
                let may = self.listener(which).is_some_and(|listener| listener.may_take(now));
                if !may || !self.take(which, roster, now, &mut answers) {
                    break;
                }
                if let Some(listener) = self.listener(which) {
                    listener.count_taken();
                }
            }
        }
        answers.extend(self.hear_bell());
        answers
    }

    /// Takes one datagram. `false` if there is none.
    fn take(&mut self, which: Which, roster: &Roster, now: Moment, answers: &mut Answers) -> bool {
        let Some(listener) = self.listener(which) else { return false };
        let Some(socket) = &mut listener.socket else { return false };
        let (peer, pid, uid, message) = match socket.receive() {
            Ok(Some(Received { peer, pid, uid, bytes })) => {
                (peer, pid, uid, bytes.map(Message::parse).transpose().map_err(|error| error.to_string()))
            }
            Ok(None) => return false,
            Err(error) => {
                self.complaints.raise("the socket for Kineto", &error, now);
                return false;
            }
        };
        let unanswerable = listener.name.why_unexpected(&peer);
        let message = message.and_then(|message| message.ok_or_else(|| "it is too long".to_owned()));
        let is_ours = uid == user_id();
        let reply = match message {
            Err(why) => {
                self.complaints.raise("not a Kineto message", &format!("process {pid}: {why}"), now);
                return true;
            }
            // Another user's program gets an empty answer at once, because it would wait for an answer.
            Ok(Message::Request { .. }) if !is_ours => datagram::answer(""),
            Ok(Message::Context { job, .. }) => {
                let count = if is_ours { self.clients.of_job(job).max(1) } else { 1 };
                datagram::instances(i32::try_from(count).unwrap_or(i32::MAX))
            }
            Ok(Message::Request { accepts, job, pids }) => {
                let own = Pid(pids.first().map_or(0, |&pid| pid.unsigned_abs()));
                self.clients.polled(pid, Poll { own, job, accepts, unanswerable, at: which }, now);
                let place = self.place_of(pid, own);
                let ordered = place.and_then(|place| Some((self.ordered.get_mut(&place)?, place)));
                if let Some((ordered, place)) = ordered {
                    let count = roster.kineto_count(&place.job, place.rank);
                    let before = ordered.standing.clone();
                    let text = ordered.instructions(accepts, count, now);
                    let sent = text.is_some_and(|text| self.send(which, &peer, &datagram::answer(&text)));
                    if let Some(ordered) = self.ordered.get_mut(&place) {
                        if sent {
                            ordered.instructed(now);
                        }
                        if ordered.standing != before {
                            answers.extend(self.changed(&place, roster));
                        }
                    }
                    if sent {
                        return true;
                    }
                }
                datagram::answer("")
            }
        };
        // A client that does not receive the reply polls again.
        self.send(which, &peer, &reply);
        true
    }

    /// Sends from the socket that the client polled.
    fn send(&mut self, which: Which, peer: &Peer, bytes: &[u8]) -> bool {
        let socket = self.listener(which).and_then(|listener| listener.socket.as_ref());
        socket.is_some_and(|socket| socket.send(peer, bytes))
    }

    /// The rank whose order a polling process gets. The process must be the rank's own.
    fn place_of(&self, pid: u32, own: Pid) -> Option<JobRank> {
        let is_its = |ordered: &&Ordered| {
            ordered.pid == own && self.clients.of(own).is_some_and(|(here, _)| here == pid)
        };
        self.ordered.iter().find(|(_, ordered)| is_its(ordered)).map(|(place, _)| place.clone())
    }

    fn changed(&self, place: &JobRank, roster: &Roster) -> Option<(Address, Body)> {
        let ordered = self.ordered.get(place)?;
        let count = roster.kineto_count(&place.job, place.rank);
        Some((ordered.viewer.clone(), Body::Kineto(self.of_order(place, ordered, count))))
    }

    fn of_order(
        &self,
        JobRank { job, rank }: &JobRank,
        ordered: &Ordered,
        count: Option<KinetoCount>,
    ) -> KinetoRank {
        let client = self.clients.of(ordered.pid).map(|(_, client)| client);
        KinetoRank {
            number: ordered.order.number,
            job: job.clone(),
            rank: *rank,
            pid: ordered.pid,
            standing: ordered.standing.clone(),
            polled: client.map(|client| client.polled),
            every: client.and_then(|client| client.every),
            count,
            clock_offset: ordered.asked.ahead,
        }
    }

    /// Checks the orders.
    pub(crate) fn check(&mut self, roster: &Roster, now: Moment) -> Answers {
        let needs_shared = self.needs_shared(roster);
        self.bind_for(needs_shared, now);
        if let Some(own) = &mut self.own {
            own.sweep(now);
        }
        self.clients.forget(now);
        self.ordered.retain(|_, ordered| !ordered.is_forgotten(now));
        let mut changed = Vec::new();
        for (place, ordered) in &mut self.ordered {
            let known = Known {
                lives: roster.lives_as(&place.job, place.rank, ordered.pid),
                client: self.clients.of(ordered.pid).map(|(_, client)| client),
                count: roster.kineto_count(&place.job, place.rank),
                now,
            };
            if ordered.check(known) {
                changed.push(place.clone());
            }
        }
        let mut answers: Answers = changed.iter().filter_map(|place| self.changed(place, roster)).collect();
        answers.extend(self.serve_queue());
        answers
    }

    fn of_number(&mut self, place: &JobRank, number: u64) -> Option<&mut Ordered> {
        self.ordered.get_mut(place).filter(|ordered| ordered.order.number == number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_shared_name_is_left_to_others_until_a_rank_needs_it() {
        let name = KinetoName::Abstract(format!("xpu-top-left-{}", std::process::id()).into_bytes());
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let folder = tempfile::tempdir().unwrap();
        let kineto = |own: &str| Kineto::new(name.clone(), &folder.path().join(own), at(0));
        let (mut first, mut second) = (kineto("1"), kineto("2"));
        let shared = |one: &Kineto| one.shared.socket.is_some();
        assert!(!shared(&first));
        first.bind_for(false, at(1));
        assert!(!shared(&first));
        first.bind_for(true, at(2));
        second.bind_for(true, at(3));
        assert!(shared(&first) && !shared(&second) && second.shared.is_of_another());
        first.bind_for(false, at(4));
        second.bind_for(true, at(5));
        assert!(!shared(&first) && shared(&second));
        first.bind_for(true, at(6));
        assert!(!shared(&first), "it is the second's");
        second.bind_for(false, at(7));
        first.bind_for(true, at(8));
        assert!(shared(&first));
        assert!(first.own_folder().is_some() && second.own_folder().is_some(), "each has its own");
        assert_ne!(first.own_folder(), second.own_folder());
    }
}
