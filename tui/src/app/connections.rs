//! The connections to the hosts: which are open, which are not, and why.

use std::{collections::BTreeMap, mem::discriminant};

use xpu_client::arrival::{Endpoint, Link};
use xpu_wire::{id::HostName, unit::Moment};

#[derive(Debug)]
pub struct Connections {
    links: BTreeMap<Endpoint, Link>,
    /// The moment since which each connection has its state.
    since: BTreeMap<Endpoint, Moment>,
    /// The hosts' own names, which may differ from the names given.
    names: BTreeMap<Endpoint, HostName>,
}

/// The situation that the screen as a whole shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenState {
    /// No host has answered yet, and none has failed for good.
    Connecting,
    /// No host answers.
    NoAnswer,
    /// Hosts answer, and none has a job.
    NoJob,
    /// Hosts have jobs, but not the requested one.
    OtherJobs,
    /// There is a job to show.
    Running,
}

impl Connections {
    pub fn new(endpoints: Vec<Endpoint>, now: Moment) -> Self {
        let since = endpoints.iter().map(|endpoint| (endpoint.clone(), now)).collect();
        let links = endpoints.into_iter().map(|endpoint| (endpoint, Link::Connecting)).collect();
        Self { links, since, names: BTreeMap::new() }
    }

    pub fn set(&mut self, endpoint: Endpoint, link: Link, now: Moment) {
        let before = self.links.insert(endpoint.clone(), link.clone());
        if before.is_none_or(|before| discriminant(&before) != discriminant(&link)) {
            self.since.insert(endpoint, now);
        }
    }

    /// Notes the host's own name.
    pub fn call(&mut self, endpoint: Endpoint, name: HostName) {
        self.names.insert(endpoint, name);
    }

    pub fn name(&self, endpoint: &Endpoint) -> Option<&HostName> {
        self.names.get(endpoint)
    }

    /// The time of the connection's last state change.
    pub fn since(&self, endpoint: &Endpoint) -> Option<Moment> {
        self.since.get(endpoint).copied()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Endpoint, &Link)> {
        self.links.iter()
    }

    pub fn down(&self) -> impl Iterator<Item = (&Endpoint, &str)> {
        self.links.iter().filter_map(|(endpoint, link)| match link {
            Link::Down { why } => Some((endpoint, why.as_str())),
            Link::Connecting | Link::Up => None,
        })
    }

    pub fn up(&self) -> usize {
        self.links.values().filter(|link| **link == Link::Up).count()
    }

    pub(super) fn screen_state(&self, has_jobs: bool) -> ScreenState {
        if has_jobs {
            ScreenState::OtherJobs
        } else if self.up() > 0 {
            ScreenState::NoJob
        } else if self.down().next().is_some() {
            ScreenState::NoAnswer
        } else {
            ScreenState::Connecting
        }
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::endpoint::BasePort;

    use super::*;

    #[test]
    fn a_connected_host_takes_precedence_over_a_silent_one() {
        let endpoint = |host: &str| Endpoint { host: host.to_owned(), base: BasePort::DEFAULT, ssh: None };
        let mut connections = Connections::new(vec![endpoint("a"), endpoint("b")], Moment(0));
        assert_eq!(connections.screen_state(false), ScreenState::Connecting);
        connections.set(endpoint("a"), Link::Down { why: "refused".to_owned() }, Moment(3));
        assert_eq!(connections.screen_state(false), ScreenState::NoAnswer);
        connections.set(endpoint("a"), Link::Down { why: "no answer".to_owned() }, Moment(5));
        assert_eq!(connections.since(&endpoint("a")), Some(Moment(3)), "it is down all the time");
        connections.set(endpoint("b"), Link::Up, Moment(7));
        assert_eq!(connections.since(&endpoint("b")), Some(Moment(7)));
        assert_eq!(connections.screen_state(false), ScreenState::NoJob);
        assert_eq!(connections.screen_state(true), ScreenState::OtherJobs);
    }
}
