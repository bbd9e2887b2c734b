//! How communicators come and go, but for splitting.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use simgpu_engine::driver::Driver;

use crate::call::{Failure, call, put};
use crate::communicator::{COMMUNICATORS, Communicator};
use crate::file;
use crate::group;
use crate::key::{Key, UniqueId};
use crate::room::{Entry, MAX_RANKS};

/// A communicator whose other ranks may still be on their way.
pub(crate) struct Joining {
    key: Key,
    rank: u32,
    device: c_int,
    entry: Entry,
    /// Where the program wants the handle.
    handle: *mut usize,
}

impl Joining {
    /// # Safety
    /// `handle` must be writable until `finish`.
    pub(crate) unsafe fn announce(
        driver: Driver,
        key: Key,
        rank: u32,
        ranks: u32,
        handle: *mut usize,
    ) -> Result<Self, Failure> {
        if handle.is_null() || rank >= ranks || ranks > MAX_RANKS {
            return Err(Failure::InvalidArgument);
        }
        let entry = Entry::announce(key, ranks).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => Failure::InvalidArgument,
            _ => Failure::System,
        })?;
        // SAFETY: found by `Driver::find`; it takes nothing.
        let device = unsafe { (driver.current_device)() };
        Ok(Self { key, rank, device, entry, handle })
    }

    pub(crate) fn finish(self) -> Result<(), Failure> {
        let room = self.entry.wait_for_all().ok_or(Failure::System)?;
        let comm = Communicator::new(self.key, self.rank, self.device, room);
        // SAFETY: the promise made at `announce`.
        unsafe { put(self.handle, COMMUNICATORS.add(Arc::new(comm))) }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    call(|_| {
        file::sweep();
        let new = UniqueId::new().ok_or(Failure::System)?;
        // SAFETY: NCCL asks its callers for a writable pointer.
        unsafe { put(id, new) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommInitRank(
    comm: *mut usize,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { init(comm, ranks, &id, rank) }
}

/// The configuration is taken and not looked at: every communicator is a blocking one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut usize,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    _config: *const c_void,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { init(comm, ranks, &id, rank) }
}

/// # Safety
/// `comm` must be NULL or writable until the group ends: what NCCL asks of its callers.
unsafe fn init(comm: *mut usize, ranks: c_int, id: &UniqueId, rank: c_int) -> c_int {
    call(|driver| {
        let [ranks, rank] =
            [ranks, rank].map(|number| u32::try_from(number).map_err(|_ignored| Failure::InvalidArgument));
        // SAFETY: this function's own condition.
        group::join(unsafe { Joining::announce(driver, Key::of(id), rank?, ranks?, comm) }?)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommFinalize(comm: usize) -> c_int {
    call(|_| Communicator::of(comm).map(drop))
}

/// Does not wait for what is under way; that goes on.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommDestroy(comm: usize) -> c_int {
    call(|_| COMMUNICATORS.remove(comm).map(drop).ok_or(Failure::InvalidArgument))
}

/// Ends what is under way in this process, within a quarter of a second; other ranks are not told.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommAbort(comm: usize) -> c_int {
    call(|_| {
        let comm = COMMUNICATORS.remove(comm).ok_or(Failure::InvalidArgument)?;
        comm.aborted.store(true, Ordering::Relaxed);
        Ok(())
    })
}
