//! The part of a record that a capture keeps.

use xpu_wire::{
    frame::{CapturedLabel, CapturedOperation},
    id::Sequence,
};

use crate::{
    interpose::plugin,
    observe::{
        kernels,
        observer::Observer,
        record::{HostCall, MessageKey, Record},
        spans,
    },
    python::functions,
};

/// An operation, from its record.
#[derive(Clone, Debug)]
pub(super) struct KeptOperation {
    pub(super) label: CapturedLabel,
    /// When it was launched, in monotonic nanoseconds.
    pub(super) at: u64,
    pub(super) sequence: Option<Sequence>,
    /// How long the call blocked its thread, if it is not GPU work.
    pub(super) held: Option<u64>,
    /// Whether it should have been timed.
    pub(super) timeable: bool,
}

impl KeptOperation {
    /// `None` for a record that is not an operation of the program.
    pub(super) fn of(record: &Record, observer: &Observer) -> Option<Self> {
        let at = record.at()?;
        let id = |communicator| observer.communicators.slot(communicator).id();
        let (mut sequence, mut held, mut timeable) = (None, None, true);
        let label = match *record {
            Record::Gemm { shape, .. } => CapturedLabel::Gemm(shape),
            Record::Collective {
                communicator,
                operation,
                datatype,
                bytes,
                bus_bytes,
                sequence: number,
                message,
                ..
            } => {
                let known = match message {
                    Some(MessageKey { peer, .. }) => CapturedOperation::sequence_of(peer, number),
                    None => Sequence(number),
                };
                (sequence, timeable) = (Some(known), false);
                let communicator = id(communicator);
                let plan = plugin::plan_of(plugin::Kind { communicator, operation, datatype, bytes });
                CapturedLabel::Collective { communicator, operation, datatype, bytes, bus_bytes, plan }
            }
            Record::Interval {
                communicator,
                operation,
                datatype,
                bytes,
                bus_bytes,
                sequence: number,
                collectives,
                ..
            } => {
                sequence = Some(Sequence(number));
                let communicator = id(communicator);
                let kind = plugin::Kind { communicator, operation, datatype, bytes };
                let plan = if collectives == 1 { plugin::plan_of(kind) } else { None };
                CapturedLabel::Group { communicator, operation, bytes, bus_bytes, collectives, plan }
            }
            Record::Graph { graph, .. } => CapturedLabel::Graph(graph),
            Record::Kernel { pattern, .. } => {
                CapturedLabel::Kernel(kernels::pattern(pattern).unwrap_or_default().to_owned())
            }
            Record::Copy { direction: Some(direction), bytes, .. } => {
                CapturedLabel::Copy { direction, bytes }
            }
            Record::Copy { direction: None, bytes, .. } => CapturedLabel::Set { bytes },
            Record::Host { call, bytes, until, .. } => {
                held = Some(until.saturating_sub(at));
                match call {
                    HostCall::Copy(direction) => CapturedLabel::Copy { direction, bytes },
                    HostCall::Set => CapturedLabel::Set { bytes },
                    HostCall::Blocked(call) => CapturedLabel::Blocked(call),
                    HostCall::Function(number) => functions::label(number),
                    HostCall::Span(number) => spans::label(number),
                }
            }
            Record::Wait { .. }
            | Record::Gap { .. }
            | Record::StepTime { .. }
            | Record::Step { .. }
            | Record::Launched { .. }
            | Record::Begun { .. } => return None,
        };
        Some(Self { label, at, sequence, held, timeable })
    }
}
