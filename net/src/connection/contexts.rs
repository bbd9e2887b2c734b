//! ZeroMQ contexts for many hosts: each takes a limited number of sockets.

use zmq::{Context, Socket};

use crate::{key::Key, socket};

/// Sockets in one ZeroMQ context, which can hold 1023.
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
        // Each host takes three descriptors: the usual soft limit of 1024 suffices for only 300 hosts.
        socket::raise_descriptor_limit(hosts * 4 + 256);
        Self { key, current: Context::new(), made: 0 }
    }

    pub fn make(
        &mut self,
        kind: impl Fn(&Context, Option<&Key>) -> zmq::Result<Socket>,
    ) -> zmq::Result<Socket> {
        if self.made == SOCKETS {
            // The old context stays alive, because its sockets hold it.
            (self.current, self.made) = (Context::new(), 0);
        }
        self.made += 1;
        kind(&self.current, self.key.as_ref())
    }
}
