//! Splitting a communicator: its ranks tell each other their colors in the parent's room.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use crate::call::{Failure, call, put};
use crate::communicator::Communicator;
use crate::group;
use crate::lifetime::Joining;

/// `NCCL_SPLIT_NOCOLOR`: this rank gets no communicator.
const NO_COLOR: c_int = -1;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommSplit(
    comm: usize,
    color: c_int,
    key: c_int,
    new_comm: *mut usize,
    _config: *const c_void,
) -> c_int {
    call(|driver| {
        if color < NO_COLOR || new_comm.is_null() {
            return Err(Failure::InvalidArgument);
        }
        let parent = Communicator::of(comm)?;
        let ordinal = parent.next_split();
        let members = members(&parent, color, key)?;
        let Some(rank) = members.iter().position(|member| *member == parent.rank) else {
            // SAFETY: NCCL asks its callers for a writable pointer.
            return unsafe { put(new_comm, 0) };
        };
        let [rank, ranks] = [rank, members.len()].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let key = parent.key.child(ordinal, color);
        // SAFETY: NCCL asks its callers for a pointer that is writable until the group ends.
        group::join(unsafe { Joining::announce(driver, key, rank, ranks, new_comm) }?)
    })
}

/// The parent's ranks with our color, in the order of their keys; none without a color.
fn members(parent: &Communicator, color: c_int, key: c_int) -> Result<Vec<u32>, Failure> {
    let room = &parent.room;
    let mine = room.seat(parent.rank);
    mine.split_color.store(color, Ordering::Relaxed);
    mine.split_key.store(key, Ordering::Relaxed);
    // Once so that all have written, and once more so that nobody writes again before all have read.
    if !room.barrier(&parent.aborted) {
        return Err(Failure::System);
    }
    let mut same: Vec<_> = (0..room.ranks)
        .map(|rank| (room.seat(rank), rank))
        .filter(|(seat, _)| color != NO_COLOR && seat.split_color.load(Ordering::Relaxed) == color)
        .map(|(seat, rank)| (seat.split_key.load(Ordering::Relaxed), rank))
        .collect();
    same.sort_unstable();
    if !room.barrier(&parent.aborted) {
        return Err(Failure::System);
    }
    Ok(same.into_iter().map(|(_, rank)| rank).collect())
}
