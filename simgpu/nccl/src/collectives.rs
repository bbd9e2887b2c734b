//! The collectives. Buffers and reduction operators are accepted and not read.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::Arc;

use crate::action::{Action, Kind, bytes};
use crate::call::call;
use crate::communicator::Communicator;
use crate::group;
use crate::profiler::{self, Call};

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclAllReduce(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    _op: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collective(Kind::AllReduce, count, data_type, 0, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclAllGather(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collective(Kind::AllGather, count, data_type, 0, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclReduceScatter(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    _op: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collective(Kind::ReduceScatter, count, data_type, 0, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclAlltoAll(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collective(Kind::AlltoAll, count, data_type, 0, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclGather(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    root: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collective(Kind::Gather, count, data_type, root, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclScatter(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    root: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collective(Kind::Scatter, count, data_type, root, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclReduce(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    _op: c_int,
    root: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collective(Kind::Reduce, count, data_type, root, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclBroadcast(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    root: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    collective(Kind::Broadcast, count, data_type, root, comm, stream)
}

type Broadcast = extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, usize, usize) -> c_int;

/// As NCCL does, this calls the public `ncclBroadcast`, whichever library provides it: an interposer sees
/// both calls.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    data_type: c_int,
    root: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    // SAFETY: the name is NUL-terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ncclBroadcast".as_ptr()) };
    if found.is_null() {
        return ncclBroadcast(buffer, buffer, count, data_type, root, comm, stream);
    }
    // SAFETY: whichever library exports this name promises NCCL's signature.
    let broadcast = unsafe { mem::transmute::<*mut c_void, Broadcast>(found) };
    broadcast(buffer, buffer, count, data_type, root, comm, stream)
}

pub(crate) fn collective(
    kind: Kind,
    count: usize,
    data_type: c_int,
    root: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    call(|driver| {
        let comm = Communicator::of(comm)?;
        let action = Action::Collective { kind, bytes: bytes(count, data_type)?, root: comm.member(root)? };
        let call = Call { func: kind.name(), count, data_type, root, stream, is_collective: true };
        let reported = Arc::clone(&comm);
        profiler::call(&reported, call, group::depth(), || group::submit(driver, comm, stream, action))
    })
}
