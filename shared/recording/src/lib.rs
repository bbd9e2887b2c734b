//! A recording: the wire's own frames in a file, each with its arrival time. `docs/recording-format.md`
//! describes the format for other languages.
//!
//! ```text
//! magic, version, header as text │ block │ block │ ... │ index │ trailer
//! ```
//!
//! Frames are in compressed blocks, at least one a second. A block carries its own length and checksums, so a
//! file that was cut short can be read up to its last whole block, and a damaged file around the damage. The
//! index at the end only saves a search for the blocks, which can also be found by their headers. Written
//! data is never overwritten.

mod block;
mod frame_cursor;
mod header;
mod index;
mod media;
mod packer;
mod reader;
mod ring;
mod writer;

pub use block::{Block, Entry, Kind, Record, SealedBlock};
pub use frame_cursor::FrameCursor;
pub use header::Header;
pub use media::{Media, Place};
pub use packer::Packer;
pub use reader::{Damage, Recording, RecordingError, Span};
pub use ring::Ring;
pub use writer::{Totals, Writer};

/// First bytes of every recording. The first byte is not ASCII and the last one ends a line, so damage by a
/// transfer in text mode is detected.
pub const MAGIC: [u8; 8] = *b"\x89xpurec\n";

/// Version of the container. The frames carry their own.
pub const VERSION: u16 = 1;

/// A block is closed when it holds this many bytes of frames, or after a second.
const FULL: usize = 1 << 20;

/// Largest size that a block may claim: one frame of the largest size fits, and a hostile file cannot claim
/// more memory.
pub const LARGEST_BLOCK: usize = 16 << 20;

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}

#[cfg(test)]
mod tests;
