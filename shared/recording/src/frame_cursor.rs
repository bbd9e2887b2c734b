//! A cursor over the frames of a recording that moves forwards and back.

mod reader;

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    time::Duration,
};

use reader::{Frames, Reader};
use xpu_wire::{frame::Frame, id::Rank, unit::Moment};

use crate::{Entry, Kind, Recording, Span};

/// Time before the target that is read again, even if that is slow: rates and findings need half a minute of
/// digests, and the digest before them.
const LEAST: Duration = Duration::from_secs(36);

/// Additional time before the target, as much as can be read quickly: for a small job, the whole recording.
const MORE: u64 = 20 << 20;

#[derive(Debug)]
pub struct FrameCursor {
    recording: Recording,
    /// Blocks of frames in order of their beginnings.
    entries: Vec<Entry>,
    /// The first block that has not been read.
    next: usize,
    /// Reads blocks in advance over a long distance.
    reader: Option<Reader>,
    /// Frames that were read and are not yet shown.
    ahead: VecDeque<(Moment, Frame)>,
    /// Ranks whose details are read.
    ranks: BTreeSet<Rank>,
    /// Number of frames that did not decode.
    unknown_kind: u64,
}

impl FrameCursor {
    pub fn new(recording: Recording) -> Self {
        let has_frames = |entry: &&Entry| matches!(entry.kind, Kind::Overview | Kind::Detail);
        let mut entries: Vec<_> = recording.entries().iter().filter(has_frames).copied().collect();
        entries.sort_by_key(|entry| entry.first);
        Self {
            recording,
            entries,
            next: 0,
            reader: None,
            ahead: VecDeque::new(),
            ranks: BTreeSet::new(),
            unknown_kind: 0,
        }
    }

    /// A second cursor over the same recording, at its start.
    pub fn again(&self) -> Self {
        Self::new(self.recording.again())
    }

    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    pub fn span(&self) -> Span {
        self.recording.span()
    }

    /// Reads the details of these ranks from here on, in frames that are not read yet.
    pub fn watch_ranks(&mut self, ranks: BTreeSet<Rank>) {
        self.reader = None;
        self.ranks = ranks;
    }

    pub fn ranks(&self) -> &BTreeSet<Rank> {
        &self.ranks
    }

    /// Texts about what could not be read so far.
    pub fn complaints(&self) -> Vec<String> {
        let mut all: Vec<_> = self.recording.damage().iter().map(ToString::to_string).collect();
        if all.len() > 3 {
            let rest = all.len() - 2;
            all.truncate(2);
            all.push(format!("and {rest} more places are damaged"));
        }
        if self.unknown_kind > 0 {
            all.push(format!("{} frames are of an unknown kind", self.unknown_kind));
        }
        all
    }

    /// Goes back to a position from which everything shown at `to` is known.
    pub fn rewind(&mut self, to: Moment) {
        self.ahead.clear();
        let after = self.entries.partition_point(|entry| entry.first <= to);
        let mut bytes = 0;
        let reads = |entry: &Entry| entry.kind == Kind::Overview || !self.ranks.is_empty();
        self.next = self.entries[..after]
            .iter()
            .rposition(|entry| {
                bytes += if reads(entry) { u64::from(entry.raw) } else { 0 };
                bytes > MORE && to.since(entry.first) > LEAST
            })
            .map_or(0, |last| last + 1);
        self.read_ahead(to);
    }

    /// Starts to read the blocks from the current position to `to`.
    pub fn read_ahead(&mut self, to: Moment) {
        let after = self.entries.partition_point(|entry| entry.first <= to).max(self.next);
        self.reader = Reader::of(&self.recording, self.next, &self.entries[self.next..after], &self.ranks);
    }

    /// Bytes of frames from the current position to `to`.
    pub fn distance(&self, to: Moment) -> u64 {
        let rest = self.entries[self.next..].iter().take_while(|entry| entry.first <= to);
        rest.filter(|entry| entry.kind == Kind::Overview).map(|entry| u64::from(entry.raw)).sum()
    }

    /// Whether reading on to `to` costs at most as much as [`Self::rewind`].
    pub fn is_near(&self, to: Moment) -> bool {
        self.distance(to) <= MORE
    }

    /// The next frame that arrived at `to` or before.
    pub fn next(&mut self, to: Moment) -> io::Result<Option<(Moment, Frame)>> {
        // A block is read only when a frame in it is next: unpacked, it takes many times its size in the
        // file.
        let due = |cursor: &Self, entry: &Entry| {
            entry.first <= to && cursor.ahead.front().is_none_or(|(at, _)| *at > entry.first)
        };
        while let Some(entry) = self.entries.get(self.next).copied().filter(|entry| due(self, entry)) {
            self.read(&entry)?;
        }
        Ok(self.ahead.pop_front_if(|(at, _)| *at <= to))
    }

    /// When the first frame after `position` arrived.
    pub fn after(&mut self, position: Moment) -> io::Result<Option<Moment>> {
        loop {
            let waiting = self.ahead.front().map(|(at, _)| *at).filter(|&at| at > position);
            let Some(entry) = self.entries.get(self.next).copied() else { return Ok(waiting) };
            if waiting.is_some_and(|at| at <= entry.first) {
                return Ok(waiting);
            }
            self.read(&entry)?;
        }
    }

    /// Reads the next block.
    fn read(&mut self, entry: &Entry) -> io::Result<()> {
        let read = self.reader.as_mut().and_then(|reader| reader.block(self.next));
        self.next += 1;
        if read.is_none() {
            // The block was not read in advance, or it is damaged; the recording notes damage.
            self.reader = None;
        }
        let read = match read {
            Some(_) => read,
            None => Frames::read(&mut self.recording, entry, &self.ranks)?,
        };
        let Some(Frames { all, unknown_kind }) = read else { return Ok(()) };
        let ordered = self.ahead.back().is_none_or(|(last, _)| *last <= entry.first);
        self.ahead.extend(all);
        self.unknown_kind += unknown_kind;
        if !ordered {
            self.ahead.make_contiguous().sort_by_key(|(at, _)| *at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
