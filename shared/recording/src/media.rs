//! The source from which a recording is read: a file, or memory.

use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read, Seek, SeekFrom},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

/// Bytes read at once.
const BUFFER: usize = 1 << 17;

#[derive(Debug)]
pub enum Media {
    File(BufReader<Place>),
    Memory(Cursor<Arc<[u8]>>),
}

/// A position in a file that others read as well, each at a position of its own.
#[derive(Debug)]
pub struct Place {
    file: Arc<File>,
    at: u64,
}

impl Media {
    pub fn file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Self::of(Arc::new(file)))
    }

    pub fn memory(bytes: Vec<u8>) -> Self {
        Self::Memory(Cursor::new(bytes.into()))
    }

    fn of(file: Arc<File>) -> Self {
        Self::File(BufReader::with_capacity(BUFFER, Place { file, at: 0 }))
    }

    pub(super) fn again(&self) -> Self {
        match self {
            Self::File(file) => Self::of(Arc::clone(&file.get_ref().file)),
            Self::Memory(memory) => Self::Memory(Cursor::new(Arc::clone(memory.get_ref()))),
        }
    }
}

impl Read for Media {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(bytes),
            Self::Memory(memory) => memory.read(bytes),
        }
    }
}

impl Seek for Media {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match (self, to) {
            // After a seek within the buffer, nothing is read again.
            (Self::File(file), SeekFrom::Start(to)) => {
                let at = file.stream_position()?;
                file.seek_relative(to.wrapping_sub(at).cast_signed())?;
                Ok(to)
            }
            (Self::File(file), to) => file.seek(to),
            (Self::Memory(memory), to) => memory.seek(to),
        }
    }
}

impl Read for Place {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let some = self.file.read_at(bytes, self.at)?;
        self.at += some as u64;
        Ok(some)
    }
}

impl Seek for Place {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
