//! How communicators are made and destroyed, except those made from others.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::atomic::Ordering;

use simgpu_engine::driver::Driver;

use crate::call::{Failure, call, put};
use crate::communicator::{COMMUNICATORS, Communicator, Identity, Member};
use crate::config;
use crate::file;
use crate::group;
use crate::job::{Job, Place};
use crate::key::{Key, UniqueId};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    call(|_| {
        file::sweep();
        let new = UniqueId::new().ok_or(Failure::System)?;
        // SAFETY: NCCL requires a writable pointer.
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
    call(|driver| unsafe { init(driver, Place(comm), ranks, &id, rank, false) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut usize,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const c_void,
) -> c_int {
    // SAFETY: passed on unchanged.
    call(|driver| unsafe {
        let non_blocking = config::is_non_blocking(config, false)?;
        init(driver, Place(comm), ranks, &id, rank, non_blocking)
    })
}

/// Ranks join by the first id. In NCCL the others only spread the load.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommInitRankScalable(
    comm: *mut usize,
    ranks: c_int,
    rank: c_int,
    id_count: c_int,
    ids: *const UniqueId,
    config: *const c_void,
) -> c_int {
    call(|driver| {
        if ids.is_null() || !(1..=ranks).contains(&id_count) {
            return Err(Failure::InvalidArgument);
        }
        // SAFETY: passed on unchanged; there is at least one id.
        unsafe {
            let non_blocking = config::is_non_blocking(config, false)?;
            init(driver, Place(comm), ranks, &*ids, rank, non_blocking)
        }
    })
}

/// All ranks belong to this process, one on each device of the list, or on the first devices.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommInitAll(
    comms: *mut usize,
    count: c_int,
    devices: *const c_int,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { init_all(comms, count, devices) }
}

/// # Safety
/// As [`ncclCommInitAll`].
pub(crate) unsafe fn init_all(comms: *mut usize, count: c_int, devices: *const c_int) -> c_int {
    call(|_| {
        let ranks = u32::try_from(count).map_err(|_negative| Failure::InvalidArgument)?;
        if comms.is_null() {
            return Err(Failure::InvalidArgument);
        }
        let list: Vec<c_int> = if devices.is_null() {
            (0..count).collect()
        } else {
            // SAFETY: NCCL requires as many devices as the caller states.
            unsafe { slice::from_raw_parts(devices, ranks as usize) }.to_vec()
        };
        let id = UniqueId::new().ok_or(Failure::System)?;
        let (key, greeting) = (Key::of(&id), id.greeting());
        let jobs = (0..ranks).zip(list).map(|(rank, device)| {
            let identity = Identity { key, greeting, rank, device };
            // SAFETY: NCCL requires as many places as devices.
            unsafe { Job::init(identity, ranks, Place(comms.add(rank as usize)), false) }
        });
        group::run(jobs.collect::<Result<_, _>>()?)
    })
}

/// # Safety
/// The place must be NULL or writable, as NCCL requires of its callers.
pub(crate) unsafe fn init(
    driver: Driver,
    place: Place,
    ranks: c_int,
    id: &UniqueId,
    rank: c_int,
    non_blocking: bool,
) -> Result<(), Failure> {
    let [ranks, rank] =
        [ranks, rank].map(|number| u32::try_from(number).map_err(|_negative| Failure::InvalidArgument));
    // SAFETY: found by `Driver::find`; it takes nothing.
    let device = unsafe { (driver.current_device)() };
    let identity = Identity { key: Key::of(id), greeting: id.greeting(), rank: rank?, device };
    // SAFETY: this function's own condition.
    group::run(vec![unsafe { Job::init(identity, ranks?, place, non_blocking) }?])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommFinalize(comm: usize) -> c_int {
    call(|_| Communicator::of(comm).map(drop))
}

/// Does not wait for running work, which continues.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommDestroy(comm: usize) -> c_int {
    call(|_| destroy(comm))
}

pub(crate) fn destroy(comm: usize) -> Result<(), Failure> {
    let member = COMMUNICATORS.remove(comm).ok_or(Failure::InvalidArgument)?;
    member.is_gone();
    Ok(())
}

/// Aborts pending work in this process, within a quarter of a second. Other ranks are not notified.
/// Unfinished creations stop.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommAbort(comm: usize) -> c_int {
    call(|_| {
        let member = COMMUNICATORS.remove(comm).ok_or(Failure::InvalidArgument)?;
        member.aborted.store(true, Ordering::Relaxed);
        member.wait_for_births();
        member.is_gone();
        Ok(())
    })
}

/// As an abort, but the communicator stays, and may be shrunk or destroyed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommRevoke(comm: usize, _flags: c_int) -> c_int {
    call(|_| {
        Member::of(comm)?.aborted.store(true, Ordering::Relaxed);
        Ok(())
    })
}

/// There is no memory to free.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommSuspend(comm: usize, _flags: c_int) -> c_int {
    call(|_| Communicator::of(comm).map(drop))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclCommResume(comm: usize) -> c_int {
    call(|_| Communicator::of(comm).map(drop))
}
