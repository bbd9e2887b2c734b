//! A thread that unpacks blocks in advance: over a long distance one is shown while the next is unpacked.

use std::{collections::BTreeSet, io, sync::mpsc, thread};

use xpu_wire::{codec, frame::Frame, id::Rank, unit::Moment};

use crate::{Entry, Kind, Recording};

/// Largest number of blocks that wait: unpacked, they take many times their size in the file.
const WAITING: usize = 2;

/// Smallest number of blocks for which a thread is started.
const SHORTEST: usize = 4;

/// The frames of a block.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) all: Vec<(Moment, Frame)>,
    /// Number of frames that did not decode.
    pub(super) unknown_kind: u64,
}

impl Frames {
    /// Reads a block, with the details of `ranks` only. `None` if the block is damaged.
    pub(super) fn read(
        recording: &mut Recording,
        entry: &Entry,
        ranks: &BTreeSet<Rank>,
    ) -> io::Result<Option<Self>> {
        let mut frames = Self::default();
        if entry.kind == Kind::Detail && ranks.is_empty() {
            return Ok(Some(frames));
        }
        let Some(block) = recording.block(entry)? else { return Ok(None) };
        let wanted = |rank: Option<Rank>| rank.is_none_or(|rank| ranks.contains(&rank));
        for record in block.records().filter(|record| wanted(record.rank)) {
            match codec::decode(record.frame) {
                Ok(frame) => frames.all.push((record.at, frame)),
                Err(_unknown_kind) => frames.unknown_kind += 1,
            }
        }
        Ok(Some(frames))
    }
}

/// The thread's handle; it ends with its blocks, or when this is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    /// The number of the next block.
    next: usize,
    /// reader --contents of a readable block--> cursor
    blocks: mpsc::Receiver<Option<Frames>>,
}

impl Reader {
    /// Reads these blocks; the first is number `first` of the recording.
    pub(super) fn of(
        recording: &Recording,
        first: usize,
        entries: &[Entry],
        ranks: &BTreeSet<Rank>,
    ) -> Option<Self> {
        if entries.len() < SHORTEST {
            return None;
        }
        let (mut recording, entries, ranks) = (recording.again(), entries.to_vec(), ranks.clone());
        let (sender, blocks) = mpsc::sync_channel(WAITING);
        thread::spawn(move || {
            entries
                .iter()
                .map(|entry| Frames::read(&mut recording, entry, &ranks).ok().flatten())
                .try_for_each(|frames| sender.send(frames))
        });
        Some(Self { next: first, blocks })
    }

    /// The content of the block with this number, if it is the next.
    pub(super) fn block(&mut self, number: usize) -> Option<Frames> {
        if self.next != number {
            return None;
        }
        self.next += 1;
        self.blocks.recv().ok().flatten()
    }
}
