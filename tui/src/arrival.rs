//! What comes in from outside, whoever it comes from: a live job or a recording.

use std::fmt;

use tokio::sync::mpsc;
use xpu_shared::{endpoint::BasePort, frame::Frame, id::HostName};

/// Arrivals that may wait for the screen: a source that finds the queue full drops and counts.
pub const QUEUE: usize = 4096;

/// source --Arrival--> watch, status, demo
pub type Arrivals = mpsc::Receiver<Arrival>;

#[derive(Clone, Debug)]
pub enum Arrival {
    Frame(Box<Frame>),
    /// The way to one host changed.
    Link(Endpoint, Link),
    /// What the collector there calls its host.
    Name(Endpoint, HostName),
}

/// A collector as it was named in the hosts file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub host: String,
    pub base: BasePort,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.base == BasePort::DEFAULT {
            f.write_str(&self.host)
        } else {
            write!(f, "{}:{}", self.host, self.base.0)
        }
    }
}

/// Whether a host's collector answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    Connecting,
    Up,
    /// It does not answer. `why` says what was tried and what to do.
    Down {
        why: String,
    },
}
