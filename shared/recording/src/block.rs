//! Frames of about a second, compressed together.

use std::io;

use xpu_wire::{codec, id::Rank, unit::Moment};

use super::{LARGEST_BLOCK, long, word};

/// First bytes of every block.
pub(super) const MAGIC: [u8; 4] = *b"xpub";

/// Bytes of a block's header.
pub(super) const HEADER: usize = 48;

/// Bytes before each frame: its arrival time, and the rank of a detail.
const PREFIX: usize = 12;

/// No rank: the frame is not a detail.
const NOBODY: u32 = u32::MAX;

/// Largest size of a block on disk: zstd adds little to incompressible data.
const LARGEST_STORED: usize = LARGEST_BLOCK + (LARGEST_BLOCK >> 8) + 1024;

/// The content of a block. Blocks of unknown kinds are skipped: a newer program wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All frames except details.
    Overview,
    /// Details of ranks, which are read only when a rank is selected.
    Detail,
    /// The positions of the blocks.
    Index,
    Unknown(u32),
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Self::Overview => 1,
            Self::Detail => 2,
            Self::Index => 3,
            Self::Unknown(number) => number,
        }
    }

    fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Overview,
            2 => Self::Detail,
            3 => Self::Index,
            number => Self::Unknown(number),
        }
    }
}

/// A block as its header describes it, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position of its header in the file.
    pub offset: u64,
    pub kind: Kind,
    /// Bytes on disk after the header, and bytes after decompression.
    pub stored: u32,
    pub raw: u32,
    pub frames: u32,
    pub checksum: u32,
    /// Arrival of its first and its last frame.
    pub first: Moment,
    pub last: Moment,
}

impl Entry {
    /// Size of its header, which precedes the bytes on disk.
    pub fn header_bytes(&self) -> usize {
        HEADER
    }

    /// The byte after the block.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(HEADER as u64 + u64::from(self.stored))
    }

    pub(super) fn header(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        let words = [self.kind.number(), self.stored, self.raw, self.frames, self.checksum, 0];
        for (index, word) in words.iter().enumerate() {
            bytes[8 + 4 * index..12 + 4 * index].copy_from_slice(&word.to_le_bytes());
        }
        bytes[32..40].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[40..].copy_from_slice(&self.last.0.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if these bytes are not a block's header, or have sizes that no recorder writes.
    pub(super) fn decode(bytes: &[u8; HEADER], offset: u64) -> Option<Self> {
        if bytes[..4] != MAGIC || word(bytes, 4) != crc32fast::hash(&bytes[8..]) {
            return None;
        }
        let entry = Self {
            offset,
            kind: Kind::from_number(word(bytes, 8)),
            stored: word(bytes, 12),
            raw: word(bytes, 16),
            frames: word(bytes, 20),
            checksum: word(bytes, 24),
            first: Moment(long(bytes, 32)),
            last: Moment(long(bytes, 40)),
        };
        let fits = entry.stored as usize <= LARGEST_STORED && entry.raw as usize <= LARGEST_BLOCK;
        (fits && entry.first <= entry.last).then_some(entry)
    }
}

/// A block as written: its header, then its bytes. The offset in its entry is not yet known.
#[derive(Clone, Debug)]
pub struct SealedBlock {
    pub entry: Entry,
    pub bytes: Vec<u8>,
}

impl SealedBlock {
    /// Unpacks it; `None` if it is damaged.
    pub fn open(&self) -> Option<Block> {
        Block::open(&self.entry, self.bytes.get(HEADER..)?)
    }

    /// Compresses `raw`.
    pub(super) fn seal(kind: Kind, raw: &[u8], frames: u32, first: Moment, last: Moment) -> io::Result<Self> {
        let stored = zstd::bulk::compress(raw, zstd::DEFAULT_COMPRESSION_LEVEL)?;
        let entry = Entry {
            offset: 0,
            kind,
            stored: stored.len() as u32,
            raw: raw.len() as u32,
            frames,
            checksum: crc32fast::hash(&stored),
            first,
            last,
        };
        Ok(Self { entry, bytes: [&entry.header()[..], &stored].concat() })
    }
}

/// An unpacked block.
#[derive(Clone, Debug)]
pub struct Block {
    raw: Vec<u8>,
}

/// One frame of a block, not yet decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its arrival, by the recorder's clock.
    pub at: Moment,
    /// The rank, if the frame is a detail.
    pub rank: Option<Rank>,
    /// Encoded, for [`codec::decode`].
    pub frame: &'a [u8],
}

impl Block {
    /// `None` if the bytes do not match the header.
    pub(super) fn open(entry: &Entry, stored: &[u8]) -> Option<Self> {
        if stored.len() != entry.stored as usize || crc32fast::hash(stored) != entry.checksum {
            return None;
        }
        let raw = zstd::bulk::decompress(stored, entry.raw as usize).ok()?;
        (raw.len() == entry.raw as usize).then_some(Self { raw })
    }

    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(super) fn push(raw: &mut Vec<u8>, record: Record<'_>) {
        raw.extend(record.at.0.to_le_bytes());
        raw.extend(record.rank.map_or(NOBODY, |rank| rank.0).to_le_bytes());
        raw.extend(record.frame);
    }

    /// The frames in order of arrival. Ends early if a length exceeds the rest of the block.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = &self.raw[..];
        std::iter::from_fn(move || {
            let (prefix, frames) = rest.split_at_checked(PREFIX)?;
            let header = frames.get(..codec::HEADER)?;
            let length = codec::HEADER.checked_add(word(header, 8) as usize)?;
            let (frame, after) = frames.split_at_checked(length)?;
            rest = after;
            let rank = Some(word(prefix, 8)).filter(|&rank| rank != NOBODY).map(Rank);
            Some(Record { at: Moment(long(prefix, 0)), rank, frame })
        })
    }
}
