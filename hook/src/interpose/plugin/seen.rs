//! Turns the plugin's events into operations on communicators that the preload does not see.

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
    ptr,
};

use cudarc::{nccl::sys::ncclComm_t, runtime::sys::cudaStream_t};
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    id::CommunicatorId,
    plan::{Algorithm, Plan, Protocol},
};

use super::{
    TAG,
    contexts::Context,
    layout::{CollApi, Descriptor, kind},
    plans::{self, Kind},
};
use crate::{
    interpose::{
        guard,
        nccl::{
            IN_PROGRESS,
            operations::{self, Arguments, Elements},
        },
    },
    observe::{communicator::Slot, group::Group, lane::Lane},
};

/// The group of calls that this thread has open in NCCL.
#[derive(Clone, Copy)]
struct Open {
    /// The handle that NCCL got for it; 0 while there is no group.
    handle: usize,
    /// Whether it has launched something on this thread.
    launched: bool,
}

const NONE: Open = Open { handle: 0, launched: false };

thread_local! {
    static OPEN: Cell<Open> = const { Cell::new(NONE) };
}

/// Handles the begin of an event. `theirs` is the chained plugin's handle. If the hook tracks the event,
/// returns the handle that NCCL gets.
///
/// # Safety
/// The descriptor has the layout of its version.
pub(super) unsafe fn start(
    lane: &Lane,
    inside: bool,
    context: &'static Context,
    event: Descriptor,
    theirs: *mut c_void,
) -> Option<*mut c_void> {
    // SAFETY: the caller promises it.
    let kind = unsafe { event.kind() };
    let watched = kind::GROUP_API | kind::COLL_API | kind::P2P_API | kind::COLL | kind::P2P;
    if kind & watched == 0 {
        return None;
    }
    let alone = context.alone(lane, inside);
    match kind {
        kind::GROUP_API => {
            alone?;
            return Some(begin_group(lane, theirs));
        }
        kind::COLL_API => {
            // SAFETY: it is an event of this type.
            unsafe { call(lane, context, alone?, event) };
        }
        kind::COLL => {
            // SAFETY: as above.
            unsafe { launched(lane, context, alone, event) };
        }
        kind::P2P => {
            // SAFETY: as above.
            unsafe { exchanged(lane, alone?, event) };
        }
        _ => {}
    }
    None
}

fn begin_group(lane: &Lane, theirs: *mut c_void) -> *mut c_void {
    let open = OPEN.get();
    if open.handle != 0 {
        // NCCL did not report the previous group's end, so its operations may not have been launched.
        let _ = lane.group(|group| group.discard(lane, 0));
    }
    let handle = if theirs.is_null() { ptr::without_provenance_mut(TAG | 1) } else { theirs };
    OPEN.set(Open { handle: handle.addr(), launched: false });
    let _ = lane.group(Group::open);
    handle
}

/// Starts timing the group with this handle, because NCCL begins to launch it.
pub(super) fn launches(handle: *mut c_void) {
    if OPEN.get().handle == handle.addr() && !handle.is_null() {
        guard::called_back(|lane, _| lane.group(|group| group.launch(lane)));
    }
}

/// Ends the group with this handle, if it is a group's.
pub(super) fn stop(handle: *mut c_void) {
    let open = OPEN.get();
    if open.handle != handle.addr() || handle.is_null() {
        return;
    }
    OPEN.set(NONE);
    // A group without a launch here: a thread of NCCL launches it at another time, or NCCL reports no event
    // for its kind of kernel.
    let result = if open.launched { 0 } else { IN_PROGRESS };
    guard::called_back(|lane, _| lane.group(|group| group.close(lane, result)));
}

/// Adds a called collective to its group.
///
/// # Safety
/// The event is one of this type.
unsafe fn call(lane: &Lane, context: &'static Context, handle: ncclComm_t, event: Descriptor) {
    // SAFETY: the caller promises it.
    let (name, count, datatype, root, stream) = unsafe {
        (
            event.name(CollApi::FUNC),
            event.whole(CollApi::COUNT),
            event.name(CollApi::DATATYPE),
            event.int(CollApi::ROOT),
            event.address(CollApi::STREAM),
        )
    };
    let Some(operation) = operation(name).filter(|operation| operation.is_collective()) else { return };
    let has_root = matches!(
        operation,
        Operation::Broadcast | Operation::Reduce | Operation::Gather | Operation::Scatter
    );
    let arguments = Arguments { root: has_root.then_some(root), unseen: true, ..Arguments::default() };
    if OPEN.get().handle == 0 {
        return;
    }
    lane.counters.by_plugin.add(1);
    let stream: cudaStream_t = stream.cast();
    context.locate(lane, stream);
    let elements = Elements { count: count as usize, datatype: number(datatype) };
    operations::called(lane, operation, elements, arguments, handle, stream);
}

/// The operation and the data type of a launch: versions of the interface have their names, or their
/// numbers.
///
/// # Safety
/// The event is of a type that has these fields.
unsafe fn work(event: Descriptor, func: usize, datatype: usize) -> (Option<Operation>, c_int) {
    // SAFETY: the caller promises it.
    unsafe {
        if event.layout.numbers {
            (numbered(event.byte(func)), c_int::from(event.byte(datatype)))
        } else {
            (operation(event.name(func)), number(event.name(datatype)))
        }
    }
}

/// Keeps the plan of a launched collective, and counts it if NCCL does not report the communicator's calls.
///
/// # Safety
/// The event is one of this type.
unsafe fn launched(lane: &Lane, context: &Context, alone: Option<ncclComm_t>, event: Descriptor) {
    let fields = event.layout.coll;
    // SAFETY: the caller promises it.
    let (operation, datatype, plan, count, hash, root) = unsafe {
        let (operation, datatype) = work(event, fields.func, fields.datatype);
        let channels = event.byte(fields.channels);
        let plan = if event.layout.numbers {
            let (algorithm, protocol) = (event.byte(fields.algo), event.byte(fields.proto));
            Plan {
                algorithm: Algorithm::from_nccl(algorithm),
                protocol: Protocol::from_nccl(protocol),
                channels,
            }
        } else {
            let (algorithm, protocol) = (event.name(fields.algo), event.name(fields.proto));
            Plan { algorithm: Algorithm::named(algorithm), protocol: Protocol::named(protocol), channels }
        };
        let hash = fields.hash.map(|hash| event.whole(hash));
        (operation, datatype, plan, event.whole(fields.count), hash, event.int(fields.root))
    };
    let Some(operation) = operation else { return };
    let mut open = OPEN.get();
    if open.handle != 0 {
        open.launched = true;
        OPEN.set(open);
    }
    let communicator = hash.map_or_else(|| context.id(), CommunicatorId);
    let observer = lane.observer();
    let size = match context.size() {
        0 => observer.communicators.open().find(|slot| slot.id() == communicator).map_or(0, Slot::size),
        size => size,
    };
    let element = DataType::from_nccl(datatype);
    let bytes = operation.message_bytes(count, element.bytes(), size);
    if size > 0 {
        plans::learn(Kind { communicator, operation, datatype: element, bytes }, plan);
    }
    // Newer versions of the interface report calls, so their launches do not count.
    if let Some(handle) = alone.filter(|_| event.layout.narrow_type) {
        lane.counters.by_plugin.add(1);
        let arguments = Arguments { root: Some(root), ..Arguments::default() };
        let elements = Elements { count: count as usize, datatype };
        operations::launched_unseen(lane, operation, elements, arguments, handle);
    }
}

/// Counts a launched send or receive.
///
/// # Safety
/// The event is one of this type.
unsafe fn exchanged(lane: &Lane, handle: ncclComm_t, event: Descriptor) {
    let fields = event.layout.p2p;
    // SAFETY: the caller promises it.
    let (operation, datatype, count, peer) = unsafe {
        let (operation, datatype) = work(event, fields.func, fields.datatype);
        (operation, datatype, event.whole(fields.count), event.int(fields.peer))
    };
    let Some(operation @ (Operation::Send | Operation::Recv)) = operation else { return };
    lane.counters.by_plugin.add(1);
    let arguments = Arguments { peer: Some(peer), ..Arguments::default() };
    let elements = Elements { count: count as usize, datatype };
    operations::launched_unseen(lane, operation, elements, arguments, handle);
}

fn operation(name: &[u8]) -> Option<Operation> {
    Some(match name {
        b"AllReduce" => Operation::AllReduce,
        b"AllGather" => Operation::AllGather,
        b"ReduceScatter" => Operation::ReduceScatter,
        b"Broadcast" => Operation::Broadcast,
        b"Reduce" => Operation::Reduce,
        b"AlltoAll" => Operation::AlltoAll,
        b"Gather" => Operation::Gather,
        b"Scatter" => Operation::Scatter,
        b"Send" => Operation::Send,
        b"Recv" => Operation::Recv,
        _ => return None,
    })
}

/// Version 1 identifies functions by number.
fn numbered(function: u8) -> Option<Operation> {
    Some(match function {
        0 => Operation::Broadcast,
        1 => Operation::Reduce,
        2 => Operation::AllGather,
        3 => Operation::ReduceScatter,
        4 => Operation::AllReduce,
        6 => Operation::Send,
        7 => Operation::Recv,
        _ => return None,
    })
}

/// The `ncclDataType_t` with this name. NCCL has no name for unsigned bytes.
fn number(name: &[u8]) -> c_int {
    match name {
        b"ncclInt8" => 0,
        b"ncclInt32" => 2,
        b"ncclUint32" => 3,
        b"ncclInt64" => 4,
        b"ncclUint64" => 5,
        b"ncclFloat16" => 6,
        b"ncclFloat32" => 7,
        b"ncclFloat64" => 8,
        b"ncclBfloat16" => 9,
        b"ncclFloat8e4m3" => 10,
        b"ncclFloat8e5m2" => 11,
        _ => 1,
    }
}
