//! Follows a communicator from the call that creates it to a slot in the table.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use cudarc::nccl::sys::ncclComm_t;
use xpu_wire::{id::CommunicatorId, ledger::Call};

use super::{
    IN_PROGRESS, INVALID_ARGUMENT, Identity, config, device_of, identity, memory, ncclCommCount,
    ncclCommUserRank, pending::PendingCommunicator,
};
use crate::{
    observe::{
        communicator::{Lineage, Name, Origin, Slot},
        lane::Lane,
    },
    process::clock::coarse_now,
};

/// Since this version (2.14), a communicator created from an id has its handle when the call returns, even if
/// it is not ready.
const AT_ONCE: c_int = 21_400;

/// A communicator that a call creates: at once, at the end of the call's group, or later in a thread of NCCL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    /// Where NCCL writes the handle.
    place: *const ncclComm_t,
    /// The handle, if it is known before the communicator is created.
    handle: ncclComm_t,
    /// The parent's handle and slot, and how this one derives from the parent.
    parent: Option<(ncclComm_t, u16, Lineage)>,
    origin: Origin,
}

impl Joining {
    fn new(place: *const ncclComm_t, origin: Origin) -> Self {
        Self { place, handle: ptr::null_mut(), parent: None, origin }
    }

    /// Continues after the call: at once, or at the end of the group.
    ///
    /// # Safety
    /// The call has just returned, and the place is valid until the call's group has ended, as NCCL requires.
    unsafe fn begun(mut self, lane: &Lane, result: c_int) {
        if let Some((_, slot, lineage)) = self.parent.filter(|_| result != INVALID_ARGUMENT) {
            lane.observer().communicators.slot(slot).add_child(lineage);
        }
        if (result != 0 && result != IN_PROGRESS) || self.place.is_null() {
            return;
        }
        if self.origin.size > 0 && identity::version() >= AT_ONCE {
            // SAFETY: the caller promises it.
            self.handle = unsafe { *self.place };
        }
        if lane.is_grouping() {
            let _ = lane.group(|group| group.join(self));
        } else {
            // SAFETY: the caller promises it.
            unsafe { self.made(lane, result) };
        }
    }

    /// Adds the communicator to the table, after the call or the outermost end of the group that created it
    /// with this result.
    ///
    /// # Safety
    /// If the result is success, the place is valid: NCCL has just written the handle there.
    pub(crate) unsafe fn made(self, lane: &Lane, result: c_int) {
        let observer = lane.observer();
        let mut origin = self.origin;
        if self.handle.is_null() && result == IN_PROGRESS {
            let parent = self.parent.map_or(ptr::null_mut(), |(parent, ..)| parent);
            // If the table is full, calls on the communicator will count as unknown.
            observer.communicators.pending.add(PendingCommunicator { place: self.place, parent, origin });
            return;
        }
        // SAFETY: the caller promises it.
        let handle = if self.handle.is_null() { unsafe { *self.place } } else { self.handle };
        if handle.is_null() {
            return;
        }
        if origin.size == 0 {
            // SAFETY: the handle is that of a communicator that was created successfully.
            (origin.rank, origin.size) = unsafe { about(handle) }.unwrap_or_default();
        }
        observer.communicators.insert(observer.ledger(), handle, &origin);
    }
}

/// Rank and size of a communicator.
///
/// # Safety
/// The handle is that of a communicator, and no other thread is in a call on it. NCCL answers if the
/// communicator is ready.
unsafe fn about(handle: ncclComm_t) -> Option<(u32, u32)> {
    let (mut rank, mut size): (c_int, c_int) = (0, 0);
    // SAFETY: the caller promises it; the places outlive the calls.
    let answered = unsafe {
        ncclCommUserRank(handle, &raw mut rank) == Some(0) && ncclCommCount(handle, &raw mut size) == Some(0)
    };
    answered.then_some((u32::try_from(rank).ok()?, u32::try_from(size).ok()?))
}

/// The communicator of a program's call: the number of its slot, and the slot. Properties that were unknown
/// at its creation are queried from NCCL now.
#[inline]
pub(super) fn find(lane: &Lane, handle: ncclComm_t) -> Option<(u16, &'static Slot)> {
    match lane.observer().communicators.find_slot(handle) {
        Some((index, slot)) if slot.is_settled() => Some((index, slot)),
        known => find_unsettled(lane, handle, known.map(|(index, _)| index)),
    }
}

#[cold]
fn find_unsettled(lane: &Lane, handle: ncclComm_t, known: Option<u16>) -> Option<(u16, &'static Slot)> {
    let observer = lane.observer();
    let communicators = &observer.communicators;
    let made = || {
        let (_, origin) = communicators.pending.take_made(|made, _| made == handle)?;
        communicators.insert(observer.ledger(), handle, &origin)
    };
    let Some(index) = known.or_else(made) else {
        communicators.miss();
        return None;
    };
    let slot = communicators.slot(index);
    if slot.size() == 0 {
        // SAFETY: the program uses this communicator now, which is allowed only when it is ready, and in one
        // thread at a time.
        let Some((rank, size)) = (unsafe { about(handle) }) else {
            communicators.miss();
            return None;
        };
        communicators.settle(observer.ledger(), index, rank, size);
    }
    // NCCL is queried before the program's own call, because another thread may destroy the communicator
    // after that call.
    slot.set_device(device_of(handle));
    if let Some(device) = slot.device().filter(|_| slot.size() > 1) {
        observer.gpus.uses(device);
    }
    Some((index, slot))
}

/// Uses a communicator's state that NCCL has reported to the program. If it is ready, its pending children
/// are added to the table, and its unknown rank and size are queried.
pub(super) fn reported(lane: &Lane, handle: ncclComm_t, state: c_int) {
    let observer = lane.observer();
    let communicators = &observer.communicators;
    match state {
        0 => {
            let of_parent = |_, parent| parent == handle;
            while let Some((made, origin)) = communicators.pending.take_made(of_parent) {
                communicators.insert(observer.ledger(), made, &origin);
            }
            let index = communicators.find(handle).filter(|&index| communicators.slot(index).size() == 0);
            if let Some(index) = index
                // SAFETY: this thread has just queried the communicator's state, and it is ready.
                && let Some((rank, size)) = unsafe { about(handle) }
            {
                communicators.settle(observer.ledger(), index, rank, size);
            }
        }
        IN_PROGRESS => {}
        _ => communicators.pending.forget_children(handle),
    }
}

/// Notes that this thread is in a call that creates communicators. The call may block for long, until the
/// other ranks arrive.
fn entered(lane: &Lane) {
    memory::begin(lane);
    lane.entered(Call::CommunicatorInit, coarse_now());
}

/// Continues with the communicators of a call, after the call.
///
/// # Safety
/// As for [`Joining::begun`].
pub(super) unsafe fn end(lane: &Lane, joining: impl IntoIterator<Item = Joining>, result: c_int) {
    lane.left();
    memory::end(lane);
    for joining in joining {
        // SAFETY: the caller promises it.
        unsafe { joining.begun(lane, result) };
    }
}

/// The properties of a communicator without a parent. `None` if NCCL will refuse it.
fn first(identity: Identity, name: Name, rank: c_int, size: c_int) -> Option<Origin> {
    let (rank, size) = (u32::try_from(rank).ok()?, u32::try_from(size).ok()?);
    Some(Origin { identity, parent: CommunicatorId(0), name, rank, size })
}

/// # Safety
/// The configuration is as NCCL documents.
pub(super) unsafe fn begin_init(
    lane: &Lane,
    place: *const ncclComm_t,
    identity: Identity,
    config: *const c_void,
    rank: c_int,
    size: c_int,
) -> Option<Joining> {
    entered(lane);
    // SAFETY: the caller promises it.
    let name = unsafe { config::name(config) };
    Some(Joining::new(place, first(identity, name, rank, size)?))
}

/// One communicator for each of `count` GPUs of this process.
pub(super) fn begin_all(
    lane: &Lane,
    places: *const ncclComm_t,
    count: c_int,
) -> impl Iterator<Item = Joining> + use<> {
    entered(lane);
    let identity = Identity::of_this_process();
    (0..count).filter(move |_| !places.is_null()).filter_map(move |rank| {
        let origin = first(identity, Name::default(), rank, count)?;
        Some(Joining::new(places.wrapping_add(rank as usize), origin))
    })
}

/// A communicator with a parent. With a NULL place, the call creates none, but still counts as a child.
///
/// # Safety
/// The configuration is as NCCL documents.
pub(super) unsafe fn begin_child(
    lane: &Lane,
    place: *const ncclComm_t,
    parent: ncclComm_t,
    config: *const c_void,
    lineage: Lineage,
    identity: impl FnOnce(Identity, u32) -> Identity,
) -> Option<Joining> {
    entered(lane);
    let (index, slot) = find(lane, parent)?;
    let identity = identity(slot.identity(), slot.next_child(lineage));
    // Without a configuration, it has the parent's name.
    // SAFETY: the caller promises it.
    let name = if config.is_null() { slot.name() } else { unsafe { config::name(config) } };
    let origin = Origin { identity, parent: slot.id(), name, rank: 0, size: 0 };
    Some(Joining { parent: Some((parent, index, lineage)), ..Joining::new(place, origin) })
}

/// A grown communicator: the parent's ranks keep their numbers.
///
/// # Safety
/// The configuration is as NCCL documents.
pub(super) unsafe fn begin_grown(
    lane: &Lane,
    place: *const ncclComm_t,
    parent: ncclComm_t,
    config: *const c_void,
    size: c_int,
) -> Option<Joining> {
    let size = u32::try_from(size).unwrap_or(0);
    let grown = |parent: Identity, number| parent.grown(number, size);
    // SAFETY: the caller promises it.
    let mut joining = unsafe { begin_child(lane, place, parent, config, Lineage::Counted, grown) }?;
    let (_, index, _) = joining.parent?;
    joining.origin.rank = lane.observer().communicators.slot(index).rank();
    joining.origin.size = size;
    Some(joining)
}
