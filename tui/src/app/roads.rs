//! The ways to the hosts: which are open, which are not, and why.

use std::collections::BTreeMap;

use crate::arrival::{Endpoint, Link};

#[derive(Debug)]
pub struct Roads {
    links: BTreeMap<Endpoint, Link>,
}

/// What the screen as a whole is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No host has answered yet, and none has failed for good.
    Connecting,
    /// No host answers.
    NoAnswer,
    /// Hosts answer, and none has a job.
    NoJob,
    /// Hosts have jobs, but not the one that was asked for.
    OtherJobs,
    /// There is a job to show.
    Running,
}

impl Roads {
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        Self { links: endpoints.into_iter().map(|endpoint| (endpoint, Link::Connecting)).collect() }
    }

    pub fn set(&mut self, endpoint: Endpoint, link: Link) {
        self.links.insert(endpoint, link);
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

    pub(super) fn standing(&self, has_jobs: bool) -> Standing {
        if has_jobs {
            Standing::OtherJobs
        } else if self.up() > 0 {
            Standing::NoJob
        } else if self.down().next().is_some() {
            Standing::NoAnswer
        } else {
            Standing::Connecting
        }
    }
}

#[cfg(test)]
mod tests {
    use xpu_shared::endpoint::BasePort;

    use super::*;

    #[test]
    fn one_host_that_answers_is_more_than_one_that_does_not() {
        let endpoint = |host: &str| Endpoint { host: host.to_owned(), base: BasePort::DEFAULT };
        let mut roads = Roads::new(vec![endpoint("a"), endpoint("b")]);
        assert_eq!(roads.standing(false), Standing::Connecting);
        roads.set(endpoint("a"), Link::Down { why: "refused".to_owned() });
        assert_eq!(roads.standing(false), Standing::NoAnswer);
        roads.set(endpoint("b"), Link::Up);
        assert_eq!(roads.standing(false), Standing::NoJob);
        assert_eq!(roads.standing(true), Standing::OtherJobs);
    }
}
