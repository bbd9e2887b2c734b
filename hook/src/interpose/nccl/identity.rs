//! A communicator's identity: unique, and equal on all its ranks. It is NCCL's own name if that follows from
//! the program's arguments, else a name computed here in the same way.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed},
};

use xpu_wire::{id::CommunicatorId, sampling};

use super::{
    commhash::{IdBytes, Scheme, combined},
    ncclGetVersion,
};
use crate::process::clock::monotonic;

/// `ncclUniqueId`, which NCCL takes by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UniqueId(IdBytes);

impl UniqueId {
    fn magic(&self) -> u64 {
        self.0.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Never 0.
    pub(crate) id: CommunicatorId,
    /// The magic number of its bootstrap; the name of a grown communicator depends on it.
    pub(crate) magic: u64,
}

impl Identity {
    fn new(id: u64, magic: u64) -> Self {
        Self { id: CommunicatorId(id.max(1)), magic }
    }

    pub(crate) fn of_id(id: &UniqueId) -> Self {
        let own = || own(0, id.0.chunks_exact(8).map(word));
        Self::new(scheme().map_or_else(own, |scheme| scheme.of_id(&id.0)), id.magic())
    }

    /// The identity of communicators that one call creates for several GPUs of this process, from an id that
    /// no other process sees.
    pub(crate) fn of_this_process() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let made = MADE.fetch_add(1, Relaxed);
        let id = own(1, [u64::from(std::process::id()), monotonic(), made]);
        Self::new(id, id)
    }

    /// The identity of the `number`-th child, a split with this color.
    pub(crate) fn split(self, number: u32, color: c_int) -> Self {
        let theirs = scheme().and_then(|scheme| scheme.of_split(self.id.0, number, color));
        let id = theirs
            .unwrap_or_else(|| own(2, [self.id.0, u64::from(number), u64::from(color.cast_unsigned())]));
        Self::new(id, id)
    }

    /// The identity of the `number`-th communicator shrunk from this one. NCCL gives all of them the same
    /// name; here the number is added.
    pub(crate) fn shrunk(self, number: u32, without: &[c_int]) -> Self {
        // The sum is independent of the order, because NCCL sorts the program's list.
        let without = without.iter().fold(0_u64, |sum, &rank| {
            sum.wrapping_add(sampling::priority(u64::from(rank.cast_unsigned()) + 1))
        });
        let magic = scheme().and_then(|scheme| scheme.of_split(self.id.0, 0, 0)).unwrap_or_default();
        Self::new(own(3, [self.id.0, u64::from(number), without]), magic)
    }

    /// The identity of the communicator that results when this one is grown, as the `number`-th child.
    pub(crate) fn grown(self, number: u32, ranks: u32) -> Self {
        Self::with_magic(combined(self.magic, u64::from(number)), ranks)
    }

    /// The same identity on a new rank, which has only the id.
    pub(crate) fn joined(id: &UniqueId, ranks: u32) -> Self {
        Self::with_magic(id.magic(), ranks)
    }

    fn with_magic(magic: u64, ranks: u32) -> Self {
        Self::new(combined(magic, u64::from(ranks)), magic)
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn own(kind: u64, words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(kind, |mixed, word| sampling::priority(mixed ^ word))
}

/// The version of NCCL; 0 while unknown.
pub(crate) fn version() -> c_int {
    static VERSION: AtomicI32 = AtomicI32::new(0);
    let known = VERSION.load(Relaxed);
    if known != 0 {
        return known;
    }
    let mut version = 0;
    // SAFETY: the place outlives the call.
    let answered = unsafe { ncclGetVersion(&raw mut version) } == Some(0);
    VERSION.store(if answered { version } else { 0 }, Relaxed);
    VERSION.load(Relaxed)
}

fn scheme() -> Option<Scheme> {
    Some(version()).filter(|&version| version > 0).map(Scheme::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_one_parent_have_names_of_their_own() {
        let parent = Identity::new(3, 5);
        let all = [
            parent,
            parent.split(1, 0),
            parent.split(1, 1),
            parent.split(2, 0),
            parent.shrunk(1, &[1]),
            parent.shrunk(2, &[1]),
            parent.shrunk(1, &[2]),
            parent.grown(1, 4),
            parent.grown(2, 4),
            Identity::of_this_process(),
            Identity::of_this_process(),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().map(|identity| identity.id).collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn old_and_new_ranks_of_a_grown_communicator_agree_on_its_name() {
        let parent = Identity::new(3, 5);
        let mut handed = UniqueId([0; 128]);
        handed.0[..8].copy_from_slice(&combined(5, 1).to_le_bytes());
        assert_eq!(parent.grown(1, 4), Identity::joined(&handed, 4));
    }

    #[test]
    fn the_order_of_excluded_ranks_does_not_matter() {
        let parent = Identity::new(3, 5);
        assert_eq!(parent.shrunk(1, &[4, 2]), parent.shrunk(1, &[2, 4]));
    }
}
