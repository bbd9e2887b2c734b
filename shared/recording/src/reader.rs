//! Reading a recording: whole, cut short or damaged.

use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use xpu_wire::unit::Moment;

use super::{Block, Entry, Header, Kind, MAGIC, VERSION, header, index, media::Media};

/// Number of damaged places that are listed one by one.
const LISTED: usize = 1024;

/// An open recording.
#[derive(Debug)]
pub struct Recording {
    media: Media,
    header: Header,
    entries: Vec<Entry>,
    damage: Vec<Damage>,
    is_closed: bool,
}

/// Bytes that belong to no whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    pub offset: u64,
    pub bytes: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {} are damaged or cut off, and are left out", self.bytes, self.offset)
    }
}

/// Why a file cannot be read as a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is empty: it contains no recording; record again with `xpu-top record -o FILE`")]
    Empty,
    #[error(
        "it is not a recording of xpu-top: it does not begin with a recording's first bytes; `xpu-top record -o FILE` makes one"
    )]
    Foreign,
    #[error(
        "it is a recording of version {found}, this program reads {VERSION}: replay it with the xpu-top that wrote it"
    )]
    Version { found: u16 },
    #[error(
        "it has no complete block of frames: the recorder ended within a second, or the file is damaged; record again"
    )]
    NoBlocks,
}

/// The time that a recording covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: Moment,
    pub last: Moment,
}

impl Recording {
    pub fn open_file(path: &Path) -> Result<Self, RecordingError> {
        Self::open(Media::file(path)?)
    }

    pub fn open(mut source: Media) -> Result<Self, RecordingError> {
        let length = source.seek(SeekFrom::End(0))?;
        source.seek(SeekFrom::Start(0))?;
        let mut fixed = [0; header::FIXED];
        let had = read_up_to(&mut source, &mut fixed)?;
        if had == 0 {
            return Err(RecordingError::Empty);
        }
        if had < MAGIC.len() || fixed[..MAGIC.len()] != MAGIC {
            return Err(RecordingError::Foreign);
        }
        if had < header::FIXED {
            return Err(RecordingError::NoBlocks);
        }
        let version = u16::from_le_bytes([fixed[8], fixed[9]]);
        if version != VERSION {
            return Err(RecordingError::Version { found: version });
        }
        let mut text = vec![0; Header::stated(&fixed).unwrap_or(0)];
        let whole = read_up_to(&mut source, &mut text)? == text.len();
        let known = if whole { Header::decode(&fixed, &text) } else { None };
        // The blocks contain all shown data, even without the header's text.
        let begin = header::FIXED as u64 + if known.is_some() { text.len() as u64 } else { 0 };
        let closed = index::read(&mut source, begin, length);
        let is_closed = closed.is_some();
        let (entries, damage) = match closed {
            Some(entries) => (entries, Vec::new()),
            None => index::search(&mut source, begin, length)?,
        };
        if !entries.iter().any(|entry| matches!(entry.kind, Kind::Overview)) {
            return Err(RecordingError::NoBlocks);
        }
        let mut new =
            Self { media: source, header: known.unwrap_or_default(), entries, damage: Vec::new(), is_closed };
        for piece in damage {
            new.note(piece);
        }
        Ok(new)
    }

    /// A second reader of the same recording, with its own position.
    pub fn again(&self) -> Self {
        let (header, entries, damage) = (self.header.clone(), self.entries.clone(), self.damage.clone());
        Self { media: self.media.again(), header, entries, damage, is_closed: self.is_closed }
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its blocks, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether it was closed in an orderly way.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Damage found so far. Some damage is found only when its block is read.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Arrival of the first and the last frame.
    pub fn span(&self) -> Span {
        let frames = || self.entries.iter().filter(|entry| matches!(entry.kind, Kind::Overview));
        let first = frames().map(|entry| entry.first).min().unwrap_or_default();
        Span { first, last: frames().map(|entry| entry.last).max().unwrap_or_default() }
    }

    /// One block. `None` if it is damaged, which [`Recording::damage`] then lists.
    pub fn block(&mut self, entry: &Entry) -> io::Result<Option<Block>> {
        let block = index::block_at(&mut self.media, entry)?;
        if block.is_none() {
            self.note(Damage { offset: entry.offset, bytes: entry.end() - entry.offset });
        }
        Ok(block)
    }

    fn note(&mut self, damage: Damage) {
        if self.damage.len() < LISTED && !self.damage.contains(&damage) {
            self.damage.push(damage);
        }
    }
}

/// Fills as much of `bytes` as the source has.
fn read_up_to(source: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut had = 0;
    while had < bytes.len() {
        match source.read(&mut bytes[had..]) {
            Ok(0) => break,
            Ok(some) => had += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(had)
}
