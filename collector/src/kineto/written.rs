//! A trace that Kineto has written: its open file, which is read in parts.

use std::{
    fs::File,
    io::{self, PipeWriter},
};

use xpu_wire::frame::{KinetoBytes, KinetoEnd};

use super::trace::{Piece, Reading};

#[derive(Debug)]
pub(super) struct Written {
    file: File,
    reading: Option<Reading>,
}

impl Written {
    pub(super) fn new(file: File) -> Self {
        Self { file, reading: None }
    }

    /// The file's length.
    pub(super) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    pub(super) fn is_being_read(&self) -> bool {
        self.reading.as_ref().is_some_and(|reading| !reading.has_ended())
    }

    /// The part of this number, if it has been read. Part 0 restarts the reading.
    pub(super) fn part(&mut self, part: u32, bell: impl FnOnce() -> io::Result<PipeWriter>) -> Option<Piece> {
        if part == 0 && self.reading.as_ref().is_none_or(|reading| reading.next() > 1) {
            match self.file.try_clone().and_then(|file| Reading::begin(&file, bell()?)) {
                Ok(reading) => self.reading = Some(reading),
                Err(error) => {
                    let wrong = Some(format!("it could not be read: {error}"));
                    let end = Some(KinetoEnd { wrong, ..KinetoEnd::default() });
                    return Some(Piece { bytes: KinetoBytes::default(), end });
                }
            }
        }
        self.reading.as_mut()?.part(part)
    }

    /// The number of the awaited part.
    pub(super) fn awaited(&self) -> Option<u32> {
        self.reading.as_ref().filter(|reading| reading.wanted).map(Reading::next)
    }
}
