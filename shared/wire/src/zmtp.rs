//! One end of a ZMTP 3.1 connection (rfc.zeromq.org/spec/37), without I/O: DEALER, mechanism NULL.
//!
//! A training process uses it to reach its collector: bytes in, bytes out, no thread, no clock, no libzmq.
//! Nothing a peer sends makes it panic or hold more than its limits; memory is allocated for received bytes,
//! never for a claimed length.
//!
//! ```text
//! greeting ──▶ READY ──▶ messages, PING, PONG
//! ```

mod command;
mod frame;
mod greeting;
mod outbox;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, mem};

use command::Command;
use frame::{Body, Header, HeaderBytes, Kind};
use greeting::Greeting;
use outbox::Outbox;

/// Messages that wait for [`Dealer::message`]; further ones are dropped and counted.
pub const MESSAGES: usize = 1_024;

/// Waiting messages hold at most this multiple of the largest message.
pub const MESSAGES_OF_LARGEST: usize = 4;

/// The largest command that is read: READY has a line or two, and the peer's own properties.
pub const LARGEST_COMMAND: usize = 16 * 1024;

/// Socket types that a DEALER may talk to.
const PEERS: [&[u8]; 3] = [b"ROUTER", b"DEALER", b"REP"];

/// Why a connection ended. Text quoted from the peer is printable ASCII, at most 255 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the peer does not speak ZMTP")]
    Signature,
    #[error("the peer speaks ZMTP {0}; only ZMTP 3 is supported")]
    Version(u8),
    #[error("the peer asks for the mechanism `{0}`; only NULL is supported")]
    Mechanism(String),
    #[error("the peer is a `{0}` socket, which cannot be connected to a DEALER")]
    SocketType(String),
    #[error("the peer refuses the connection: {0}")]
    Refused(String),
    #[error("a frame of the peer has the flags {0:#04x}, which ZMTP 3.1 does not know")]
    Flags(u8),
    #[error("the peer sends {length} bytes at once, but at most {largest} are accepted")]
    TooLong { length: u64, largest: usize },
    #[error("a command of the peer does not follow ZMTP 3.1")]
    Command,
    #[error("the peer sends a message before its READY command")]
    Early,
}

#[derive(Debug)]
pub struct Dealer {
    largest: usize,
    stage: Stage,
    reading: Reading,
    /// Length so far of a multipart message, until its last part arrives.
    parts: Option<usize>,
    inbox: VecDeque<Vec<u8>>,
    inbox_bytes: usize,
    dropped: u64,
    outbox: Outbox,
    /// Frames queued before the peer was ready.
    early: Vec<u8>,
}

#[derive(Debug)]
enum Stage {
    Handshake,
    Ready,
    Over(Error),
}

/// The part to which the next byte belongs.
#[derive(Debug)]
enum Reading {
    Greeting(Greeting),
    Header(HeaderBytes),
    Body(Header, Body),
}

impl Dealer {
    /// A new connection, with its greeting ready to send. A peer's message longer than `largest` bytes ends
    /// the connection.
    pub fn new(largest: usize) -> Self {
        let mut outbox = Outbox::default();
        outbox.queue(&greeting::OURS);
        Self {
            largest,
            stage: Stage::Handshake,
            reading: Reading::Greeting(Greeting::default()),
            parts: None,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            dropped: 0,
            outbox,
            early: Vec::new(),
        }
    }

    /// Takes in what the peer sent, in pieces of any size. After an error the caller closes the connection;
    /// nothing more is read, and the same error is returned again.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Stage::Over(error) = &self.stage {
            return Err(error.clone());
        }
        self.read(bytes).inspect_err(|error| {
            self.stage = Stage::Over(error.clone());
            self.reading = Reading::Header(HeaderBytes::default());
            self.early = Vec::new();
        })
    }

    /// The next whole message of the peer, oldest first. Multipart messages are dropped. So are messages that
    /// arrive while [`MESSAGES`] messages wait, or as many bytes as [`MESSAGES_OF_LARGEST`] of the largest
    /// message. [`Dealer::dropped`] counts both.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        let message = self.inbox.pop_front()?;
        self.inbox_bytes -= message.len();
        Some(message)
    }

    /// Messages of the peer that [`Dealer::message`] never returned.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The handshake is complete: messages can be sent.
    pub fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    /// Queues one single-part message behind the unsent bytes; the caller bounds their growth. Messages sent
    /// before both sides are ready become unsent bytes once both are; after an error, no message does.
    pub fn send(&mut self, message: &[u8]) {
        match self.stage {
            Stage::Handshake => frame::write(Kind::Message { more: false }, message, &mut self.early),
            Stage::Ready => self.outbox.queue_message(message),
            Stage::Over(_) => {}
        }
    }

    /// Bytes to write to the peer now.
    pub fn unsent(&self) -> &[u8] {
        self.outbox.unsent()
    }

    /// Removes `count` bytes that the caller has written.
    pub fn written(&mut self, count: usize) {
        self.outbox.written(count);
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let [first, rest @ ..] = bytes {
            match &mut self.reading {
                Reading::Greeting(greeting) => {
                    bytes = rest;
                    if greeting.take(*first)? {
                        self.outbox.queue(&command::ready());
                        self.reading = Reading::Header(HeaderBytes::default());
                    }
                }
                Reading::Header(header) => {
                    bytes = rest;
                    if let Some(header) = header.take(*first)? {
                        self.begin(header)?;
                    }
                }
                Reading::Body(_, body) => bytes = body.take(bytes),
            }
            self.finish()?;
        }
        Ok(())
    }

    /// Handles the header of a frame: a forbidden or too long one ends the connection before any of its body
    /// is kept.
    fn begin(&mut self, header: Header) -> Result<(), Error> {
        let (before, largest) = match header.kind {
            Kind::Command => (0, LARGEST_COMMAND),
            Kind::Message { .. } if !self.is_ready() => return Err(Error::Early),
            Kind::Message { .. } => (self.parts.unwrap_or(0), self.largest),
        };
        let length = header.length.saturating_add(before as u64);
        if length > largest as u64 {
            return Err(Error::TooLong { length, largest });
        }
        let kept = match header.kind {
            Kind::Command => true,
            Kind::Message { more } => !more && self.parts.is_none(),
        };
        // Not longer than `largest`, which is a usize.
        let body = Body::new(header.length as usize, kept);
        self.reading = Reading::Body(header, body);
        Ok(())
    }

    /// Takes a completed frame, if there is one.
    fn finish(&mut self) -> Result<(), Error> {
        let Reading::Body(header, body) = &mut self.reading else { return Ok(()) };
        if !body.is_whole() {
            return Ok(());
        }
        let (header, body) = (*header, mem::take(&mut body.bytes));
        self.reading = Reading::Header(HeaderBytes::default());
        match header.kind {
            Kind::Command => self.handle_command(&body)?,
            Kind::Message { more: true } => {
                let before = self.parts.unwrap_or(0);
                self.parts = Some(before.saturating_add(header.length as usize));
            }
            Kind::Message { more: false } => match self.parts.take() {
                Some(_) => self.dropped += 1,
                None => self.keep(body),
            },
        }
        Ok(())
    }

    fn keep(&mut self, message: Vec<u8>) {
        let bytes = self.inbox_bytes.saturating_add(message.len());
        if self.inbox.len() >= MESSAGES || bytes > self.largest.saturating_mul(MESSAGES_OF_LARGEST) {
            self.dropped += 1;
        } else {
            self.inbox_bytes = bytes;
            self.inbox.push_back(message);
        }
    }

    fn handle_command(&mut self, body: &[u8]) -> Result<(), Error> {
        match Command::parse(body).ok_or(Error::Command)? {
            Command::Ready { socket_type } => {
                if !PEERS.contains(&socket_type) {
                    return Err(Error::SocketType(printable(socket_type)));
                }
                self.stage = Stage::Ready;
                self.outbox.queue(&mem::take(&mut self.early));
            }
            Command::Error { reason } => return Err(Error::Refused(printable(reason))),
            Command::Ping { context } => self.outbox.pong(context),
            Command::Other => {}
        }
        Ok(())
    }
}

/// The peer's text, safe for a log.
fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
    bytes.iter().take(255).map(shown).collect()
}
