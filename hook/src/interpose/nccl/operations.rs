//! Operations on a communicator: collectives, sends and receives, signals.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::{nccl::sys::ncclComm_t, runtime::sys::cudaStream_t};
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    ledger::{Call, Calling, How, NO_TICKET, Writers},
    sampling::Rate,
};

use super::{IN_PROGRESS, MISSING, NCCL, joining::find, memory};
use crate::{
    gpu::queued::note_preceding,
    interpose::{
        interpose,
        stub::{BY_ADDRESS, caller, returns_to},
    },
    observe::{
        call_site,
        group::{Group, Message, NO_PEER, Timed},
        lane::{Lane, Timing},
        record::Record,
    },
    process::{
        clock::{approximate, time_of_day},
        switch,
    },
};

/// An operation between its call and its return.
#[derive(Clone, Copy, Debug)]
struct PendingOperation {
    message: Message,
    timing: Timing,
    /// When it was called, in monotonic nanoseconds.
    at: u64,
    /// The sampling rate, if the operation was selected for timing.
    chosen: Option<Rate>,
    queued: bool,
}

/// The data that an operation moves, in the caller's terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements {
    pub(crate) count: usize,
    pub(crate) datatype: c_int,
}

const NOTHING: Elements = Elements { count: 0, datatype: 0 };

/// Further arguments. All ranks of a communicator pass the same reduction and root.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) reduction: Option<c_int>,
    pub(crate) root: Option<c_int>,
    pub(crate) peer: Option<c_int>,
    /// Only NCCL's plugin interface reports the call; no interposed function sees it.
    pub(crate) unseen: bool,
}

#[allow(clippy::inline_always, reason = "its large result is then written to the caller's frame only once")]
#[inline(always)]
fn begin(
    lane: &Lane,
    operation: Operation,
    elements: Elements,
    arguments: Arguments,
    communicator: ncclComm_t,
    stream: cudaStream_t,
) -> Option<PendingOperation> {
    let observer = lane.observer();
    let (index, slot) = find(lane, communicator)?;
    let datatype = DataType::from_nccl(elements.datatype);
    let count = elements.count as u64;
    let peer = arguments.peer.map_or(NO_PEER, c_int::cast_unsigned);
    let bytes = operation.message_bytes(count, datatype.bytes(), slot.size());
    let mut message = Message {
        communicator: index,
        ticket: NO_TICKET,
        operation,
        peer,
        pair: None,
        datatype,
        bytes,
        bus_bytes: if peer == slot.rank() { 0 } else { operation.bus_bytes_of(bytes, slot.part_of_others()) },
        stream,
        observed: switch::is_on(),
        graph_capture: observer.graph_capture_of(stream),
    };
    let at = approximate();
    let now = time_of_day(at);
    let ledger = observer.ledger();
    let line = slot.line(ledger).filter(|_| message.graph_capture.is_none());
    let place = if operation.is_collective() {
        line.and_then(|line| line.enter(slot.id(), 1, operation, message.bytes, now, slot.writers()))
    } else {
        line.and_then(|line| {
            line.point_to_point(slot.id(), 1, slot.writers());
            let meets = matches!(operation, Operation::Send | Operation::Recv);
            let way = meets.then_some(operation == Operation::Send)?;
            ledger.record.pairs.next(slot.id(), slot.rank(), peer, way)
        })
    };
    if !operation.is_collective() {
        message.pair = place.map(|pair| pair as u32);
    }
    if message.observed && !arguments.unseen && caller() == BY_ADDRESS {
        lane.counters.by_address.add(1);
    }
    let returns_to = if arguments.unseen { 0 } else { returns_to() };
    if message.observed {
        call_site::native::note(&ledger.record, returns_to);
    }
    message.ticket = ledger.record.enter(&Calling {
        communicator: slot.id(),
        member: slot.rank(),
        number: place,
        operation,
        datatype: elements.datatype as u8,
        reduction: arguments.reduction.map_or(0, |reduction| reduction.clamp(0, 14) as u8 + 1),
        peer: arguments.root.or(arguments.peer).map_or(-1, i64::from),
        bytes: message.bytes,
        stream: stream.addr() as u64,
        how: if message.graph_capture.is_some() { How::Captured } else { How::Launched },
        at: now,
        returns_to,
        site: if message.observed { call_site::here(&ledger.record) } else { 0 },
    });
    if lane.is_grouping() {
        return Some(PendingOperation { message, timing: Timing::Not, at, chosen: None, queued: true });
    }
    if memory::is_early(slot.next(operation.is_collective())) && message.graph_capture.is_none() {
        memory::begin(lane);
    }
    lane.entered(Call::Collective, now);
    let mut timing = Timing::Not;
    let timeable = slot.size() > 1 && message.observed && message.graph_capture.is_none();
    let chosen = if timeable { slot.choose(operation.is_collective(), message.pair) } else { None };
    if chosen.is_some() {
        timing = lane.start_timing_on(stream, slot.device_of(stream));
        if matches!(timing, Timing::Not) {
            lane.counters.untimed.add(1);
        }
    }
    let meets = matches!(operation, Operation::Send | Operation::Recv);
    if timeable && (meets || operation.is_collective()) {
        if matches!(timing, Timing::Not) {
            let (number, device) = (slot.next(operation.is_collective()), slot.device_of(stream));
            if meets {
                observer.queue.join_message(lane, message.ticket, number, stream, device);
            } else {
                observer.queue.join(lane, message.ticket, number, stream, device);
            }
        } else {
            // The first event of its timing pair shows whether the GPU has reached it.
            ledger.record.queued(message.ticket);
            note_preceding(lane, message.ticket, stream);
        }
    }
    Some(PendingOperation { message, timing, at, chosen, queued: false })
}

fn end(lane: &Lane, pending: &PendingOperation, result: c_int) {
    let PendingOperation { ref message, timing, at, chosen, queued } = *pending;
    let observer = lane.observer();
    let slot = observer.communicators.slot(message.communicator);
    let counts = message.operation.is_collective() && message.graph_capture.is_none();
    let ledger = observer.ledger();
    let line = slot.line(ledger).filter(|_| counts);
    if queued {
        let queue = |group: &mut Group| group.queue(*message, lane.ring.slots()).then_some(group.first());
        match if result == 0 { lane.group(queue).flatten() } else { None } {
            Some(first) => ledger.record.group(message.ticket, first),
            None => message.refused(lane),
        }
        return;
    }
    lane.left();
    memory::end(lane);
    if result != 0 && result != IN_PROGRESS {
        lane.drop_timing(timing);
        message.refused(lane);
        return;
    }
    let was_timed = !matches!(timing, Timing::Not);
    let timer = if result == 0 {
        lane.stop_timing(timing, message.stream)
    } else {
        lane.drop_timing(timing);
        None
    };
    if was_timed && timer.is_none() {
        ledger.record.not_queued(message.ticket);
    }
    let evident = timer.is_none() && result == 0 && message.observed && message.graph_capture.is_none();
    let timed = timer.zip(chosen).map(|(timer, rate)| Timed { timer, rate });
    message.launched(lane, slot, timed, result, at);
    if evident && line.is_some() {
        observer.completions.launched(lane, message.communicator, message.stream, slot.next(true) - 1);
    }
}

/// Queues a call in its group; only NCCL's plugin interface reports this call.
pub(crate) fn called(
    lane: &Lane,
    operation: Operation,
    elements: Elements,
    arguments: Arguments,
    communicator: ncclComm_t,
    stream: cudaStream_t,
) {
    if let Some(pending) = begin(lane, operation, elements, arguments, communicator, stream) {
        end(lane, &pending, 0);
    }
}

/// Counts an operation whose launch was not seen. Its stream is unknown, so it is not timed, and nothing
/// proves that the GPU has completed it.
pub(crate) fn launched_unseen(
    lane: &Lane,
    operation: Operation,
    elements: Elements,
    arguments: Arguments,
    communicator: ncclComm_t,
) {
    let observer = lane.observer();
    let Some((index, slot)) = find(lane, communicator) else { return };
    let datatype = DataType::from_nccl(elements.datatype);
    let bytes = operation.message_bytes(elements.count as u64, datatype.bytes(), slot.size());
    let (ledger, at) = (observer.ledger(), approximate());
    let now = time_of_day(at);
    let collective = operation.is_collective();
    let line = slot.line(ledger);
    // NCCL's threads may report launches too.
    let writers = Writers::Many;
    let peer = arguments.peer.map_or(NO_PEER, c_int::cast_unsigned);
    let place = if collective {
        line.and_then(|line| line.enter(slot.id(), 1, operation, bytes, now, writers))
    } else {
        line.and_then(|line| {
            line.point_to_point(slot.id(), 1, writers);
            ledger.record.pairs.next(slot.id(), slot.rank(), peer, operation == Operation::Send)
        })
    };
    let ticket = ledger.record.enter(&Calling {
        communicator: slot.id(),
        member: slot.rank(),
        number: place,
        operation,
        datatype: elements.datatype as u8,
        reduction: 0,
        peer: arguments.root.or(arguments.peer).map_or(-1, i64::from),
        bytes,
        stream: 0,
        how: How::Launched,
        at: now,
        returns_to: 0,
        site: 0,
    });
    let sequence = slot.next(collective);
    slot.progress.advance(writers, None, u64::from(collective), u64::from(!collective));
    ledger.record.enqueued(ticket);
    if let Some(line) = line.filter(|_| collective) {
        line.enqueue(slot.id(), 1, writers);
    }
    if !switch::is_on() {
        return;
    }
    let bus_bytes = operation.bus_bytes_of(bytes, slot.part_of_others());
    lane.push(Record::Collective {
        communicator: index,
        operation,
        datatype,
        bytes,
        bus_bytes,
        sequence,
        at,
        message: None,
        timer: None,
        exposed: None,
        ticket,
    });
    let counters = &lane.counters;
    if collective {
        counters.collectives.add(1)
    } else {
        counters.point_to_point.add(1)
    };
}

/// A call's peer or root, if it has one.
fn named<const NAMED: usize>(named: [c_int; NAMED]) -> Option<c_int> {
    named.first().copied()
}

/// One line for each of NCCL's operations. They differ in the arguments before the count and after the
/// datatype.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $operation:ident: fn $name:ident(
            $($buffer:ident),+ $(; by $reduction:ident)? $(; at $root:ident)? $(; with $peer:ident)? $(; as $config:ident)?
        );
    )*) => {
        interpose! {$(
            $(#[$doc])*
            fn $name(
                $($buffer: *mut c_void,)+ count: usize, datatype: c_int,
                $($reduction: c_int,)? $($root: c_int,)? $($peer: c_int,)?
                communicator: ncclComm_t, stream: cudaStream_t, $($config: *const c_void,)?
            ) -> c_int in NCCL, or MISSING, even off;
            before |lane| {
                let arguments = Arguments {
                    reduction: named([$($reduction)?]), root: named([$($root)?]), peer: named([$($peer)?]),
                    unseen: false,
                };
                begin(lane, Operation::$operation, Elements { count, datatype }, arguments, communicator, stream)
            };
            after in place |lane, pending, result| if let Some(pending) = pending { end(lane, pending, result) };
        )*}
    };
}

operations! {
    AllReduce: fn ncclAllReduce(send, receive; by reduction);
    AllGather: fn ncclAllGather(send, receive);
    ReduceScatter: fn ncclReduceScatter(send, receive; by reduction);
    Broadcast: fn ncclBroadcast(send, receive; at root);
    /// Calls `ncclBroadcast` inside NCCL; the guard counts it once.
    Broadcast: fn ncclBcast(buffer; at root);
    Reduce: fn ncclReduce(send, receive; by reduction; at root);
    AlltoAll: fn ncclAlltoAll(send, receive);
    Gather: fn ncclGather(send, receive; at root);
    Scatter: fn ncclScatter(send, receive; at root);
    Send: fn ncclSend(send; with peer);
    Recv: fn ncclRecv(receive; with peer);
    /// Since 2.31, like all operations with a configuration. The two forms do not call each other.
    AllReduce: fn ncclAllReduceConfig(send, receive; by reduction; as config);
    AllGather: fn ncclAllGatherConfig(send, receive; as config);
    ReduceScatter: fn ncclReduceScatterConfig(send, receive; by reduction; as config);
    Broadcast: fn ncclBroadcastConfig(send, receive; at root; as config);
    Reduce: fn ncclReduceConfig(send, receive; by reduction; at root; as config);
    AlltoAll: fn ncclAlltoAllConfig(send, receive; as config);
    Gather: fn ncclGatherConfig(send, receive; at root; as config);
    Scatter: fn ncclScatterConfig(send, receive; at root; as config);
}

interpose! {
    /// Writes to a peer, which makes no matching call.
    fn ncclPutSignal(
        from: *const c_void, count: usize, datatype: c_int, peer: c_int, window: *mut c_void, offset: usize,
        signal: c_int, context: c_int, flags: c_uint, communicator: ncclComm_t, stream: cudaStream_t,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin(lane, Operation::PutSignal, Elements { count, datatype }, Arguments { peer: Some(peer), ..Arguments::default() }, communicator, stream);
    after in place |lane, pending, result| if let Some(pending) = pending { end(lane, pending, result) };

    fn ncclSignal(
        peer: c_int, signal: c_int, context: c_int, flags: c_uint, communicator: ncclComm_t, stream: cudaStream_t,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin(lane, Operation::Signal, NOTHING, Arguments { peer: Some(peer), ..Arguments::default() }, communicator, stream);
    after in place |lane, pending, result| if let Some(pending) = pending { end(lane, pending, result) };

    fn ncclWaitSignal(
        count: c_int, signals: *mut c_void, communicator: ncclComm_t, stream: cudaStream_t,
    ) -> c_int in NCCL, or MISSING, even off;
    before |lane| begin(lane, Operation::WaitSignal, NOTHING, Arguments::default(), communicator, stream);
    after in place |lane, pending, result| if let Some(pending) = pending { end(lane, pending, result) };
}
