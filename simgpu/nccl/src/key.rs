//! The name of a communicator on this machine. All its ranks know it, and no other process can guess it.

use std::fmt::{self, Display};

use crate::greeting::Greeting;

/// `ncclUniqueId`: NCCL passes it by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId([u8; 128]);

impl UniqueId {
    /// The first word, from which ranks compute their ids.
    pub(crate) fn magic(&self) -> u64 {
        self.0.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
    }

    pub(crate) fn greeting(&self) -> Greeting {
        Greeting::of_id(&self.0, self.magic())
    }

    /// The id given to a new rank, which needs only the magic number.
    pub(crate) fn with_magic(magic: u64) -> Self {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&magic.to_ne_bytes());
        Self(bytes)
    }

    /// 128 random bytes, or `None` if the system has none.
    pub(crate) fn new() -> Option<Self> {
        let mut bytes = [0; 128];
        // SAFETY: the buffer is ours and has this length.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        (usize::try_from(got) == Ok(bytes.len())).then_some(Self(bytes))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key([u64; 2]);

impl Key {
    pub(crate) fn of(id: &UniqueId) -> Self {
        Self::hash(&[&id.0])
    }

    /// The key of the `ordinal`-th split with this color.
    pub(crate) fn split(self, ordinal: u32, color: i32) -> Self {
        self.child(b"split", &[&ordinal.to_ne_bytes(), &color.to_ne_bytes()])
    }

    /// The key of the communicator that the `ordinal`-th shrink leaves, without these ranks.
    pub(crate) fn shrunk(self, ordinal: u32, without: &[u32]) -> Self {
        let without: Vec<u8> = without.iter().flat_map(|rank| rank.to_ne_bytes()).collect();
        self.child(b"shrink", &[&ordinal.to_ne_bytes(), &without])
    }

    pub(crate) fn grown(magic: u64, ranks: u32) -> Self {
        Self::hash(&[b"grow", &magic.to_ne_bytes(), &ranks.to_ne_bytes()])
    }

    fn child(self, kind: &[u8], parts: &[&[u8]]) -> Self {
        let [high, low] = self.0.map(u64::to_ne_bytes);
        Self::hash(&[&[kind, &high, &low], parts].concat())
    }

    fn hash(parts: &[&[u8]]) -> Self {
        Self([fold(0xcbf2_9ce4_8422_2325, parts), fold(0x9e37_79b9_7f4a_7c15, parts)])
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

/// FNV-1a from a given seed. The result must be the same in every process, which `std`'s hasher does not
/// promise.
pub(crate) fn fold(seed: u64, parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    bytes.fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
