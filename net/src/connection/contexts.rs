//! ZeroMQ contexts for many hosts: each takes a limited number of sockets.

use zmq::{Context, Socket};

use crate::{key::Key, socket};

/// Sockets in one ZeroMQ context, which takes 1023.
const SOCKETS: usize = 1000;

/// ZeroMQ contexts, as many as the sockets need.
#[allow(missing_debug_implementations, reason = "a ZeroMQ context prints nothing")]
pub struct Contexts {
    key: Option<Key>,
    current: Context,
    made: usize,
}

impl Contexts {
    pub fn new(key: Option<Key>, hosts: usize) -> Self {
        // Each host takes three; the usual soft limit of 1024 would suffice for only 300 hosts.
        socket::raise_descriptor_limit(hosts * 4 + 256);
        Self { key, current: Context::new(), made: 0 }
    }

    pub fn make(
        &mut self,
        kind: impl Fn(&Context, Option<&Key>) -> zmq::Result<Socket>,
    ) -> zmq::Result<Socket> {
        if self.made == SOCKETS {
            // The old context lives on, because sockets keep their context alive.
            (self.current, self.made) = (Context::new(), 0);
        }
        self.made += 1;
        kind(&self.current, self.key.as_ref())
    }
}
