//! Acts as the daemon that PyTorch's profiler, Kineto, polls, and requests traces from ranks through it.
//!
//! ```text
//! rank: Kineto ──request, every 5 s──▶ Socket ──▶ Clients ─┐
//!              ◀───────config────────        ◀── Ordered ◀┴── Request::Kineto ── viewer
//!              ──file──▶ Place ──▶ Reading ──KinetoPart──────────────────────▶
//! ```
//!
//! A program polls only if it was started with `KINETO_USE_DAEMON=1`. The daemon sends nothing except answers
//! to polls.

mod clients;
mod config;
mod datagram;
mod delivery;
mod name;
mod order;
mod requests;
mod scan;
mod socket;
mod trace;
mod written;

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsRawFd as _, RawFd},
    time::Duration,
};

use clients::{Clients, Poll};
use datagram::Message;
use delivery::Bell;
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
use socket::{Received, Socket};

/// Interval of attempts to bind a name that another daemon has.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Largest number of datagrams taken before other sockets have their turn, and in a second. A thousand ranks
/// send two hundred a second.
const TURN: u32 = 64;
const A_SECOND: u32 = 5000;
const SECOND: Duration = Duration::from_secs(1);

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
    name: KinetoName,
    socket: Option<Socket>,
    tried: Option<Moment>,
    /// Whether a rank has lived here.
    has_served: bool,
    clients: Clients,
    ordered: BTreeMap<JobRank, Ordered>,
    /// Parts requested while too many traces are read, by rank.
    queue: BTreeMap<JobRank, u32>,
    /// The pipe through which reading threads wake the poll loop. Created when the first thread starts.
    bell: Option<Bell>,
    /// The begin of the current second, and the datagrams taken in it.
    taken: (Moment, u32),
    complaints: InputErrors,
}

impl Kineto {
    pub(crate) fn new(name: KinetoName, now: Moment) -> Self {
        let mut new = Self {
            name,
            socket: None,
            tried: None,
            has_served: false,
            clients: Clients::default(),
            ordered: BTreeMap::new(),
            queue: BTreeMap::new(),
            bell: None,
            taken: (now, 0),
            complaints: InputErrors::default(),
        };
        new.bind(now);
        new
    }

    /// Binds the name, or releases it while no rank of this collector lives: another job's collector may need
    /// it. Before the first rank, the name stays bound, because that rank's Kineto may poll before its hook
    /// reports.
    fn bind_for(&mut self, living: usize, now: Moment) {
        self.has_served |= living > 0;
        if self.has_served && living == 0 {
            if self.socket.take().is_some() {
                tracing::info!("{} is free again: no rank lives", self.name.shown());
            }
            (self.tried, self.clients) = (None, Clients::default());
            return;
        }
        self.bind(now);
    }

    /// Binds the name if it is free. Logs one line if another daemon has it.
    fn bind(&mut self, now: Moment) {
        if self.socket.as_ref().is_some_and(|socket| !socket.has_its_name()) {
            tracing::warn!("{} was removed or taken by another daemon", self.name.shown());
            // From now on, clients poll the other daemon.
            (self.socket, self.tried, self.clients) = (None, None, Clients::default());
        }
        let is_due = self.tried.is_none_or(|tried| now.since(tried) >= TRY_AGAIN);
        if self.socket.is_some() || self.name == KinetoName::Off || !is_due {
            return;
        }
        let is_first = self.tried.replace(now).is_none();
        let name = self.name.shown();
        match Socket::bind(&self.name) {
            Ok(socket) => {
                tracing::info!("Kineto is served at {name}");
                if self.name.is_too_long_for_clients() {
                    tracing::warn!(
                        "{name} is too long: Kineto's clients create sockets in that folder, so its path can have at most 53 characters"
                    );
                }
                self.socket = Some(socket);
            }
            Err(error) if is_first && error.kind() == io::ErrorKind::AddrInUse => {
                tracing::warn!(
                    "{name} belongs to another daemon (dynolog, another collector): `xpu-top kineto` reaches no rank here until it ends"
                );
            }
            Err(error) if is_first => tracing::warn!("Kineto cannot be served at {name}: {error}"),
            Err(_) => {}
        }
    }

    /// The descriptors to poll. Datagrams beyond a second's limit stay in the socket until the next second.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let socket = self.socket.as_ref().filter(|_| self.taken.1 < A_SECOND).map(Socket::descriptor);
        let bell = self.bell.as_ref().map(|(heard, _)| heard.as_raw_fd());
        socket.into_iter().chain(bell)
    }

    /// Answers polls, and sends awaited parts. Never blocks.
    pub(crate) fn turn(&mut self, roster: &Roster, now: Moment) -> Answers {
        if now.since(self.taken.0) >= SECOND || now < self.taken.0 {
            self.taken = (now, 0);
        }
        let mut answers = Vec::new();
        for _ in 0..TURN {
            if self.taken.1 >= A_SECOND || !self.take(roster, now, &mut answers) {
                break;
            }
            self.taken.1 += 1;
        }
        answers.extend(self.hear_bell());
        answers
    }

    /// Takes one datagram. `false` if there is none.
    fn take(&mut self, roster: &Roster, now: Moment, answers: &mut Answers) -> bool {
        let Some(socket) = &mut self.socket else { return false };
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
                let unanswerable = self.name.why_unexpected(&peer);
                self.clients.polled(pid, Poll { own, job, accepts, unanswerable }, now);
                let place = self.place_of(pid, own);
                let ordered = place.and_then(|place| Some((self.ordered.get_mut(&place)?, place)));
                if let Some((ordered, place)) = ordered {
                    let count = roster.kineto_count(&place.job, place.rank);
                    let before = ordered.standing.clone();
                    if let Some(text) = ordered.instructions(accepts, count, now)
                        && let Some(socket) = &self.socket
                        && socket.send(&peer, &datagram::answer(&text))
                    {
                        ordered.instructed(now);
                        answers.extend(self.changed(&place, roster));
                        return true;
                    }
                    if ordered.standing != before {
                        answers.extend(self.changed(&place, roster));
                    }
                }
                datagram::answer("")
            }
        };
        if let Some(socket) = &self.socket {
            // A client that does not receive the reply polls again.
            socket.send(&peer, &reply);
        }
        true
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
        self.bind_for(roster.living(), now);
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
    use super::*;

    #[test]
    fn a_collector_without_ranks_leaves_the_name_to_others() {
        let name = KinetoName::Abstract(format!("xpu-top-left-{}", std::process::id()).into_bytes());
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let mut first = Kineto::new(name.clone(), at(0));
        let mut second = Kineto::new(name, at(0));
        first.bind_for(0, at(1));
        assert!(first.socket.is_some(), "its ranks may be about to come");
        first.bind_for(2, at(2));
        second.bind_for(2, at(3));
        assert!(first.socket.is_some() && second.socket.is_none());
        first.bind_for(0, at(4));
        second.bind_for(2, at(5));
        assert!(first.socket.is_none() && second.socket.is_some());
        first.bind_for(1, at(6));
        assert!(first.socket.is_none(), "it is the second's");
        second.bind_for(0, at(7));
        first.bind_for(1, at(8));
        assert!(first.socket.is_some());
    }
}
