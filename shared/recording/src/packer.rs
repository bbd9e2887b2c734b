//! Packs frames into blocks: a block is closed when it is full, or a second old.

use std::{io, time::Duration};

use xpu_wire::{
    codec,
    frame::{Body, Frame},
    id::Rank,
    unit::Moment,
};

use super::{FULL, Kind, Record, SealedBlock, block::Block};

/// Longest recorded time that is lost if the recorder is killed.
const OLD: Duration = Duration::from_millis(900);

/// Largest time by which a frame may come after a later one: several threads stamp frames on arrival.
const OVERTAKEN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Packer {
    overview: Open,
    detail: Open,
    /// The latest time in the recording. It never runs backwards and never stops, even if the clock is set.
    latest: Moment,
    /// Time by which the clock has been set back since the start.
    set_back: Duration,
    /// A block of this age is closed.
    old: Duration,
}

/// A block being filled.
#[derive(Debug)]
struct Open {
    kind: Kind,
    raw: Vec<u8>,
    frames: u32,
    first: Moment,
    last: Moment,
}

impl Default for Packer {
    fn default() -> Self {
        Self {
            overview: Open::new(Kind::Overview),
            detail: Open::new(Kind::Detail),
            latest: Moment(0),
            set_back: Duration::ZERO,
            old: OLD,
        }
    }
}

impl Packer {
    /// A packer that closes its blocks at this age, instead of a second: longer blocks take less space.
    pub fn closing_after(old: Duration) -> Self {
        Self { old, ..Self::default() }
    }

    /// Takes a frame that arrived at `at`, and returns the block that it fills up.
    pub fn push(&mut self, at: Moment, frame: &Frame) -> io::Result<Option<SealedBlock>> {
        self.push_encoded(at, subject(frame), &codec::encode(frame))
    }

    /// Same as [`Self::push`], for encoded bytes. Refuses bytes that are no whole frame, or are larger than
    /// any part accepts.
    pub fn push_encoded(
        &mut self,
        at: Moment,
        rank: Option<Rank>,
        frame: &[u8],
    ) -> io::Result<Option<SealedBlock>> {
        if frame.len() < codec::HEADER || frame.len() > codec::LARGEST_FRAME {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the frame is too large"));
        }
        self.note(at);
        let open = if rank.is_some() { &mut self.detail } else { &mut self.overview };
        open.push(Record { at: self.latest, rank, frame });
        if open.raw.len() >= FULL { open.seal() } else { Ok(None) }
    }

    /// The blocks that are old enough at `now` to be closed.
    pub fn due(&mut self, now: Moment) -> io::Result<Vec<SealedBlock>> {
        self.note(now);
        let (now, age) = (self.latest, self.old);
        let old = |open: &&mut Open| now.since(open.first) >= age;
        [&mut self.overview, &mut self.detail]
            .into_iter()
            .filter(old)
            .filter_map(|o| o.seal().transpose())
            .collect()
    }

    /// Notes a clock that was set back: it goes back by more than frames can overtake each other.
    fn note(&mut self, clock: Moment) {
        let at = clock.after(self.set_back);
        if self.latest.since(at) > OVERTAKEN {
            self.set_back = self.latest.since(clock);
        }
        self.latest = self.latest.max(clock.after(self.set_back));
    }

    /// The remaining blocks.
    pub fn rest(&mut self) -> io::Result<Vec<SealedBlock>> {
        [&mut self.overview, &mut self.detail]
            .into_iter()
            .filter_map(|open| open.seal().transpose())
            .collect()
    }
}

/// The rank of a detail frame.
pub(super) fn subject(frame: &Frame) -> Option<Rank> {
    match &frame.body {
        Body::Detail(detail) => Some(detail.rank),
        _ => None,
    }
}

impl Open {
    fn new(kind: Kind) -> Self {
        Self { kind, raw: Vec::new(), frames: 0, first: Moment(0), last: Moment(0) }
    }

    fn push(&mut self, record: Record<'_>) {
        if self.frames == 0 {
            self.first = record.at;
        }
        self.last = record.at;
        self.frames += 1;
        Block::push(&mut self.raw, record);
    }

    fn seal(&mut self) -> io::Result<Option<SealedBlock>> {
        if self.frames == 0 {
            return Ok(None);
        }
        let sealed = SealedBlock::seal(self.kind, &self.raw, self.frames, self.first, self.last)?;
        self.raw.clear();
        self.frames = 0;
        Ok(Some(sealed))
    }
}
