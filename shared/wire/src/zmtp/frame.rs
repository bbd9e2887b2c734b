//! A frame: flags, a length of one byte or of eight, and that many bytes.

use super::Error;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Command,
    Message { more: bool },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) length: u64,
}

/// The received part of a header.
#[derive(Debug, Default)]
pub(super) struct HeaderBytes {
    flags: Option<u8>,
    length: u64,
    length_bytes: u8,
}

impl HeaderBytes {
    pub(super) fn take(&mut self, byte: u8) -> Result<Option<Header>, Error> {
        let Some(flags) = self.flags else {
            // A command has one frame.
            if byte & !(MORE | LONG | COMMAND) != 0 || byte & (COMMAND | MORE) == COMMAND | MORE {
                return Err(Error::Flags(byte));
            }
            self.flags = Some(byte);
            return Ok(None);
        };
        self.length = self.length << 8 | u64::from(byte);
        self.length_bytes += 1;
        if self.length_bytes < if flags & LONG == 0 { 1 } else { 8 } {
            return Ok(None);
        }
        let kind =
            if flags & COMMAND == 0 { Kind::Message { more: flags & MORE != 0 } } else { Kind::Command };
        Ok(Some(Header { kind, length: self.length }))
    }
}

/// The received bytes after a header: kept, or only counted.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    length: usize,
    left: usize,
    kept: bool,
}

impl Body {
    pub(super) fn new(length: usize, kept: bool) -> Self {
        Self { bytes: Vec::new(), length, left: length, kept }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// Returns the bytes that belong to the next frame.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (ours, rest) = bytes.split_at(bytes.len().min(self.left));
        self.left -= ours.len();
        if self.kept {
            self.make_room(ours.len());
            self.bytes.extend_from_slice(ours);
        }
        rest
    }

    /// Grows to at most twice the received size, never beyond the claimed size.
    fn make_room(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let capacity = needed.max(self.bytes.capacity().saturating_mul(2)).min(self.length);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }
}

pub(super) fn write(kind: Kind, body: &[u8], to: &mut Vec<u8>) {
    let flags = match kind {
        Kind::Command => COMMAND,
        Kind::Message { more } => u8::from(more) * MORE,
    };
    to.reserve(body.len() + 9);
    if let Ok(length) = u8::try_from(body.len()) {
        to.extend([flags, length]);
    } else {
        to.push(flags | LONG);
        to.extend((body.len() as u64).to_be_bytes());
    }
    to.extend_from_slice(body);
}
