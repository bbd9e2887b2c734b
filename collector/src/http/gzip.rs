//! Pieces of text that are compressed once and sent in many gzip streams.
//!
//! Each piece is compressed by itself and ends at a byte, so any sequence of pieces is one valid stream (RFC
//! 1951: blocks follow each other, and the last is marked). A stream only adds a header, and at its end the
//! checksum of its pieces.

use bytes::{BufMut as _, Bytes, BytesMut};
use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress};

/// RFC 1952: deflate, no flags, no time, made on an unknown system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// An empty block, marked as the last.
const LAST: [u8; 2] = [3, 0];

#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    plain: Bytes,
    deflated: Bytes,
    checksum: Hasher,
}

impl Piece {
    pub(super) fn of(text: String) -> Self {
        let mut checksum = Hasher::new();
        checksum.update(text.as_bytes());
        let deflated = deflate(text.as_bytes());
        Self { plain: text.into(), deflated, checksum }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty()
    }

    pub(super) fn plain(&self) -> Bytes {
        self.plain.clone()
    }
}

/// Compresses into blocks that end at a whole byte. None is marked as the last.
fn deflate(bytes: &[u8]) -> Bytes {
    let mut compress = Compress::new(Compression::fast(), false);
    let mut deflated = Vec::with_capacity(bytes.len() / 4 + 64);
    loop {
        let taken = usize::try_from(compress.total_in()).unwrap_or(usize::MAX).min(bytes.len());
        let written = compress.total_out();
        let outcome = compress.compress_vec(&bytes[taken..], &mut deflated, FlushCompress::Sync);
        let is_done = deflated.len() < deflated.capacity() && compress.total_in() == bytes.len() as u64;
        if outcome.is_err() || is_done || (taken == bytes.len() && compress.total_out() == written) {
            return deflated.into();
        }
        deflated.reserve(deflated.capacity());
    }
}

/// One stream of pieces.
#[derive(Debug, Default)]
pub(super) struct Member {
    checksum: Hasher,
    length: u32,
    has_begun: bool,
}

impl Member {
    pub(super) fn next(&mut self, piece: &Piece) -> Bytes {
        self.checksum.combine(&piece.checksum);
        // The trailer has the lowest 32 bits of the stream's length.
        self.length = self.length.wrapping_add(piece.plain.len() as u32);
        if std::mem::replace(&mut self.has_begun, true) {
            return piece.deflated.clone();
        }
        let mut first = BytesMut::from(&HEAD[..]);
        first.extend_from_slice(&piece.deflated);
        first.freeze()
    }

    pub(super) fn end(&self) -> Bytes {
        let mut end = BytesMut::new();
        if !self.has_begun {
            end.extend_from_slice(&HEAD);
        }
        end.extend_from_slice(&LAST);
        end.put_u32_le(self.checksum.clone().finalize());
        end.put_u32_le(self.length);
        end.freeze()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[Piece]) -> String {
        let mut member = Member::default();
        let mut sent: Vec<u8> = pieces.iter().flat_map(|piece| member.next(piece)).collect();
        sent.extend(member.end());
        let mut text = String::new();
        GzDecoder::new(&sent[..]).read_to_string(&mut text).expect("a stream with a right checksum");
        text
    }

    proptest! {
        #[test]
        fn any_pieces_form_one_gzip_stream(texts in prop::collection::vec(".{0,400}", 0..6), long in 0_usize..200_000) {
            let long: String = (0..long).map(|n| char::from(b'a' + (n * n % 23) as u8)).collect();
            let texts: Vec<String> = texts.into_iter().chain([long]).collect();
            let pieces: Vec<Piece> = texts.iter().cloned().map(Piece::of).collect();
            prop_assert_eq!(read(&pieces), texts.concat());
            // A later reader gets the same pieces.
            prop_assert_eq!(read(&pieces[pieces.len() / 2..]), texts[texts.len() / 2..].concat());
        }
    }
}
