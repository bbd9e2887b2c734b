//! The positions of the blocks. A file that was closed has them at its end; in one that was not closed, a
//! search finds them.

use std::io::{self, Read, Seek, SeekFrom};

use xpu_wire::unit::Moment;

use super::{
    Damage, Entry, Kind, LARGEST_BLOCK, SealedBlock,
    block::{Block, HEADER, MAGIC},
    long, word,
};

/// Last bytes of a file that was closed: the position of its index, its checksum, and these bytes.
const END: [u8; 4] = *b"xpue";
pub(super) const TRAILER: usize = 16;

/// Bytes of an entry in the index.
const ENTRY: usize = HEADER + 8;

/// Bytes searched at once for the next block.
const CHUNK: usize = 1 << 16;

/// Index and trailer of a file that ends at `offset` so far; `None` for a file with more blocks than an index
/// holds.
pub(super) fn footer(entries: &[Entry], offset: u64) -> io::Result<Option<Vec<u8>>> {
    if entries.len() * ENTRY > LARGEST_BLOCK {
        return Ok(None);
    }
    let mut raw = Vec::with_capacity(entries.len() * ENTRY);
    for entry in entries {
        raw.extend(entry.offset.to_le_bytes());
        raw.extend(entry.header());
    }
    let none = Moment(0);
    let (first, last) = entries.first().zip(entries.last()).map_or((none, none), |(a, b)| (a.first, b.last));
    let last = last.max(first);
    let mut bytes = SealedBlock::seal(Kind::Index, &raw, entries.len() as u32, first, last)?.bytes;
    let place = offset.to_le_bytes();
    bytes.extend(place);
    bytes.extend(crc32fast::hash(&place).to_le_bytes());
    bytes.extend(END);
    Ok(Some(bytes))
}

/// The entries of a file that was closed. `None` if anything in the index is invalid.
pub(super) fn read(source: &mut (impl Read + Seek), begin: u64, length: u64) -> Option<Vec<Entry>> {
    let trailer_at = length.checked_sub(TRAILER as u64)?;
    let trailer: [u8; TRAILER] = bytes_at(source, trailer_at).ok()??;
    let place = long(&trailer, 0);
    if trailer[12..] != END || word(&trailer, 8) != crc32fast::hash(&trailer[..8]) {
        return None;
    }
    let header: [u8; HEADER] = bytes_at(source, place).ok()??;
    let index = Entry::decode(&header, place).filter(|entry| entry.kind == Kind::Index)?;
    if index.end() != trailer_at {
        return None;
    }
    let block = block_at(source, &index).ok()??;
    let mut entries = Vec::with_capacity(block.raw().len() / ENTRY);
    let mut at = begin;
    for chunk in block.raw().chunks(ENTRY) {
        let (offset, header) = chunk.split_first_chunk::<8>()?;
        let entry = Entry::decode(header.first_chunk()?, u64::from_le_bytes(*offset))?;
        if entry.offset < at || entry.end() > place {
            return None;
        }
        at = entry.end();
        entries.push(entry);
    }
    Some(entries)
}

/// Searches for blocks from `begin` on, and reports the bytes between them.
pub(super) fn search(
    source: &mut (impl Read + Seek),
    begin: u64,
    length: u64,
) -> io::Result<(Vec<Entry>, Vec<Damage>)> {
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    let mut at = begin;
    while at < length {
        let next = next_block(source, at, length)?;
        let begins = next.map_or(length, |entry| entry.offset);
        let is_trailer = next.is_none() && length - at == TRAILER as u64;
        if begins > at && !is_trailer {
            damage.push(Damage { offset: at, bytes: begins - at });
        }
        let Some(entry) = next else { break };
        at = entry.end();
        // An index found here belongs to a file whose end was damaged.
        if entry.kind != Kind::Index {
            entries.push(entry);
        }
    }
    Ok((entries, damage))
}

/// The next whole block, by its header.
fn next_block(source: &mut (impl Read + Seek), from: u64, length: u64) -> io::Result<Option<Entry>> {
    let mut at = from;
    // A block usually begins where the previous one ends. Then only its header is read.
    let mut some = HEADER as u64;
    let mut chunk = vec![0; CHUNK];
    while at + HEADER as u64 <= length {
        let bytes = &mut chunk[..(length - at).min(some) as usize];
        source.seek(SeekFrom::Start(at))?;
        source.read_exact(bytes)?;
        let whole = |(offset, window): (usize, &[u8])| {
            let header = window.first_chunk().filter(|_| window.starts_with(&MAGIC))?;
            Entry::decode(header, at + offset as u64).filter(|entry| entry.end() <= length)
        };
        if let Some(entry) = bytes.windows(HEADER).enumerate().find_map(whole) {
            return Ok(Some(entry));
        }
        // A header may lie across two chunks.
        at += (bytes.len() + 1 - HEADER) as u64;
        some = CHUNK as u64;
    }
    Ok(None)
}

/// `None` if the file ends before.
fn bytes_at<const N: usize>(source: &mut (impl Read + Seek), at: u64) -> io::Result<Option<[u8; N]>> {
    source.seek(SeekFrom::Start(at))?;
    let mut bytes = [0; N];
    match source.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None` if the block is damaged.
pub(super) fn block_at(source: &mut (impl Read + Seek), entry: &Entry) -> io::Result<Option<Block>> {
    let Some(header) = bytes_at::<HEADER>(source, entry.offset)? else { return Ok(None) };
    if Entry::decode(&header, entry.offset).as_ref() != Some(entry) {
        return Ok(None);
    }
    let mut stored = vec![0; entry.stored as usize];
    match source.read_exact(&mut stored) {
        Ok(()) => Ok(Block::open(entry, &stored)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
