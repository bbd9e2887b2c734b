//! Commands: a name and its data.

use super::frame::{self, Kind};

/// Bytes of a PING's context that its PONG returns; libzmq, too, cuts longer contexts.
pub(super) const CONTEXT: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Ready {
        socket_type: &'a [u8],
    },
    Error {
        reason: &'a [u8],
    },
    Ping {
        context: &'a [u8],
    },
    /// PONG, and commands of later versions.
    Other,
}

impl<'a> Command<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let (name, rest) = short(body).filter(|(name, _)| !name.is_empty())?;
        Some(match name {
            b"READY" => Self::Ready { socket_type: socket_type(rest)? },
            b"ERROR" => Self::Error { reason: short(rest)?.0 },
            b"PING" => {
                // The first two bytes hold the peer's timeout: it closes the connection itself.
                let (_, context) = rest.split_at_checked(2)?;
                Self::Ping { context: &context[..context.len().min(CONTEXT)] }
            }
            _ => Self::Other,
        })
    }
}

/// The one required property of READY. All properties must be complete.
fn socket_type(mut properties: &[u8]) -> Option<&[u8]> {
    let mut found = None;
    while !properties.is_empty() {
        let (name, rest) = short(properties).filter(|(name, _)| !name.is_empty())?;
        let (length, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            found = Some(value);
        }
        properties = rest;
    }
    found
}

/// The text after a length byte, and the bytes after the text.
fn short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

pub(super) fn ready() -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(Kind::Command, b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER", &mut bytes);
    bytes
}

pub(super) fn pong(context: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(Kind::Command, &[b"\x04PONG", context].concat(), &mut bytes);
    bytes
}
