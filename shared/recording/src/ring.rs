//! The last minutes of a job in memory, as blocks like those of a file. The oldest blocks are dropped.

use std::{collections::VecDeque, io, time::Duration};

use xpu_wire::unit::Moment;

use super::{Header, Media, Recording, RecordingError, SealedBlock, Writer};

#[derive(Debug)]
pub struct Ring {
    blocks: VecDeque<SealedBlock>,
    bytes: usize,
    most_bytes: usize,
    longest: Duration,
}

impl Ring {
    pub fn new(most_bytes: usize, longest: Duration) -> Self {
        Self { blocks: VecDeque::new(), bytes: 0, most_bytes, longest }
    }

    pub fn push(&mut self, block: SealedBlock) {
        let now = block.entry.last;
        self.bytes += block.bytes.len();
        self.blocks.push_back(block);
        while let Some(oldest) = self.blocks.front() {
            if self.bytes <= self.most_bytes && now.since(oldest.entry.last) <= self.longest {
                break;
            }
            self.bytes -= oldest.bytes.len();
            self.blocks.pop_front();
        }
    }

    /// Oldest first.
    pub fn blocks(&self) -> impl Iterator<Item = &SealedBlock> {
        self.blocks.iter()
    }

    /// The blocks of the period `long` before the last frame.
    pub fn since(&self, long: Duration) -> Vec<SealedBlock> {
        let last = self.blocks.iter().map(|block| block.entry.last).max().unwrap_or_default();
        self.blocks.iter().filter(|block| last.since(block.entry.last) <= long).cloned().collect()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Arrival of the oldest frame it holds.
    pub fn first(&self) -> Option<Moment> {
        self.blocks.iter().map(|block| block.entry.first).min()
    }

    /// Its content, as a separate recording.
    pub fn recording(&self, header: &Header) -> Result<Recording, RecordingError> {
        let written = || -> io::Result<Vec<u8>> {
            let mut writer = Writer::begin(Vec::with_capacity(self.bytes + 4096), header)?;
            for block in &self.blocks {
                writer.write(block)?;
            }
            Ok(writer.finish()?.0)
        };
        Recording::open(Media::memory(written()?))
    }
}
