//! A recording being written. Written data is never changed.

use std::io::{self, Write};

use xpu_wire::unit::Moment;

use super::{Entry, Header, Kind, SealedBlock, index};

#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    offset: u64,
    entries: Vec<Entry>,
    totals: Totals,
}

/// Totals of the data written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub frames: u64,
    /// Bytes of the file, and of its frames before compression.
    pub bytes: u64,
    pub raw: u64,
    pub first: Option<Moment>,
    pub last: Moment,
}

impl<W: Write> Writer<W> {
    pub fn begin(mut out: W, header: &Header) -> io::Result<Self> {
        let bytes = header.encode();
        out.write_all(&bytes)?;
        let offset = bytes.len() as u64;
        Ok(Self { out, offset, entries: Vec::new(), totals: Totals { bytes: offset, ..Totals::default() } })
    }

    /// Writes a whole block. After an error, the file is valid up to the previous block, and nothing more may
    /// be written.
    pub fn write(&mut self, block: &SealedBlock) -> io::Result<()> {
        self.out.write_all(&block.bytes)?;
        let entry = Entry { offset: self.offset, ..block.entry };
        self.offset += block.bytes.len() as u64;
        self.totals.bytes = self.offset;
        if entry.kind != Kind::Index {
            self.totals.frames += u64::from(entry.frames);
            self.totals.raw += u64::from(entry.raw);
            self.totals.first = Some(self.totals.first.map_or(entry.first, |first| first.min(entry.first)));
            self.totals.last = self.totals.last.max(entry.last);
        }
        self.entries.push(entry);
        Ok(())
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes the index. The file can also be read without it.
    pub fn finish(mut self) -> io::Result<(W, Totals)> {
        if let Some(footer) = index::footer(&self.entries, self.offset)? {
            self.out.write_all(&footer)?;
            self.totals.bytes += footer.len() as u64;
        }
        self.out.flush()?;
        Ok((self.out, self.totals))
    }
}
