//! Where an answer goes that is not ready yet.

use zmq::{DONTWAIT, Socket};

use crate::roster::Identity;

/// A peer of a ROUTER, and how it wants to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub to: Identity,
    /// What came between the peer and what it said, and goes back so: the delimiter of a REQ, and whom a relay asked for.
    pub route: Vec<Vec<u8>>,
}

impl Address {
    /// Sends without waiting. A peer that has gone is no error.
    pub(crate) fn answer(&self, socket: &Socket, payload: &[u8]) -> zmq::Result<()> {
        let route = self.route.iter().map(Vec::as_slice);
        socket.send_multipart([&self.to.0[..]].into_iter().chain(route).chain([payload]), DONTWAIT)
    }
}
