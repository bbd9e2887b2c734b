//! Some of the `pnccl*` twins. A program calls them so that no interposer sees the call, as with a renamed or
//! linked-in NCCL.

use std::ffi::{c_int, c_void};

use crate::action::Kind;
use crate::call::call;
use crate::communicator::Direction;
use crate::job::Place;
use crate::key::UniqueId;
use crate::{collectives, group, lifetime, transfers};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pncclCommInitRank(
    comm: *mut usize,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
) -> c_int {
    // SAFETY: passed on unchanged.
    call(|driver| unsafe { lifetime::init(driver, Place(comm), ranks, &id, rank, false) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pncclCommInitAll(
    comms: *mut usize,
    count: c_int,
    devices: *const c_int,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { lifetime::init_all(comms, count, devices) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pncclCommDestroy(comm: usize) -> c_int {
    call(|_| lifetime::destroy(comm))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pncclAllReduce(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    _op: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collectives::collective(Kind::AllReduce, count, data_type, 0, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pncclAllGather(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collectives::collective(Kind::AllGather, count, data_type, 0, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pncclSend(
    _from: *const c_void,
    count: usize,
    data_type: c_int,
    peer: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    transfers::transfer(Direction::Send, count, data_type, peer, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pncclRecv(
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    peer: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    transfers::transfer(Direction::Receive, count, data_type, peer, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pncclGroupStart() -> c_int {
    group::start()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pncclGroupEnd() -> c_int {
    group::end()
}
