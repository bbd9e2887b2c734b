//! One-sided writes and signals. They take the time of their bytes but arrive at once, so no rank waits for
//! one.

use std::ffi::{c_int, c_uint, c_void};

use crate::action::{Action, bytes};
use crate::call::{Failure, call};
use crate::communicator::Communicator;
use crate::group;

/// NCCL's descriptor: how often to wait for which signal of which peer.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Awaited {
    count: c_int,
    peer: c_int,
    signal: c_int,
    context: c_int,
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclPutSignal(
    _from: *const c_void,
    count: usize,
    data_type: c_int,
    peer: c_int,
    _window: *mut c_void,
    _offset: usize,
    signal: c_int,
    context: c_int,
    flags: c_uint,
    comm: usize,
    stream: usize,
) -> c_int {
    put(count, data_type, peer, (signal, context, flags), comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclSignal(
    peer: c_int,
    signal: c_int,
    context: c_int,
    flags: c_uint,
    comm: usize,
    stream: usize,
) -> c_int {
    put(0, 0, peer, (signal, context, flags), comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclWaitSignal(
    count: c_int,
    awaited: *const Awaited,
    comm: usize,
    stream: usize,
) -> c_int {
    call(|driver| {
        let comm = Communicator::of(comm)?;
        if awaited.is_null() || count < 1 {
            return Err(Failure::InvalidArgument);
        }
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: NCCL requires as many elements as the caller states.
            let one = unsafe { &*awaited.add(index) };
            comm.member(one.peer)?;
            if (one.signal, one.context) != (0, 0) || one.count < 1 {
                return Err(Failure::InvalidArgument);
            }
        }
        group::submit(driver, comm, stream, Action::Put { bytes: 0 })
    })
}

/// Signal, context and flags must be 0.
fn put(
    count: usize,
    data_type: c_int,
    peer: c_int,
    reserved: (c_int, c_int, c_uint),
    comm: usize,
    stream: usize,
) -> c_int {
    call(|driver| {
        let comm = Communicator::of(comm)?;
        comm.member(peer)?;
        if reserved != (0, 0, 0) {
            return Err(Failure::InvalidArgument);
        }
        group::submit(driver, comm, stream, Action::Put { bytes: bytes(count, data_type)? })
    })
}
