//! One message of a ROUTER socket: its sender and its payload.

use zmq::{DONTWAIT, SNDMORE, Socket};

use crate::address::{Address, Identity};

/// Parts between the peer and the payload: a relay adds one, a REQ one.
const LONGEST_ROUTE: usize = 8;

/// Longest of these parts: ZeroMQ's identities are no longer.
const LARGEST_PART: usize = 255;

/// A message as received. Parts between the sender and the payload are sent back unchanged, so a DEALER with
/// or without a delimiter, a REQ, and both behind relays all work.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub from: Address,
    pub payload: Vec<u8>,
}

impl Envelope {
    /// The next waiting message, if any. Keeps only few and small parts, however many were sent.
    pub(crate) fn receive(socket: &Socket) -> zmq::Result<Option<Self>> {
        let to = match socket.recv_bytes(DONTWAIT) {
            Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => return Ok(None),
            received => Identity(received?),
        };
        let (mut route, mut payload) = (Vec::new(), None);
        while socket.get_rcvmore()? {
            let part = socket.recv_bytes(0)?;
            if let Some(before) = payload.replace(part)
                && route.len() < LONGEST_ROUTE
                && before.len() <= LARGEST_PART
            {
                route.push(before);
            }
        }
        Ok(Some(Self { from: Address { to, route }, payload: payload.unwrap_or_default() }))
    }
}

/// Sends to one peer of a ROUTER without waiting. A peer that has gone is not an error.
pub(crate) fn send(socket: &Socket, to: &Identity, payload: &[u8]) -> zmq::Result<()> {
    socket.send(&to.0, SNDMORE | DONTWAIT)?;
    socket.send(payload, DONTWAIT)
}
