//! The processes whose Kineto polls.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{
    id::Pid,
    unit::{Moment, Nanoseconds},
};

use super::Which;

/// Processes remembered. A host has tens: ranks, and workers that load PyTorch themselves.
const REMEMBERED: usize = 1024;

/// A process that has not polled for this time has ended, or is stopped. Kineto polls every five seconds.
const FORGOTTEN: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    /// Its process id in its own namespace, which differs from the id here in a container.
    pub own: Pid,
    pub job: i64,
    /// When it last polled, and the time since the previous poll.
    pub polled: Moment,
    pub every: Option<Nanoseconds>,
    /// Whether it accepts an order: no trace is in progress there.
    pub accepts: bool,
    /// Why the client cannot be answered.
    pub unanswerable: Option<String>,
    /// The listener that it polls.
    pub at: Which,
}

/// A poll, as in [`Client`].
#[derive(Debug)]
pub(super) struct Poll {
    pub own: Pid,
    pub job: i64,
    pub accepts: bool,
    pub unanswerable: Option<String>,
    pub at: Which,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    /// The clients by their process id in this namespace, which the kernel reports.
    known: BTreeMap<u32, Client>,
}

impl Clients {
    /// Takes a poll of the process `pid`.
    pub(super) fn polled(&mut self, pid: u32, poll: Poll, now: Moment) {
        let Poll { own, job, accepts, unanswerable, at } = poll;
        let before = self.known.get(&pid).filter(|known| known.own == own);
        let every = before.map(|known| Nanoseconds::from(now.since(known.polled)));
        if !self.known.contains_key(&pid) && self.known.len() >= REMEMBERED {
            self.forget_oldest();
        }
        self.known.insert(pid, Client { own, job, polled: now, every, accepts, unanswerable, at });
    }

    fn forget_oldest(&mut self) {
        let oldest = self.known.iter().min_by_key(|(_, client)| client.polled).map(|(&pid, _)| pid);
        if let Some(oldest) = oldest {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn forget(&mut self, now: Moment) {
        self.known.retain(|_, client| now.since(client.polled) < FORGOTTEN);
    }

    /// Forgets the clients of a listener that lost its name: they poll another daemon now.
    pub(super) fn forget_those_of(&mut self, listener: Which) {
        self.known.retain(|_, client| client.at != listener);
    }

    pub(super) fn of_job(&self, job: i64) -> usize {
        self.known.values().filter(|client| client.job == job).count()
    }

    /// The client whose own process id is `own`, and its process id here. `None` if processes in two
    /// containers have this id.
    pub(super) fn of(&self, own: Pid) -> Option<(u32, &Client)> {
        if let Some(client) = self.known.get(&own.0).filter(|client| client.own == own) {
            return Some((own.0, client));
        }
        let mut same = self.known.iter().filter(|(_, client)| client.own == own);
        let found = same.next().map(|(&pid, client)| (pid, client));
        found.filter(|_| same.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn poll(own: u32, accepts: bool) -> Poll {
        Poll { own: Pid(own), job: 0, accepts, unanswerable: None, at: Which::Shared }
    }

    #[test]
    fn a_rank_in_a_container_is_found_by_its_own_number_unless_two_have_it() {
        let mut clients = Clients::default();
        clients.polled(5001, poll(7, true), at(1));
        assert_eq!(clients.of(Pid(7)).map(|(pid, _)| pid), Some(5001));
        clients.polled(7, poll(7, true), at(1));
        assert_eq!(clients.of(Pid(7)).map(|(pid, _)| pid), Some(7), "that of this host comes first");
        clients.polled(5002, poll(8, true), at(1));
        clients.polled(5003, poll(8, true), at(1));
        assert_eq!(clients.of(Pid(8)), None);
    }

    #[test]
    fn silent_clients_are_forgotten_and_their_number_is_limited() {
        let mut clients = Clients::default();
        for pid in 0..2000 {
            clients.polled(pid, poll(pid, true), at(100 + u64::from(pid)));
        }
        assert_eq!(clients.known.len(), REMEMBERED);
        assert_eq!(clients.of(Pid(0)), None);
        clients.polled(1999, poll(1999, false), at(2104));
        let (_, last) = clients.of(Pid(1999)).unwrap();
        assert_eq!((last.every, last.accepts), (Some(Nanoseconds(5_000_000_000)), false));
        clients.forget(at(2160));
        assert_eq!(clients.known.len(), 1);
    }
}
