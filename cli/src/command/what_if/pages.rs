//! Checks that the pages of a Parquet file do not claim too much memory, because the library allocates what a
//! page's header claims before it reads the page.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
};

use bytes::Bytes;
use parquet::{
    errors::{ParquetError, Result},
    file::reader::{ChunkReader, Length},
};

/// Largest page that is read; usual pages have a megabyte.
const LARGEST_PAGE: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    length: u64,
}

impl Pages {
    pub(super) fn of(file: File) -> Self {
        let length = file.len();
        Self { file, length }
    }
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Pages {
    type T = BufReader<File>;

    /// The library reads page headers with this function, each from its start.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut read = self.file.get_read(start)?;
        match claimed(read.fill_buf()?) {
            Some(claimed) if claimed > LARGEST_PAGE => {
                Err(ParquetError::General(format!("a page claims to be {claimed} bytes")))
            }
            _ => Ok(read),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are beyond its end")));
        }
        self.file.get_bytes(start, length)
    }
}

/// The uncompressed size in a page header: field 2, after the page's type; both are 32-bit numbers in
/// Thrift's compact form. `None` for invalid headers, which the library refuses.
fn claimed(header: &[u8]) -> Option<u64> {
    /// The next field, a 32-bit number.
    const NEXT_NUMBER: u8 = 0x15;
    let (_, rest) = varint(header.strip_prefix(&[NEXT_NUMBER])?)?;
    let (zigzag, _) = varint(rest.strip_prefix(&[NEXT_NUMBER])?)?;
    // A negative size is refused too.
    Some(zigzag >> 1)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[place + 1..]));
        }
    }
    None
}
