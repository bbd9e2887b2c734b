//! The first 64 bytes of either side: signature, version, mechanism.

use super::{Error, printable};

const LENGTH: usize = 64;

/// The mechanism's name, after the version, padded with zeros.
const MECHANISM: std::ops::Range<usize> = 12..32;

const NULL: [u8; 20] = *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Signature with the padding that libzmq sends, version 3.1, mechanism NULL, not a server.
pub(super) const OURS: [u8; LENGTH] = {
    let mut bytes = [0; LENGTH];
    bytes[0] = 0xff;
    bytes[8] = 1;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = 1;
    let mut place = 0;
    while place < NULL.len() {
        bytes[MECHANISM.start + place] = NULL[place];
        place += 1;
    }
    bytes
};

/// The received part of the peer's greeting. Each byte is checked on arrival: an older peer sends no more
/// than its version, and waits.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    position: usize,
    mechanism: [u8; 20],
}

impl Greeting {
    /// Whether this was the last byte.
    pub(super) fn take(&mut self, byte: u8) -> Result<bool, Error> {
        match self.position {
            0 if byte != 0xff => return Err(Error::Signature),
            9 if byte != 0x7f => return Err(Error::Signature),
            10 if byte < 3 => return Err(Error::Version(byte)),
            place if MECHANISM.contains(&place) => {
                self.mechanism[place - MECHANISM.start] = byte;
                if place + 1 == MECHANISM.end && self.mechanism != NULL {
                    let name = self.mechanism.split(|byte| *byte == 0).next().unwrap_or(&[]);
                    return Err(Error::Mechanism(printable(name)));
                }
            }
            _ => {}
        }
        self.position += 1;
        Ok(self.position == LENGTH)
    }
}
