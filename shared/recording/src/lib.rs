//! A recording: the wire's own frames in a file, each with the moment it came in. `docs/recording-format.md` describes the same
//! for other languages.
//!
//! ```text
//! magic, version, header as text │ block │ block │ ... │ index │ trailer
//! ```
//!
//! Frames stand in compressed blocks, at least one a second. A block carries its own length and checksums, so a file that was cut
//! short is read up to its last whole block, and one that was damaged is read around the damage. The index at the end only saves
//! looking for the blocks: without it they are found by their headers. Nothing that was written is ever written again.

mod block;
mod header;
mod index;
mod media;
mod packer;
mod reader;
mod ring;
mod writer;

pub use block::{Block, Entry, Kind, Record, SealedBlock};
pub use header::Header;
pub use media::{Media, Place};
pub use packer::Packer;
pub use reader::{Damage, Recording, RecordingError};
pub use ring::Ring;
pub use writer::{Totals, Writer};

/// First bytes of every recording. The first is no letter, the last ends a line: what takes it for text breaks it visibly.
pub const MAGIC: [u8; 8] = *b"\x89xpurec\n";

/// Version of the container. The frames carry their own.
pub const VERSION: u16 = 1;

/// A block is closed when it holds so many bytes of frames, or when a second has passed.
const FULL: usize = 1 << 20;

/// Most bytes a block may say it holds: one frame of the largest size fits, and nothing that a hostile file could name is taken in.
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
