//! What a program asks of a communicator: collectives, sends and receives, signals.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::{nccl::sys::ncclComm_t, runtime::sys::cudaStream_t};
use xpu_shared::{collective::Operation, datatype::DataType, ledger::Call, sampling::Rate};

use super::{IN_PROGRESS, MISSING, NCCL, joining::find};
use crate::{
    group::{Message, NO_PEER},
    interpose::interpose,
    lane::{Lane, Timing, coarse_now, monotonic},
    switch,
};

/// An operation between its call and its return.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    message: Message,
    timing: Timing,
    /// What it stands for, if it was to be timed.
    chosen: Option<Rate>,
    queued: bool,
}

/// What stands in for the count and datatype of an operation that moves nothing.
const NOTHING: (usize, c_int) = (0, 0);

fn begin(
    lane: &Lane,
    operation: Operation,
    (count, datatype): (usize, c_int),
    peer: Option<c_int>,
    communicator: ncclComm_t,
    stream: cudaStream_t,
) -> Option<Ticket> {
    let observer = lane.observer();
    let index = find(lane, communicator)?;
    let slot = observer.communicators.slot(index);
    let datatype = DataType::from_nccl(datatype);
    let count = count as u64;
    let peer = peer.map_or(NO_PEER, c_int::cast_unsigned);
    let bus_bytes = operation.bus_bytes(count, datatype.bytes(), slot.size());
    let message = Message {
        communicator: index,
        operation,
        peer,
        datatype,
        bytes: operation.message_bytes(count, datatype.bytes(), slot.size()),
        bus_bytes: if peer == slot.rank() { 0 } else { bus_bytes },
        stream,
        observed: switch::is_on(),
        captured: observer.capture_of(stream),
    };
    let now = coarse_now();
    if let Some(line) = slot.line(observer.ledger()).filter(|_| message.captured.is_none()) {
        if operation.is_collective() {
            line.enter(slot.id(), 1, operation, message.bytes, now);
        } else {
            line.point_to_point(slot.id(), 1);
        }
    }
    if lane.is_grouping() {
        return Some(Ticket { message, timing: Timing::Not, chosen: None, queued: true });
    }
    lane.entered(Call::Collective, now);
    let mut timing = Timing::Not;
    let timeable = slot.size() > 1 && message.observed && message.captured.is_none();
    let chosen = if timeable { slot.choose(operation.is_collective()) } else { None };
    if chosen.is_some() {
        timing = lane.start_timing(stream);
        if matches!(timing, Timing::Not) {
            lane.counters.untimed.add(1);
        }
    }
    Some(Ticket { message, timing, chosen, queued: false })
}

fn end(lane: &Lane, ticket: Ticket, result: c_int) {
    let Ticket { message, timing, chosen, queued } = ticket;
    let observer = lane.observer();
    let slot = observer.communicators.slot(message.communicator);
    let counts = message.operation.is_collective() && message.captured.is_none();
    let line = slot.line(observer.ledger()).filter(|_| counts);
    if queued {
        let kept = result == 0 && lane.group(|group| group.queue(message, lane.ring.slots())) == Some(true);
        if let Some(line) = line.filter(|_| !kept) {
            line.retract(slot.id(), 1);
        }
        return;
    }
    lane.left();
    if result != 0 && result != IN_PROGRESS {
        lane.drop_timing(timing);
        if let Some(line) = line {
            line.retract(slot.id(), 1);
        }
        return;
    }
    let timer = if result == 0 {
        lane.stop_timing(timing, message.stream)
    } else {
        lane.drop_timing(timing);
        None
    };
    let evident = timer.is_none() && result == 0 && message.observed && message.captured.is_none();
    message.launched(lane, timer.zip(chosen), result, monotonic());
    if evident && line.is_some() {
        observer.completions.launched(lane, message.communicator, message.stream, slot.next(true) - 1);
    }
}

/// The peer that a call names, if it is one that does.
fn peer<const NAMED: usize>(peer: [c_int; NAMED]) -> Option<c_int> {
    peer.first().copied()
}

/// One line for each of NCCL's operations: they differ by what stands before the count and after the datatype, of which the
/// last may be a peer.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $operation:ident: fn $name:ident($($buffer:ident),+; $($choice:ident),* $(; $peer:ident)?);
    )*) => {
        interpose! {$(
            $(#[$doc])*
            fn $name(
                $($buffer: *mut c_void,)+ count: usize, datatype: c_int, $($choice: c_int,)* $($peer: c_int,)?
                communicator: ncclComm_t, stream: cudaStream_t,
            ) -> c_int in NCCL, or MISSING, even off;
            before |lane| begin(lane, Operation::$operation, (count, datatype), peer([$($peer)?]), communicator, stream);
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
    AlltoAll: fn ncclAlltoAll(send, receive;);
    Gather: fn ncclGather(send, receive; root);
    Scatter: fn ncclScatter(send, receive; root);
    Send: fn ncclSend(send;; peer);
    Recv: fn ncclRecv(receive;; peer);
}

interpose! {
    /// Writes to a peer that makes no call of its own for it.
    fn ncclPutSignal(
        from: *const c_void, count: usize, datatype: c_int, peer: c_int, window: *mut c_void, offset: usize,
        signal: c_int, context: c_int, flags: c_uint, communicator: ncclComm_t, stream: cudaStream_t,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin(lane, Operation::PutSignal, (count, datatype), Some(peer), communicator, stream);
    after |lane, ticket, result| if let Some(ticket) = ticket { end(lane, ticket, result) };

    fn ncclSignal(
        peer: c_int, signal: c_int, context: c_int, flags: c_uint, communicator: ncclComm_t, stream: cudaStream_t,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin(lane, Operation::Signal, NOTHING, Some(peer), communicator, stream);
    after |lane, ticket, result| if let Some(ticket) = ticket { end(lane, ticket, result) };

    fn ncclWaitSignal(
        count: c_int, signals: *mut c_void, communicator: ncclComm_t, stream: cudaStream_t,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin(lane, Operation::WaitSignal, NOTHING, None, communicator, stream);
    after |lane, ticket, result| if let Some(ticket) = ticket { end(lane, ticket, result) };
}
