//! Where an answer goes that is not ready yet.

use zmq::{DONTWAIT, SNDMORE, Socket};

use crate::roster::Identity;

/// A peer of a ROUTER, and how it wants to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub to: Identity,
    /// A REQ sends an empty part first and wants it back.
    pub delimited: bool,
}

impl Address {
    /// Sends without waiting. A peer that has gone is no error.
    pub(crate) fn answer(&self, socket: &Socket, payload: &[u8]) -> zmq::Result<()> {
        socket.send(&self.to.0, SNDMORE | DONTWAIT)?;
        if self.delimited {
            socket.send(&[][..], SNDMORE | DONTWAIT)?;
        }
        socket.send(payload, DONTWAIT)
    }
}
