//! The function of a recorded operation, and its layer of the critical path.

use std::collections::BTreeMap;

use xpu_wire::{
    frame::{CapturedLabel, FunctionKey},
    id::CommunicatorId,
};

use super::{
    critical_path::Layer,
    function::{Class, Names, Unit, cut},
};
use crate::capture::{
    CapturedCommunicator, HostKind, Seen, Single, Work as GpuWork, copied, gemm_shape, host_function, kernel,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub function: usize,
    /// The function to which the time of waiting for other ranks belongs, if the operation may contain such
    /// time.
    pub waits: Option<usize>,
    pub layer: Layer,
}

impl Work {
    /// `None` if the operation has no part in the path.
    pub(super) fn of(
        single: &Single,
        seen: Seen,
        communicators: &BTreeMap<CommunicatorId, CapturedCommunicator>,
        names: &mut Names,
    ) -> Option<Self> {
        let mut named = |class, name: &str, unit, layer| {
            let function = names.number(FunctionKey::Named { class, name: cut(name), unit });
            Some(Self { function, waits: None, layer })
        };
        match &*single.label {
            CapturedLabel::Collective { communicator, operation, .. }
            | CapturedLabel::Group { communicator, operation, .. } => {
                let whose = communicators.get(communicator).map(|known| match &*known.name {
                    "" => format!(" ({} ranks)", known.size),
                    name => format!(" ({name})"),
                });
                let name = format!("{operation}{}", whose.unwrap_or_default());
                let (class, unit) = (Class::Communication, Some(Unit::GbytesPerS));
                let function = FunctionKey::Named { class, name: cut(&name), unit };
                let waits = FunctionKey::Waits(cut(&format!("wait in {name}")));
                let [function, waits] = [function, waits].map(|key| names.number(key));
                Some(Self { function, waits: Some(waits), layer: Layer::Operation })
            }
            label @ (CapturedLabel::Copy { .. } | CapturedLabel::Set { .. }) => {
                named(Class::Memory, &copied(label)?.0, Some(Unit::GbytesPerS), Layer::Memory)
            }
            label => match single.work(seen) {
                Some(GpuWork::Communication) => {
                    let CapturedLabel::Activity(name) = label else { return None };
                    let function =
                        names.number(FunctionKey::Waits(cut(&kernel::short(&kernel::demangled(name)))));
                    Some(Self { function, waits: None, layer: Layer::Communication })
                }
                Some(_) => {
                    let (name, unit) = match label {
                        CapturedLabel::Gemm(shape) => (gemm_shape(shape), Unit::Tflops),
                        CapturedLabel::Activity(name) => {
                            (kernel::short(&kernel::demangled(name)), Unit::PerSecond)
                        }
                        CapturedLabel::Graph(number) => (format!("graph {number}"), Unit::PerSecond),
                        CapturedLabel::Kernel(name) => (name.clone(), Unit::PerSecond),
                        _ => return None,
                    };
                    named(Class::Compute, &name, Some(unit), Layer::Compute)
                }
                None => {
                    let (kind, name) = host_function(label)?;
                    match kind {
                        HostKind::Blocked => named(Class::Runtime, name, None, Layer::Blocked),
                        HostKind::GarbageCollection => {
                            let name = format!("garbage collection, {name}");
                            named(Class::Python, &name, None, Layer::GarbageCollection)
                        }
                        HostKind::DataLoader | HostKind::Function | HostKind::Span => {
                            named(Class::Python, name, None, Layer::Traced)
                        }
                    }
                }
            },
        }
    }
}
