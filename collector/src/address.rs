//! The return address of a deferred answer.

use zmq::{DONTWAIT, Socket};

/// A peer's ZeroMQ identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity(pub Vec<u8>);

/// A peer of a ROUTER, and the route of its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub to: Identity,
    /// Message parts between the peer's identity and the payload, which are sent back unchanged: the
    /// delimiter of a REQ, and the viewer behind a relay.
    pub route: Vec<Vec<u8>>,
}

impl Address {
    /// Sends without waiting. A peer that has gone is not an error.
    pub(crate) fn answer(&self, socket: &Socket, payload: &[u8]) -> zmq::Result<()> {
        let route = self.route.iter().map(Vec::as_slice);
        socket.send_multipart([&self.to.0[..]].into_iter().chain(route).chain([payload]), DONTWAIT)
    }
}
