//! The messages of viewers: requests to a collector, and the frames that wait in a socket.

use std::time::Duration;

use xpu_wire::{
    codec,
    endpoint::host_name,
    frame::{Body, Frame, Request},
    unit::Moment,
};
use zmq::{DONTWAIT, Socket};

/// Interval of snapshot requests, which show new jobs and ends.
pub const ASK: Duration = Duration::from_secs(2);

/// Frames taken from one socket before others have their turn.
const TURN: usize = 1024;

/// A request as a message for a control socket.
pub fn request(request: Request) -> Vec<u8> {
    let body = Body::Request(request);
    codec::encode(&Frame { host: host_name(), number: 0, now: Moment::now(), lost: 0, body })
}

/// The frames that wait in a viewer's socket, each with its topic, which is empty in a control socket. A frame that
/// does not decode is dropped: its number is missing in its stream, and so counts as lost.
pub fn waiting(socket: &Socket) -> impl Iterator<Item = zmq::Result<(Vec<u8>, Frame)>> {
    let received = (0..TURN).map_while(|_| match socket.recv_multipart(DONTWAIT) {
        Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => None,
        parts => Some(parts),
    });
    received.filter_map(|parts| parts.map(decoded).transpose())
}

fn decoded(mut parts: Vec<Vec<u8>>) -> Option<(Vec<u8>, Frame)> {
    let frame = codec::decode(&parts.pop()?).ok()?;
    Some((parts.pop().unwrap_or_default(), frame))
}
