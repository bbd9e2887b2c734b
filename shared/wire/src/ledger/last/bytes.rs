//! Bytes in words that another process reads.

use super::super::sync::{AtomicU64, Relaxed};

/// Space for `N` words, and the number of bytes used.
#[repr(C)]
#[derive(Debug)]
pub struct Bytes<const WORDS: usize> {
    used: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Bytes<WORDS> {
    pub const CAPACITY: usize = WORDS * 8;

    pub fn write(&self, bytes: &[u8]) {
        self.clear();
        self.push(bytes);
    }

    pub fn clear(&self) {
        self.used.store(0, Relaxed);
    }

    /// Appends as many bytes as fit, from a word boundary on; `false` if not all fit.
    pub fn push(&self, bytes: &[u8]) -> bool {
        let from = (self.used.load(Relaxed) as usize).div_ceil(8).min(WORDS);
        let free = &self.words[from..];
        for (word, piece) in free.iter().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..piece.len()].copy_from_slice(piece);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        let taken = bytes.len().min(free.len() * 8);
        self.used.store((from * 8 + taken) as u64, Relaxed);
        taken == bytes.len()
    }

    pub fn read(&self) -> Vec<u8> {
        let used = (self.used.load(Relaxed) as usize).min(Self::CAPACITY);
        let words = self.words[..used.div_ceil(8)].iter();
        let mut bytes: Vec<_> = words.flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        bytes.truncate(used);
        bytes
    }

    /// The text without padding.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.read()).trim_matches(['\0', '\n']).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_room_are_cut() {
        let bytes = Bytes::<2> { used: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 2] };
        assert!(bytes.push(b"abc"));
        assert!(!bytes.push(b"defghijklm"));
        assert_eq!(bytes.read(), b"abc\0\0\0\0\0defghijk");
        bytes.write(b"0123456789abcdefg");
        assert_eq!(bytes.text(), "0123456789abcdef");
        bytes.write(b"x");
        assert_eq!(bytes.read(), b"x");
    }
}
