//! One message of a ROUTER socket: who sent it, and its payload.

use zmq::{DONTWAIT, SNDMORE, Socket};

use crate::{address::Address, roster::Identity};

/// A message as it came. Parts between the sender and the payload are not looked at, so a DEALER with or without a
/// delimiter and a REQ are all understood.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub from: Address,
    pub payload: Vec<u8>,
}

impl Envelope {
    /// The next message that waits, if one does. Holds two parts at most, however many were sent.
    pub(crate) fn receive(socket: &Socket) -> zmq::Result<Option<Self>> {
        let from = match socket.recv_bytes(DONTWAIT) {
            Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => return Ok(None),
            received => Identity(received?),
        };
        let mut payload = Vec::new();
        let mut delimited = false;
        let mut parts = 0_usize;
        while socket.get_rcvmore()? {
            payload = socket.recv_bytes(0)?;
            delimited |= parts == 0 && payload.is_empty();
            parts += 1;
        }
        let from = Address { to: from, delimited: delimited && parts > 1 };
        Ok(Some(Self { from, payload }))
    }
}

/// Sends to one peer of a ROUTER without waiting. A peer that has gone is no error.
pub(crate) fn tell(socket: &Socket, to: &Identity, payload: &[u8]) -> zmq::Result<()> {
    socket.send(&to.0, SNDMORE | DONTWAIT)?;
    socket.send(payload, DONTWAIT)
}
