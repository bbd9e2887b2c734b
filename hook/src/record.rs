//! A record from a launching thread to the hook's own thread: a small value copied into a ring.

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{BlockingCall, CapturedLabel, Direction, StepSource},
    gemm::GemmShape,
    id::Sequence,
    sampling::Rate,
};

use crate::{functions, kernels, launches::Launch, observer::Observer, spans, timer::TimerId};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Record {
    Gemm {
        shape: GemmShape,
        /// When it was launched, in monotonic nanoseconds; 0 for one that was not to be timed.
        at: u64,
        timer: Option<TimerId>,
    },
    Collective {
        /// Slot in the table of communicators.
        communicator: u16,
        operation: Operation,
        datatype: DataType,
        /// Message size and bytes over the bus.
        bytes: u64,
        bus_bytes: u64,
        /// The communicator's number of this collective; of a send or receive, the number among those.
        sequence: u64,
        /// When it was launched, in monotonic nanoseconds.
        at: u64,
        timer: Option<TimerId>,
        /// What it stands for, where GEMMs wait for it on its own stream.
        exposed: Option<Rate>,
    },
    /// The timed launch of what one communicator does in a group; its operations are counted each by itself.
    Interval {
        communicator: u16,
        operation: Operation,
        datatype: DataType,
        bytes: u64,
        bus_bytes: u64,
        /// Of the first collective; without one, of the first send or receive among those.
        sequence: u64,
        /// 0 if there are only sends and receives: what other ranks do is another thing.
        collectives: u64,
        /// When it was launched, in monotonic nanoseconds.
        at: u64,
        timer: TimerId,
        exposed: Option<Rate>,
    },
    /// The launch of an executable graph, by its number.
    Graph {
        graph: u32,
        /// When it was launched, in monotonic nanoseconds.
        at: u64,
        timer: Option<TimerId>,
    },
    /// The launch of a kernel that was to be timed, by the pattern that its name matches.
    Kernel {
        pattern: u8,
        /// Likewise.
        at: u64,
        timer: Option<TimerId>,
    },
    /// Only while everything is recorded: an asynchronous copy; a fill has no direction.
    Copy { direction: Option<Direction>, bytes: u64, at: u64, timer: Option<TimerId> },
    /// GEMMs wait for communication on another stream; what the timed wait stands for.
    Wait { timer: TimerId },
    /// A pair of events with nothing in between.
    Gap { timer: TimerId },
    /// Only while everything is recorded: a call that held its thread, or moved memory without a stream.
    Host { call: HostCall, bytes: u64, at: u64, until: u64 },
    /// Any launch, during a search for steps.
    Launched { launch: Launch },
    /// A detected step began: the `steps`th since they are counted.
    Begun { steps: u64, at: u64 },
    /// How long a step took on the GPU.
    StepTime { timer: TimerId },
    Step {
        source: StepSource,
        completed: u64,
        /// Monotonic nanoseconds.
        at: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HostCall {
    Copy(Direction),
    Set,
    Blocked(BlockingCall),
    /// A function of Python, by its number.
    Function(u16),
    /// A part of the program that it named itself, by the number of the name.
    Span(u16),
}

/// A record as it is kept while everything is.
#[derive(Clone, Debug)]
pub(crate) struct Single {
    pub(crate) label: CapturedLabel,
    /// When it was launched, in monotonic nanoseconds.
    pub(crate) at: u64,
    pub(crate) sequence: Option<Sequence>,
    /// How long its thread was held, if it is no work of the GPU.
    pub(crate) held: Option<u64>,
    /// It should have been timed.
    pub(crate) timeable: bool,
}

impl Record {
    /// The pair of events that has to be read, and given back, for this record.
    pub(crate) fn timer(&self) -> Option<TimerId> {
        match *self {
            Self::Gemm { timer, .. }
            | Self::Collective { timer, .. }
            | Self::Graph { timer, .. }
            | Self::Kernel { timer, .. }
            | Self::Copy { timer, .. } => timer,
            Self::Interval { timer, .. }
            | Self::Wait { timer, .. }
            | Self::Gap { timer }
            | Self::StepTime { timer } => Some(timer),
            Self::Step { .. } | Self::Host { .. } | Self::Launched { .. } | Self::Begun { .. } => None,
        }
    }

    /// When it was launched, in monotonic nanoseconds, if anybody looked.
    pub(crate) fn at(&self) -> Option<u64> {
        match *self {
            Self::Gemm { at, .. }
            | Self::Collective { at, .. }
            | Self::Interval { at, .. }
            | Self::Graph { at, .. }
            | Self::Kernel { at, .. }
            | Self::Copy { at, .. }
            | Self::Host { at, .. } => Some(at).filter(|&at| at > 0),
            Self::Wait { .. }
            | Self::Gap { .. }
            | Self::StepTime { .. }
            | Self::Step { .. }
            | Self::Launched { .. }
            | Self::Begun { .. } => None,
        }
    }

    /// What is kept of it; `None` of what is no operation of the program.
    pub(crate) fn single(&self, observer: &Observer) -> Option<Single> {
        let at = self.at()?;
        let id = |communicator| observer.communicators.slot(communicator).id();
        let (mut sequence, mut held, mut timeable) = (None, None, true);
        let label = match *self {
            Self::Gemm { shape, .. } => CapturedLabel::Gemm(shape),
            Self::Collective {
                communicator,
                operation,
                datatype,
                bytes,
                bus_bytes,
                sequence: number,
                ..
            } => {
                (sequence, timeable) = (Some(Sequence(number)), false);
                CapturedLabel::Collective {
                    communicator: id(communicator),
                    operation,
                    datatype,
                    bytes,
                    bus_bytes,
                }
            }
            Self::Interval {
                communicator,
                operation,
                bytes,
                bus_bytes,
                sequence: number,
                collectives,
                ..
            } => {
                sequence = Some(Sequence(number));
                CapturedLabel::Group {
                    communicator: id(communicator),
                    operation,
                    bytes,
                    bus_bytes,
                    collectives,
                }
            }
            Self::Graph { graph, .. } => CapturedLabel::Graph(graph),
            Self::Kernel { pattern, .. } => {
                CapturedLabel::Kernel(kernels::pattern(pattern).unwrap_or_default().to_owned())
            }
            Self::Copy { direction: Some(direction), bytes, .. } => CapturedLabel::Copy { direction, bytes },
            Self::Copy { direction: None, bytes, .. } => CapturedLabel::Set { bytes },
            Self::Host { call, bytes, until, .. } => {
                held = Some(until.saturating_sub(at));
                match call {
                    HostCall::Copy(direction) => CapturedLabel::Copy { direction, bytes },
                    HostCall::Set => CapturedLabel::Set { bytes },
                    HostCall::Blocked(call) => CapturedLabel::Blocked(call),
                    HostCall::Function(number) => functions::label(number),
                    HostCall::Span(number) => spans::label(number),
                }
            }
            Self::Wait { .. }
            | Self::Gap { .. }
            | Self::StepTime { .. }
            | Self::Step { .. }
            | Self::Launched { .. }
            | Self::Begun { .. } => return None,
        };
        Some(Single { label, at, sequence, held, timeable })
    }
}
