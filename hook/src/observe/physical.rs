//! Memory that a program creates without an address and maps where it wants (`cuMemCreate`, `cuMemMap`):
//! PyTorch's expandable segments, and the allocators of JAX and vLLM.
//!
//! It is held until its last handle is released and its last mapping is removed, in either order. Programs
//! make few of these calls, and each takes microseconds, so a lock protects what is known.

use std::collections::{BTreeMap, HashMap};

use super::allocations::Allocation;
use crate::process::brief_lock::BriefLock;

/// Maximum number of chunks at once: 80 GB of the small ones of PyTorch.
const CHUNKS: usize = 40_000;

/// A chunk's number, which no later chunk gets.
type ChunkId = u64;

#[derive(Debug, Default)]
pub(crate) struct Physical(BriefLock<Known>);

#[derive(Debug, Default)]
struct Known {
    chunks: HashMap<ChunkId, Chunk>,
    handles: HashMap<u64, ChunkId>,
    /// By address: bytes, and the chunk.
    mapped: BTreeMap<u64, (u64, ChunkId)>,
    last: ChunkId,
}

#[derive(Debug)]
struct Chunk {
    allocation: Allocation,
    /// References to its handle, and mappings.
    handles: u32,
    mappings: u32,
}

/// A handle that is about to be released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Releasing {
    handle: u64,
    chunk: ChunkId,
}

/// Mappings that are about to be removed: the address, bytes and chunk of each.
#[derive(Debug, Default)]
pub(crate) struct Unmapping(Vec<(u64, u64, ChunkId)>);

impl Physical {
    /// Adds a chunk; `false` if it is not tracked. Calls `freed` with the memory of a chunk that had the
    /// handle.
    pub(crate) fn created(
        &self,
        handle: u64,
        allocation: Allocation,
        freed: impl FnOnce(Allocation),
    ) -> bool {
        let Some(mut known) = self.0.lock().filter(|known| known.chunks.len() < CHUNKS) else { return false };
        if !known.has_room() {
            return false;
        }
        known.last += 1;
        let chunk = known.last;
        known.chunks.insert(chunk, Chunk { allocation, handles: 0, mappings: 0 });
        known.add_handle(handle, chunk).map(freed);
        true
    }

    /// Another reference to the handle of the memory that is mapped there. Returns memory as
    /// [`Known::add_handle`].
    pub(crate) fn retained(&self, handle: u64, address: u64) -> Option<Allocation> {
        let mut known = self.0.lock()?;
        let below = known.mapped.range(..=address).next_back();
        let (_, &(_, chunk)) = below.filter(|&(&at, &(bytes, _))| address - at < bytes)?;
        if known.has_room() { known.add_handle(handle, chunk) } else { None }
    }

    /// Returns memory as [`Known::add_mapping`].
    pub(crate) fn mapped(&self, address: u64, bytes: u64, handle: u64) -> Option<Allocation> {
        let mut known = self.0.lock()?;
        let chunk = *known.handles.get(&handle)?;
        known.add_mapping(address, bytes, chunk)
    }

    /// Removes a reference before it is released, because afterwards another chunk may get the handle.
    pub(crate) fn releasing(&self, handle: u64) -> Option<Releasing> {
        let mut known = self.0.lock()?;
        let chunk = *known.handles.get(&handle)?;
        let left = known.chunks.get_mut(&chunk).map_or(0, |known| {
            known.handles = known.handles.saturating_sub(1);
            known.handles
        });
        if left == 0 {
            known.handles.remove(&handle);
        }
        Some(Releasing { handle, chunk })
    }

    /// Completes a release, or takes it back if the call failed. Returns the memory if it is freed now.
    pub(crate) fn released(&self, releasing: Releasing, is_done: bool) -> Option<Allocation> {
        let Releasing { handle, chunk } = releasing;
        let mut known = self.0.lock()?;
        if is_done {
            return known.end(chunk);
        }
        if known.has_room() { known.add_handle(handle, chunk) } else { None }
    }

    /// Removes mappings before they are unmapped, because afterwards another thread may map there.
    pub(crate) fn unmapping(&self, address: u64, bytes: u64) -> Unmapping {
        let Some(mut known) = self.0.lock() else { return Unmapping::default() };
        let range = address..address.saturating_add(bytes);
        let mut within = Vec::new();
        if within.try_reserve_exact(known.mapped.range(range.clone()).count()).is_err() {
            return Unmapping(within);
        }
        within.extend(known.mapped.range(range).map(|(&at, &(bytes, chunk))| (at, bytes, chunk)));
        for (at, _, chunk) in &within {
            known.mapped.remove(at);
            known.chunks.entry(*chunk).and_modify(|known| known.mappings = known.mappings.saturating_sub(1));
        }
        Unmapping(within)
    }

    /// Completes the removal of mappings, or takes it back. Calls `freed` with the memory that is freed now.
    pub(crate) fn unmapped(&self, unmapping: Unmapping, is_done: bool, mut freed: impl FnMut(Allocation)) {
        let Some(mut known) = self.0.lock() else { return };
        for (at, bytes, chunk) in unmapping.0 {
            let memory = if is_done { known.end(chunk) } else { known.add_mapping(at, bytes, chunk) };
            memory.into_iter().for_each(&mut freed);
        }
    }
}

impl Known {
    /// Whether the tables have room for one more entry, which may fail: growing a table without this aborts
    /// the process. The nodes of `mapped` are small, so they come from the reserve then.
    fn has_room(&mut self) -> bool {
        self.chunks.try_reserve(1).is_ok() && self.handles.try_reserve(1).is_ok()
    }

    /// Another chunk that had the handle was released by a call that was not seen. Returns its memory if it
    /// is freed.
    fn add_handle(&mut self, handle: u64, chunk: ChunkId) -> Option<Allocation> {
        self.chunks.entry(chunk).and_modify(|known| known.handles += 1);
        let before = self.handles.insert(handle, chunk).filter(|&before| before != chunk)?;
        self.chunks.entry(before).and_modify(|known| known.handles = known.handles.saturating_sub(1));
        self.end(before)
    }

    /// What was mapped there was unmapped by a call that was not seen. Returns its memory if it is freed.
    fn add_mapping(&mut self, address: u64, bytes: u64, chunk: ChunkId) -> Option<Allocation> {
        self.chunks.entry(chunk).and_modify(|known| known.mappings += 1);
        let (_, before) = self.mapped.insert(address, (bytes, chunk))?;
        self.chunks.entry(before).and_modify(|known| known.mappings = known.mappings.saturating_sub(1));
        self.end(before)
    }

    /// Forgets a chunk without handles and mappings, and returns its memory.
    fn end(&mut self, chunk: ChunkId) -> Option<Allocation> {
        let is_over = self.chunks.get(&chunk).is_some_and(|chunk| chunk.handles + chunk.mappings == 0);
        is_over.then(|| self.chunks.remove(&chunk)).flatten().map(|chunk| chunk.allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::allocations::MemoryOwner, *};

    fn memory(bytes: u64) -> Allocation {
        Allocation::new(MemoryOwner::Device, bytes, Some(0), 0)
    }

    fn create(known: &Physical, handle: u64, bytes: u64) -> Option<Allocation> {
        let mut freed = None;
        assert!(known.created(handle, memory(bytes), |memory| freed = Some(memory)));
        freed
    }

    fn release(known: &Physical, handle: u64, is_done: bool) -> Option<Allocation> {
        known.released(known.releasing(handle)?, is_done)
    }

    fn unmap(known: &Physical, address: u64, bytes: u64, is_done: bool) -> Vec<Allocation> {
        let mut freed = Vec::new();
        known.unmapped(known.unmapping(address, bytes), is_done, |memory| freed.push(memory));
        freed
    }

    #[test]
    fn memory_ends_with_its_last_handle_and_its_last_mapping() {
        let known = Physical::default();
        for (handle, bytes) in [(7, 10), (8, 20), (9, 30)] {
            assert_eq!(create(&known, handle, bytes), None);
        }
        known.mapped(0x1000, 0x100, 7);
        known.mapped(0x1100, 0x100, 8);
        known.mapped(0x5000, 0x100, 8);
        assert_eq!(release(&known, 9, true), Some(memory(30)), "never mapped");
        assert_eq!(release(&known, 9, true), None, "twice");
        assert_eq!(release(&known, 7, true), None, "mapped");
        assert_eq!(unmap(&known, 0x1000, 0x200, true), [memory(10)], "8 has a handle");
        assert_eq!(release(&known, 8, true), None, "mapped elsewhere");
        assert_eq!(unmap(&known, 0x5000, 0x100, true), [memory(20)]);
        assert_eq!(unmap(&known, 0, u64::MAX, true), []);
        assert!(known.0.lock().is_some_and(|known| known.chunks.is_empty() && known.handles.is_empty()));
    }

    #[test]
    fn a_retained_handle_keeps_the_memory() {
        let known = Physical::default();
        create(&known, 7, 10);
        known.mapped(0x1000, 0x100, 7);
        known.retained(7, 0x10ff);
        known.retained(7, 0x1100);
        assert_eq!((release(&known, 7, true), unmap(&known, 0x1000, 0x100, true)), (None, vec![]));
        assert_eq!(release(&known, 7, true), Some(memory(10)));
    }

    #[test]
    fn refused_calls_change_nothing() {
        let known = Physical::default();
        create(&known, 7, 10);
        known.mapped(0x1000, 0x100, 7);
        assert_eq!((release(&known, 7, false), unmap(&known, 0x1000, 0x100, false)), (None, vec![]));
        assert_eq!(unmap(&known, 0x1000, 0x100, true), []);
        assert_eq!(release(&known, 7, true), Some(memory(10)));
    }

    /// The driver gives a handle out again as soon as it is released, also while the memory is still mapped.
    #[test]
    fn a_reused_handle_is_another_chunk() {
        let known = Physical::default();
        create(&known, 7, 10);
        known.mapped(0x1000, 0x100, 7);
        let first = known.releasing(7).unwrap();
        create(&known, 7, 20);
        assert_eq!(known.released(first, true), None);
        assert_eq!(release(&known, 7, true), Some(memory(20)));
        assert_eq!(unmap(&known, 0x1000, 0x100, true), [memory(10)]);
    }

    #[test]
    fn a_release_that_was_not_seen_ends_with_the_next_use_of_the_handle_or_address() {
        let known = Physical::default();
        create(&known, 7, 10);
        assert_eq!(create(&known, 7, 20), Some(memory(10)));
        known.mapped(0x1000, 0x100, 7);
        create(&known, 8, 30);
        assert_eq!((release(&known, 7, true), release(&known, 8, false)), (None, None));
        assert_eq!(known.mapped(0x1000, 0x100, 8), Some(memory(20)));
        create(&known, 9, 40);
        assert_eq!(known.retained(9, 0x1000), Some(memory(40)));
    }

    #[test]
    fn chunks_beyond_the_limit_are_not_tracked() {
        let known = Physical::default();
        let tracked = (1..=CHUNKS as u64 + 3).filter(|&handle| known.created(handle, memory(1), drop));
        assert_eq!(tracked.count(), CHUNKS);
    }
}
