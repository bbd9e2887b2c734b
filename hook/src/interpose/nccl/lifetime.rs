//! The creation and destruction of communicators.

use std::{
    ffi::{c_int, c_void},
    ptr, slice,
};

use cudarc::nccl::sys::ncclComm_t;
use xpu_wire::ledger::Call;

use super::{
    Identity, MISSING, NCCL, UniqueId,
    joining::{begin_all, begin_child, begin_grown, begin_init, end, reported},
};
use crate::{
    exit_note,
    interpose::interpose,
    observe::{communicator::Lineage, lane::Lane},
    process::clock::coarse_now,
};

/// `NCCL_SPLIT_NOCOLOR`: this rank gets no communicator.
const NO_COLOR: c_int = -1;

/// Maximum number of ranks that may leave a communicator; longer lists are not read.
const MOST_LEAVING: usize = 1 << 16;

/// The ranks that leave a communicator. The list is read before the call, because NCCL sorts it in place.
///
/// # Safety
/// The list has `count` elements, or is NULL.
unsafe fn leaving<'a>(list: *const c_int, count: c_int) -> &'a [c_int] {
    let count = usize::try_from(count).unwrap_or(0).min(MOST_LEAVING);
    if list.is_null() {
        return &[];
    }
    // SAFETY: the caller promises it.
    unsafe { slice::from_raw_parts(list, count) }
}

fn forget(lane: &Lane, communicator: ncclComm_t) {
    let observer = lane.observer();
    // NULL is not a parent: pending entries whose parent is NULL must not be dropped.
    if !communicator.is_null() {
        observer.communicators.pending.forget_children(communicator);
    }
    observer.communicators.remove(observer.ledger(), communicator);
    observer.nccl_memory.shrinks();
    lane.entered(Call::CommunicatorEnd, coarse_now());
}

interpose! {
    fn ncclCommInitRank(
        made: *mut ncclComm_t, ranks: c_int, id: UniqueId, rank: c_int,
    ) -> c_int in NCCL, or MISSING, even off;
    // SAFETY: there is no configuration.
    before |lane| unsafe { begin_init(lane, made, Identity::of_id(&id), ptr::null(), rank, ranks) };
    // SAFETY: as NCCL documents.
    after |lane, joining, result| unsafe { end(lane, joining, result) };

    fn ncclCommInitRankConfig(
        made: *mut ncclComm_t, ranks: c_int, id: UniqueId, rank: c_int, config: *mut c_void,
    ) -> c_int in NCCL, or MISSING, even off;
    // SAFETY: as NCCL documents.
    before |lane| unsafe { begin_init(lane, made, Identity::of_id(&id), config, rank, ranks) };
    // SAFETY: as NCCL documents.
    after |lane, joining, result| unsafe { end(lane, joining, result) };

    /// The first of its ids determines its name, as in NCCL.
    fn ncclCommInitRankScalable(
        made: *mut ncclComm_t, ranks: c_int, rank: c_int, id_count: c_int, ids: *mut UniqueId, config: *mut c_void,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| if ids.is_null() || id_count < 1 {
        None
    } else {
        // SAFETY: as NCCL documents: at least one id, and a configuration.
        unsafe { begin_init(lane, made, Identity::of_id(&*ids), config, rank, ranks) }
    };
    // SAFETY: as NCCL documents.
    after |lane, joining, result| unsafe { end(lane, joining, result) };

    fn ncclCommInitAll(
        made: *mut ncclComm_t, devices: c_int, list: *const c_int,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin_all(lane, made, devices);
    // SAFETY: as NCCL documents: there are as many places as devices.
    after |lane, joining, result| unsafe { end(lane, joining, result) };

    fn ncclCommSplit(
        parent: ncclComm_t, color: c_int, key: c_int, made: *mut ncclComm_t, config: *mut c_void,
    ) -> c_int in NCCL, or MISSING, even off;
    // SAFETY: as NCCL documents.
    before |lane| unsafe {
        let place = if color == NO_COLOR { ptr::null_mut() } else { made };
        begin_child(lane, place, parent, config, Lineage::Counted, |parent, number| parent.split(number, color))
    };
    // SAFETY: as NCCL documents.
    after |lane, joining, result| unsafe { end(lane, joining, result) };

    fn ncclCommShrink(
        parent: ncclComm_t, excluded: *mut c_int, excluded_count: c_int, made: *mut ncclComm_t, config: *mut c_void,
        flags: c_int,
    ) -> c_int in NCCL, or MISSING, even off;
    // SAFETY: as NCCL documents.
    before |lane| unsafe {
        let without = leaving(excluded, excluded_count);
        begin_child(lane, made, parent, config, Lineage::Shrunk, |parent, number| parent.shrunk(number, without))
    };
    // SAFETY: as NCCL documents.
    after |lane, joining, result| unsafe { end(lane, joining, result) };

    /// A new rank passes an id and no parent.
    fn ncclCommGrow(
        parent: ncclComm_t, ranks: c_int, id: *const UniqueId, rank: c_int, made: *mut ncclComm_t,
        config: *mut c_void,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| if !parent.is_null() {
        // SAFETY: as NCCL documents.
        unsafe { begin_grown(lane, made, parent, config, ranks) }
    } else if id.is_null() {
        None
    } else {
        let size = u32::try_from(ranks).unwrap_or(0);
        // SAFETY: as NCCL documents.
        unsafe { begin_init(lane, made, Identity::joined(&*id, size), config, rank, ranks) }
    };
    // SAFETY: as NCCL documents.
    after |lane, joining, result| unsafe { end(lane, joining, result) };

    /// PyTorch's watchdog calls this about 100 times a second.
    fn ncclCommGetAsyncError(
        communicator: ncclComm_t, state: *mut c_int,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| lane.observer().communicators.has_unsettled();
    after |lane, unsettled, result| if result == 0 {
        // SAFETY: NCCL has just written to this address.
        let state = unsafe { *state };
        if unsettled {
            reported(lane, communicator, state);
        }
        if state != 0 {
            exit_note::failed(c"ncclCommGetAsyncError", state);
        }
    };

    /// The communicator can still be queried, and must still be destroyed.
    fn ncclCommFinalize(communicator: ncclComm_t) -> c_int in NCCL, or MISSING, even off;
    before |lane| lane.entered(Call::CommunicatorEnd, coarse_now());
    after |lane, (), _| lane.left();

    fn ncclCommDestroy(communicator: ncclComm_t) -> c_int in NCCL, or MISSING, even off;
    before |lane| forget(lane, communicator);
    after |lane, (), _| lane.left();

    fn ncclCommAbort(communicator: ncclComm_t) -> c_int in NCCL, or MISSING, even off;
    before |lane| forget(lane, communicator);
    after |lane, (), _| lane.left();

    /// Aborts pending operations; the communicator can still be shrunk or destroyed.
    fn ncclCommRevoke(communicator: ncclComm_t, flags: c_int) -> c_int in NCCL, or MISSING, even off;
    before |lane| lane.entered(Call::CommunicatorEnd, coarse_now());
    after |lane, (), _| lane.left();
}
