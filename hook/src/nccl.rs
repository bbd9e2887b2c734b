//! NCCL: collectives, sends and receives, groups, and the life of communicators.
//!
//! Ranks are switched off and on one after another, and must number a communicator's collectives alike all the same. So while
//! observing is off, these calls still keep their numbers and the ledger; they are not timed, recorded or counted.

use std::ffi::{CStr, c_int, c_void};

use cudarc::{nccl::sys::ncclComm_t, runtime::sys::cudaStream_t};
use xpu_shared::{collective::Operation, datatype::DataType, id::CommunicatorId, ledger::Call};

use crate::{
    communicator::{UniqueId, split_of},
    group::Message,
    interpose::interpose,
    lane::{Lane, Timing, coarse_now},
    runtime, switch,
    symbol::foreign,
};

const NCCL: &[&CStr] = &[c"libnccl.so.2"];

/// `ncclSystemError`
const MISSING: c_int = 2;
/// `ncclInProgress`: a non-blocking communicator goes on in another thread.
pub(crate) const IN_PROGRESS: c_int = 7;

foreign! { fn ncclCommUserRank(communicator: ncclComm_t, rank: *mut c_int) -> c_int in NCCL }
foreign! { fn ncclCommCount(communicator: ncclComm_t, count: *mut c_int) -> c_int in NCCL }

/// An operation between its call and its return.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    message: Message,
    timing: Timing,
    queued: bool,
}

fn begin(
    lane: &Lane,
    operation: Operation,
    count: usize,
    datatype: c_int,
    communicator: ncclComm_t,
    stream: cudaStream_t,
) -> Option<Ticket> {
    let observer = lane.observer();
    let index = find(lane, communicator)?;
    let slot = observer.communicators.slot(index);
    let datatype = DataType::from_nccl(datatype);
    let count = count as u64;
    let message = Message {
        communicator: index,
        operation,
        datatype,
        bytes: operation.message_bytes(count, datatype.bytes(), slot.size()),
        bus_bytes: operation.bus_bytes(count, datatype.bytes(), slot.size()),
        stream,
        observed: switch::is_on(),
        captured: observer.may_capture() && runtime::is_capturing(stream) == Some(true),
    };
    let now = coarse_now();
    if let Some(line) = slot.line(observer.ledger()) {
        if operation.is_collective() {
            line.enter(1, operation, message.bytes, now);
        } else {
            line.point_to_point();
        }
    }
    if lane.group(|group| group.is_open()) {
        return Some(Ticket { message, timing: Timing::Not, queued: true });
    }
    lane.entered(Call::Collective, now);
    let mut timing = Timing::Not;
    let timeable = slot.size() > 1 && message.observed && !message.captured;
    if timeable && slot.choose(operation.is_collective()) {
        timing = lane.start_timing(stream);
        if matches!(timing, Timing::Not) {
            lane.counters.untimed.add(1);
        }
    }
    Some(Ticket { message, timing, queued: false })
}

fn end(lane: &Lane, ticket: Ticket, result: c_int) {
    let Ticket { message, timing, queued } = ticket;
    let observer = lane.observer();
    let slot = observer.communicators.slot(message.communicator);
    let line = slot.line(observer.ledger()).filter(|_| message.operation.is_collective());
    if queued {
        let kept = result == 0 && lane.group(|group| group.queue(message));
        if let Some(line) = line.filter(|_| !kept) {
            line.retract(1);
        }
        return;
    }
    lane.left();
    if result != 0 && result != IN_PROGRESS {
        lane.drop_timing(timing);
        if let Some(line) = line {
            line.retract(1);
        }
        return;
    }
    let timer = if result == 0 {
        lane.stop_timing(timing, message.stream)
    } else {
        lane.drop_timing(timing);
        None
    };
    message.launched(lane, timer);
}

/// A communicator that a call makes, now or when its group ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    /// Where NCCL writes the handle.
    place: *const ncclComm_t,
    id: CommunicatorId,
    parent: CommunicatorId,
    /// Rank and size; those of a split only NCCL knows.
    known: Option<(c_int, c_int)>,
}

impl Joining {
    /// After the call.
    ///
    /// # Safety
    /// NCCL writes the handle to the place before it answers with success, or before it ends the group this is in.
    unsafe fn begun(self, lane: &Lane, result: c_int) {
        lane.left();
        if result != 0 && result != IN_PROGRESS {
            return;
        }
        if lane.group(|group| group.is_open()) {
            lane.group(|group| group.join(self));
        } else {
            // SAFETY: the caller promises it.
            unsafe { self.made(lane, result) };
        }
    }

    /// After the call, or the outermost end of the group, that made it with this result.
    ///
    /// # Safety
    /// The place is still valid.
    pub(crate) unsafe fn made(self, lane: &Lane, result: c_int) {
        if self.place.is_null() {
            return;
        }
        // SAFETY: the caller promises it.
        let handle = unsafe { *self.place };
        if handle.is_null() {
            return;
        }
        let known = match self.known {
            Some(known) => known,
            // It must not be asked before it is ready.
            None if result == IN_PROGRESS => (0, 0),
            // SAFETY: the handle is of a communicator whose making succeeded.
            None => unsafe { about(handle) }.unwrap_or_default(),
        };
        let (Ok(rank), Ok(size)) = (u32::try_from(known.0), u32::try_from(known.1)) else { return };
        let observer = lane.observer();
        observer.communicators.insert(observer.ledger(), handle, self.id, self.parent, rank, size);
    }
}

/// Rank and size of a communicator.
///
/// # Safety
/// The handle is of a communicator that is ready.
unsafe fn about(handle: ncclComm_t) -> Option<(c_int, c_int)> {
    let (mut rank, mut size): (c_int, c_int) = (0, 0);
    // SAFETY: the caller promises it; the places outlive the calls.
    let answered = unsafe {
        ncclCommUserRank(handle, &raw mut rank) == Some(0) && ncclCommCount(handle, &raw mut size) == Some(0)
    };
    answered.then_some((rank, size))
}

/// The communicator a program calls with. One that was not ready when it was made is asked for its rank and size now.
fn find(lane: &Lane, handle: ncclComm_t) -> Option<u16> {
    let observer = lane.observer();
    let index = observer.communicators.find(handle)?;
    if observer.communicators.slot(index).size() > 0 {
        return Some(index);
    }
    // SAFETY: a program may use a communicator only when it is ready, and uses this one.
    let (rank, size) = unsafe { about(handle) }?;
    let (rank, size) = (u32::try_from(rank).ok()?, u32::try_from(size).ok()?);
    observer.communicators.settle(observer.ledger(), index, rank, size);
    Some(index)
}

fn begin_init(lane: &Lane, place: *const ncclComm_t, id: UniqueId, rank: c_int, size: c_int) -> Joining {
    lane.entered(Call::CommunicatorInit, coarse_now());
    Joining { place, id: id.communicator(), parent: CommunicatorId(0), known: Some((rank, size)) }
}

fn begin_split(lane: &Lane, parent: ncclComm_t, color: c_int, place: *const ncclComm_t) -> Option<Joining> {
    let slot = lane.observer().communicators.slot(find(lane, parent)?);
    lane.entered(Call::CommunicatorInit, coarse_now());
    let id = split_of(slot.id(), slot.next_split(), color);
    Some(Joining { place, id, parent: slot.id(), known: None })
}

fn forget(lane: &Lane, communicator: ncclComm_t) {
    let observer = lane.observer();
    observer.communicators.remove(observer.ledger(), communicator);
    lane.entered(Call::CommunicatorEnd, coarse_now());
}

/// One line for each of NCCL's operations: they differ by what stands before the count and after the datatype.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $operation:ident: fn $name:ident($($buffer:ident),+; $($choice:ident),*);
    )*) => {
        interpose! {$(
            $(#[$doc])*
            fn $name(
                $($buffer: *mut c_void,)+ count: usize, datatype: c_int, $($choice: c_int,)*
                communicator: ncclComm_t, stream: cudaStream_t,
            ) -> c_int in NCCL, or MISSING, even off;
            before |lane| begin(lane, Operation::$operation, count, datatype, communicator, stream);
            after |lane, ticket, result| if let Some(ticket) = ticket { end(lane, ticket, result) };
        )*}
    };
}

operations! {
    AllReduce: fn ncclAllReduce(send, receive; reduction);
    AllGather: fn ncclAllGather(send, receive;);
    ReduceScatter: fn ncclReduceScatter(send, receive; reduction);
    Broadcast: fn ncclBroadcast(send, receive; root);
    /// Reaches `ncclBroadcast` from inside NCCL: the guard counts it once.
    Broadcast: fn ncclBcast(buffer; root);
    Reduce: fn ncclReduce(send, receive; reduction, root);
    Send: fn ncclSend(send; peer);
    Recv: fn ncclRecv(receive; peer);
}

interpose! {
    fn ncclGroupStart() -> c_int in NCCL, or MISSING, even off;
    before |lane| lane;
    after |_, lane, result| if result == 0 { lane.group(crate::group::Group::open) };

    fn ncclGroupEnd() -> c_int in NCCL, or MISSING, even off;
    before |lane| if lane.group(|group| group.is_outermost()) {
        lane.entered(Call::GroupEnd, coarse_now());
        lane.group(|group| group.launch(lane));
    };
    after |lane, (), result| {
        lane.group(|group| group.close(lane, result));
        lane.left();
    };

    fn ncclCommInitRank(
        made: *mut ncclComm_t, ranks: c_int, id: UniqueId, rank: c_int,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin_init(lane, made, id, rank, ranks);
    // SAFETY: as NCCL documents.
    after |lane, joining, result| unsafe { joining.begun(lane, result) };

    fn ncclCommInitRankConfig(
        made: *mut ncclComm_t, ranks: c_int, id: UniqueId, rank: c_int, config: *mut c_void,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin_init(lane, made, id, rank, ranks);
    // SAFETY: as NCCL documents.
    after |lane, joining, result| unsafe { joining.begun(lane, result) };

    fn ncclCommSplit(
        parent: ncclComm_t, color: c_int, key: c_int, made: *mut ncclComm_t, config: *mut c_void,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin_split(lane, parent, color, made);
    // SAFETY: as NCCL documents.
    after |lane, joining, result| if let Some(joining) = joining { unsafe { joining.begun(lane, result) } };

    fn ncclCommDestroy(communicator: ncclComm_t) -> c_int in NCCL, or MISSING, even off;
    before |lane| forget(lane, communicator);
    after |lane, (), _| lane.left();

    fn ncclCommAbort(communicator: ncclComm_t) -> c_int in NCCL, or MISSING, even off;
    before |lane| forget(lane, communicator);
    after |lane, (), _| lane.left();
}
