//! The daemon that PyTorch's profiler, Kineto, polls, and the traces requested from ranks through it.
//!
//! ```text
//! rank: Kineto ──request, every 5 s──▶ Socket ──▶ Clients ─┐
//!              ◀───────config────────        ◀── Ordered ◀┴── Request::Kineto ── viewer
//!              ──file──▶ Place ──▶ Reading ──KinetoPart──────────────────────▶
//! ```
//!
//! A program polls only if it was started with `KINETO_USE_DAEMON=1`. Nothing is ever sent except in answer
//! to a poll.

mod clients;
mod config;
mod datagram;
mod order;
mod scan;
mod socket;
mod trace;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, PipeReader, PipeWriter, Read as _},
    os::fd::{AsRawFd as _, RawFd},
    time::Duration,
};

use clients::Clients;
use datagram::Message;
use order::{Known, Ordered};
use xpu_wire::{
    endpoint::user_id,
    frame::{Body, KinetoOrder, KinetoRank, KinetoStanding, KinetoWish},
    id::{JobName, Pid, Rank},
    ledger::KinetoCount,
    unit::Moment,
};

use crate::{address::Address, complaint::Complaints, roster::Roster};
pub use socket::KinetoName;
use socket::{Received, Socket};
use trace::Place;

/// Interval of attempts to bind a name that another daemon has.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Datagrams taken before other sockets have their turn, and in a second. A thousand ranks send two hundred.
const TURN: u32 = 64;
const A_SECOND: u32 = 2000;
const SECOND: Duration = Duration::from_secs(1);

/// Traces read at the same time, each by a thread.
const AT_ONCE: usize = 4;

/// A rank, as its hook describes it.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub rank: Rank,
    pub pid: Pid,
    pub lives: bool,
    pub count: Option<KinetoCount>,
}

/// Answers and their recipients.
pub(crate) type Told = Vec<(Address, Body)>;

type Bell = (PipeReader, PipeWriter);

#[derive(Debug)]
pub(crate) struct Kineto {
    name: KinetoName,
    socket: Option<Socket>,
    tried: Option<Moment>,
    clients: Clients,
    ordered: BTreeMap<(JobName, Rank), Ordered>,
    /// Parts requested while too many traces are read, by rank.
    queue: BTreeMap<(JobName, Rank), u32>,
    /// The reading threads ring it; made when the first starts.
    bell: Option<Bell>,
    /// Datagrams taken in the second that began then.
    taken: (Moment, u32),
    complaints: Complaints,
}

impl Kineto {
    pub(crate) fn new(name: KinetoName, now: Moment) -> Self {
        let mut new = Self {
            name,
            socket: None,
            tried: None,
            clients: Clients::default(),
            ordered: BTreeMap::new(),
            queue: BTreeMap::new(),
            bell: None,
            taken: (now, 0),
            complaints: Complaints::default(),
        };
        new.bind(now);
        new
    }

    /// Binds the name, if it is free. A taken name is logged once.
    fn bind(&mut self, now: Moment) {
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
                        "{name} is too long: Kineto's clients put their own sockets into that folder, whose path may have 53 letters"
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

    /// What to poll for. A flood stays in the socket until its second is over.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let socket = self.socket.as_ref().filter(|_| self.taken.1 < A_SECOND).map(Socket::descriptor);
        let bell = self.bell.as_ref().map(|(heard, _)| heard.as_raw_fd());
        socket.into_iter().chain(bell)
    }

    /// Answers polls, and sends awaited parts. Never blocks.
    pub(crate) fn turn(&mut self, roster: &Roster, now: Moment) -> Told {
        if now.since(self.taken.0) >= SECOND || now < self.taken.0 {
            self.taken = (now, 0);
        }
        let mut told = Vec::new();
        for _ in 0..TURN {
            if self.taken.1 >= A_SECOND || !self.take(roster, now, &mut told) {
                break;
            }
            self.taken.1 += 1;
        }
        told.extend(self.hear_bell());
        told
    }

    /// Takes one datagram. `false` if there is none.
    fn take(&mut self, roster: &Roster, now: Moment, told: &mut Told) -> bool {
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
            // Another user's program gets an empty answer at once: otherwise it would wait for one.
            Ok(Message::Request { .. }) if !is_ours => datagram::answer(""),
            Ok(Message::Context { job, .. }) => {
                let count = if is_ours { self.clients.of_job(job).max(1) } else { 1 };
                datagram::instances(i32::try_from(count).unwrap_or(i32::MAX))
            }
            Ok(Message::Request { accepts, job, pids }) => {
                let own = Pid(pids.first().map_or(0, |&pid| pid.unsigned_abs()));
                self.clients.polled(pid, own, job, accepts, now);
                let place = self.place_of(pid, own);
                let ordered = place.and_then(|place| Some((self.ordered.get_mut(&place)?, place)));
                if let Some((ordered, place)) = ordered {
                    let count = roster.kineto_count(&place.0, place.1);
                    let before = ordered.standing.clone();
                    if let Some(text) = ordered.tell(accepts, count, now)
                        && let Some(socket) = &self.socket
                        && socket.send(&peer, &datagram::answer(&text))
                    {
                        ordered.told(now);
                        told.extend(self.changed(&place, roster));
                        return true;
                    }
                    if ordered.standing != before {
                        told.extend(self.changed(&place, roster));
                    }
                }
                datagram::answer("")
            }
        };
        if let Some(socket) = &self.socket {
            // A client that does not receive it polls again.
            socket.send(&peer, &reply);
        }
        true
    }

    /// The rank whose order a polling process gets: the rank must be this very process.
    fn place_of(&self, pid: u32, own: Pid) -> Option<(JobName, Rank)> {
        let is_its = |ordered: &&Ordered| {
            ordered.pid == own && self.clients.of(own).is_some_and(|(here, _)| here == pid)
        };
        self.ordered.iter().find(|(_, ordered)| is_its(ordered)).map(|(place, _)| place.clone())
    }

    fn changed(&self, place: &(JobName, Rank), roster: &Roster) -> Option<(Address, Body)> {
        let ordered = self.ordered.get(place)?;
        let count = roster.kineto_count(&place.0, place.1);
        Some((ordered.viewer.clone(), Body::Kineto(self.of_order(place, ordered, count))))
    }

    fn of_order(
        &self,
        (job, rank): &(JobName, Rank),
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
            clock_offset: ordered.offset,
        }
    }

    /// Checks the orders.
    pub(crate) fn check(&mut self, roster: &Roster, now: Moment) -> Told {
        self.bind(now);
        self.clients.forget(now);
        self.ordered.retain(|_, ordered| !ordered.is_forgotten(now));
        let mut changed = Vec::new();
        for (place, ordered) in &mut self.ordered {
            let known = Known {
                lives: roster.lives_as(&place.0, place.1, ordered.pid),
                client: self.clients.of(ordered.pid).map(|(_, client)| client),
                count: roster.kineto_count(&place.0, place.1),
                now,
            };
            if ordered.check(known) {
                changed.push(place.clone());
            }
        }
        let mut told: Told = changed.iter().filter_map(|place| self.changed(place, roster)).collect();
        told.extend(self.serve_queue());
        told
    }

    /// Takes a viewer's request for these ranks, and returns the immediate answers. `offset`: how far its
    /// clock is behind.
    pub(crate) fn wish(
        &mut self,
        (job, subjects): (&JobName, Vec<Subject>),
        wish: &KinetoWish,
        viewer: &Address,
        (now, offset): (Moment, i64),
    ) -> Vec<Body> {
        let mut answers = Vec::new();
        for subject in subjects {
            let place = (job.clone(), subject.rank);
            match wish {
                KinetoWish::Tell => answers.push(Body::Kineto(self.of_none(job, &subject, 0, offset))),
                KinetoWish::Trace(order) => {
                    let rank = self.trace(&place, &subject, order, viewer, (now, offset));
                    answers.push(Body::Kineto(rank));
                }
                KinetoWish::Part { number, part } => {
                    if let Some(ordered) = self.of_number(&place, *number) {
                        ordered.touch(viewer, now);
                        answers.extend(self.part(&place, *part));
                    }
                }
                KinetoWish::End { number } => self.end(&place, *number),
            }
        }
        answers
    }

    fn of_number(&mut self, place: &(JobName, Rank), number: u64) -> Option<&mut Ordered> {
        self.ordered.get_mut(place).filter(|ordered| ordered.order.number == number)
    }

    fn of_none(&self, job: &JobName, subject: &Subject, number: u64, clock_offset: i64) -> KinetoRank {
        let client = self.clients.of(subject.pid).map(|(_, client)| client);
        let standing = match client {
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
        if self.name == KinetoName::Off {
            return format!("its host's collector was started with {}=off", KinetoName::VARIABLE);
        }
        if self.socket.is_none() {
            return format!(
                "another daemon has {} on its host (dynolog, or another user's collector): end it, or use it",
                self.name.shown()
            );
        }
        if fs::metadata(format!("/proc/{pid}/environ")).is_ok()
            && trace::variable(pid, "KINETO_USE_DAEMON").is_none()
        {
            return "its process was started without KINETO_USE_DAEMON=1: start it with `xpu-top run`, without --no-kineto"
                .to_owned();
        }
        if has_torch(pid) == Some(false) {
            return "its process has loaded no PyTorch".to_owned();
        }
        "its PyTorch sent no request: it sends one every 5 s if it is 2.7 or newer, with the KINETO_IPC_SOCKET_DIR that the collector was started with"
            .to_owned()
    }

    fn trace(
        &mut self,
        place: &(JobName, Rank),
        subject: &Subject,
        order: &KinetoOrder,
        viewer: &Address,
        (now, offset): (Moment, i64),
    ) -> KinetoRank {
        if let Some(ordered) = self.of_number(place, order.number) {
            ordered.touch(viewer, now);
            let ordered = &self.ordered[place];
            return self.of_order(place, ordered, subject.count);
        }
        let none = self.of_none(&place.0, subject, order.number, offset);
        if matches!(none.standing, KinetoStanding::Unregistered { .. }) {
            return none;
        }
        if self.ordered.get(place).is_some_and(|ordered| !ordered.gives_way(now)) {
            let why = "another trace is running there: try again when it has ended".to_owned();
            return KinetoRank { standing: KinetoStanding::Refused { why }, ..none };
        }
        let Some((pid, _)) = self.clients.of(subject.pid) else { return none };
        // An unpredictable name: /tmp is shared by all users.
        let stem = format!("xpu-top-kineto-{:016x}-rank{}", order.number, subject.rank.0);
        let target = Place::of(pid, subject.pid.0, user_id(), &stem);
        let ordered = Ordered::new(order.clone(), viewer.clone(), (subject.pid, target), (now, offset));
        let rank = self.of_order(place, &ordered, subject.count);
        self.queue.remove(place);
        self.ordered.insert(place.clone(), ordered);
        rank
    }

    /// The order is no longer wanted. A trace that Kineto was asked for is awaited, and then removed.
    fn end(&mut self, place: &(JobName, Rank), number: u64) {
        self.queue.remove(place);
        let ended = self.of_number(place, number).is_some_and(Ordered::abandon);
        if ended {
            self.ordered.remove(place);
        }
    }

    /// A part, if it is here and not too many others are read.
    fn part(&mut self, place: &(JobName, Rank), part: u32) -> Option<Body> {
        let at_once = self.ordered.values().filter(|ordered| ordered.is_being_read()).count();
        let ordered = self.ordered.get_mut(place)?;
        if !ordered.is_there() {
            return None;
        }
        if part == 0 && !ordered.is_being_read() && at_once >= AT_ONCE {
            self.queue.insert(place.clone(), part);
            return None;
        }
        if self.bell.is_none() {
            self.bell = make_bell()
                .inspect_err(|error| tracing::warn!("cannot make a pipe to read traces: {error}"))
                .ok();
        }
        let bell = match &self.bell {
            Some((_, bell)) => bell.try_clone(),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        ordered.part(part, (&place.0, place.1), || bell).map(Body::KinetoPart)
    }

    fn hear_bell(&mut self) -> Told {
        let Some((heard, _)) = &mut self.bell else { return Vec::new() };
        let mut rings = [0; 256];
        if !matches!(heard.read(&mut rings), Ok(1..)) {
            return Vec::new();
        }
        let awaited: Vec<_> = self
            .ordered
            .iter()
            .filter_map(|(place, ordered)| Some((place.clone(), ordered.viewer.clone(), ordered.awaited()?)))
            .collect();
        let mut told = Vec::new();
        for (place, viewer, part) in awaited {
            told.extend(self.part(&place, part).map(|body| (viewer, body)));
        }
        told.extend(self.serve_queue());
        told
    }

    /// Starts the ones that had to wait.
    fn serve_queue(&mut self) -> Told {
        let mut told = Vec::new();
        for (place, part) in std::mem::take(&mut self.queue) {
            let Some(viewer) = self.ordered.get(&place).map(|ordered| ordered.viewer.clone()) else {
                continue;
            };
            told.extend(self.part(&place, part).map(|body| (viewer, body)));
        }
        told
    }
}

fn make_bell() -> io::Result<Bell> {
    let (heard, bell) = io::pipe()?;
    // SAFETY: changes the flags of a descriptor this process owns.
    match unsafe { libc::fcntl(heard.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        0 => Ok((heard, bell)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether PyTorch's library is mapped there; `None` if that cannot be seen.
fn has_torch(pid: u32) -> Option<bool> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    Some(memchr::memmem::find(&maps, b"/libtorch_cpu.so").is_some())
}
