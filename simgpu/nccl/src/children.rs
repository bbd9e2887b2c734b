//! Communicators made from others: split, shrunk and grown. Their ranks exchange colors in the parent's
//! rendezvous.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::atomic::Ordering;

use crate::call::{Failure, call, put};
use crate::communicator::{Communicator, Identity, Member};
use crate::config;
use crate::greeting::Greeting;
use crate::group;
use crate::job::{Job, Place};
use crate::key::{Key, UniqueId};

/// `NCCL_SPLIT_NOCOLOR`: this rank gets no communicator.
const NO_COLOR: c_int = -1;

/// `NCCL_SHRINK_ABORT`: running operations of the parent are aborted.
const ABORT: c_int = 1;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommSplit(
    comm: usize,
    color: c_int,
    key: c_int,
    new_comm: *mut usize,
    config: *const c_void,
) -> c_int {
    call(|_| {
        if color < NO_COLOR || new_comm.is_null() {
            return Err(Failure::InvalidArgument);
        }
        let member = Member::of(comm)?;
        let parent = member.ready()?;
        // SAFETY: passed on unchanged.
        let non_blocking = unsafe { config::is_non_blocking(config, member.non_blocking) }?;
        let ordinal = parent.next_child();
        let identity = move || {
            let members = members(&parent, color, key)?;
            let Some(rank) = members.iter().position(|member| *member == parent.rank) else {
                return Ok(None);
            };
            let [rank, ranks] = [rank, members.len()].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            let (key, greeting) = (parent.key.split(ordinal, color), parent.greeting.split(ordinal, color));
            Ok(Some((Identity { key, greeting, rank, device: parent.device }, ranks)))
        };
        // SAFETY: NCCL requires a pointer that is writable until the communicator is made.
        group::run(vec![unsafe { Job::child(member, Place(new_comm), non_blocking, identity) }])
    })
}

/// The excluded ranks take no part, and may have ended. As in NCCL, the program's list gets sorted.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommShrink(
    comm: usize,
    excluded: *mut c_int,
    excluded_count: c_int,
    new_comm: *mut usize,
    config: *const c_void,
    flags: c_int,
) -> c_int {
    call(|_| {
        let member = Member::of(comm)?;
        let parent = member.ready()?;
        if new_comm.is_null() || excluded.is_null() || excluded_count < 1 {
            return Err(Failure::InvalidArgument);
        }
        // SAFETY: NCCL requires as many ranks as the caller states, and sorts them.
        let list =
            unsafe { slice::from_raw_parts_mut(excluded, usize::try_from(excluded_count).unwrap_or(0)) };
        list.sort_unstable();
        let without = list.iter().map(|rank| parent.member(*rank)).collect::<Result<Vec<_>, _>>()?;
        if without.contains(&parent.rank) {
            return Err(Failure::InvalidArgument);
        }
        // SAFETY: passed on unchanged.
        let non_blocking = unsafe { config::is_non_blocking(config, member.non_blocking) }?;
        if flags & ABORT != 0 {
            member.aborted.store(true, Ordering::Relaxed);
        }
        let ordinal = parent.next_shrunk();
        let identity = move || {
            let before = (0..parent.rank).filter(|rank| !without.contains(rank)).count();
            let after = (parent.rank..parent.ranks()).filter(|rank| !without.contains(rank)).count();
            let [rank, ranks] =
                [before, before + after].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            // NCCL does not number these.
            let (key, greeting) = (parent.key.shrunk(ordinal, &without), parent.greeting.split(0, 0));
            Ok(Some((Identity { key, greeting, rank, device: parent.device }, ranks)))
        };
        // SAFETY: NCCL requires a pointer that is writable until the communicator is made.
        group::run(vec![unsafe { Job::child(member, Place(new_comm), non_blocking, identity) }])
    })
}

/// The id that a remaining rank gives to the new ranks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommGetUniqueId(comm: usize, id: *mut UniqueId) -> c_int {
    call(|_| {
        let parent = Communicator::of(comm)?;
        // SAFETY: NCCL requires a writable pointer.
        unsafe { put(id, UniqueId::with_magic(parent.greeting.grown_magic(parent.peek_next_child()))) }
    })
}

/// Remaining ranks keep their numbers. A new rank passes no parent, but its number and the id that it was
/// given.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommGrow(
    comm: usize,
    ranks: c_int,
    id: *const UniqueId,
    rank: c_int,
    new_comm: *mut usize,
    config: *const c_void,
) -> c_int {
    call(|driver| {
        let ranks = u32::try_from(ranks).map_err(|_negative| Failure::InvalidArgument)?;
        let (magic, rank, device, inherited) = if comm == 0 {
            let rank = u32::try_from(rank).map_err(|_negative| Failure::InvalidArgument)?;
            if id.is_null() {
                return Err(Failure::InvalidArgument);
            }
            // SAFETY: NCCL requires an id. The other function was found by `Driver::find`, and takes nothing.
            unsafe { ((*id).magic(), rank, (driver.current_device)(), false) }
        } else {
            let member = Member::of(comm)?;
            let parent = member.ready()?;
            if rank != -1 || ranks <= parent.ranks() {
                return Err(Failure::InvalidArgument);
            }
            (
                parent.greeting.grown_magic(parent.next_child()),
                parent.rank,
                parent.device,
                member.non_blocking,
            )
        };
        let (key, greeting) = (Key::grown(magic, ranks), Greeting::grown(magic, ranks));
        // SAFETY: passed on unchanged.
        let non_blocking = unsafe { config::is_non_blocking(config, inherited) }?;
        // SAFETY: NCCL requires a writable pointer.
        let job = unsafe {
            Job::init(Identity { key, greeting, rank, device }, ranks, Place(new_comm), non_blocking)
        };
        group::run(vec![job?])
    })
}

/// The parent's ranks with this rank's color, in the order of their keys. Empty without a color.
fn members(parent: &Communicator, color: c_int, key: c_int) -> Result<Vec<u32>, Failure> {
    let rendezvous = &parent.rendezvous;
    let mine = rendezvous.rank_slot(parent.rank);
    mine.split_color.store(color, Ordering::Relaxed);
    mine.split_key.store(key, Ordering::Relaxed);
    // Waits twice: until all have written, and until all have read, before any rank writes again.
    if !rendezvous.barrier(&parent.aborted) {
        return Err(Failure::System);
    }
    let mut same: Vec<_> = (0..rendezvous.ranks)
        .map(|rank| (rendezvous.rank_slot(rank), rank))
        .filter(|(slot, _)| color != NO_COLOR && slot.split_color.load(Ordering::Relaxed) == color)
        .map(|(slot, rank)| (slot.split_key.load(Ordering::Relaxed), rank))
        .collect();
    same.sort_unstable();
    if !rendezvous.barrier(&parent.aborted) {
        return Err(Failure::System);
    }
    Ok(same.into_iter().map(|(_, rank)| rank).collect())
}
