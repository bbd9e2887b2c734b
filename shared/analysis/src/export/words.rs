//! An operation's name and its details.

use serde_json::{Map, Value, json};
use xpu_wire::{
    frame::{BlockingCall, CapturedLabel},
    plan::Plan,
};

use crate::capture::{Single, kernel};

/// The slice's text.
pub fn name(single: &Single) -> String {
    match &*single.label {
        CapturedLabel::Gemm(shape) if shape.batch > 1 => {
            let routine = shape.routine.name();
            format!("{routine} {}x{}x{} ({} of them)", shape.m, shape.n, shape.k, shape.batch)
        }
        CapturedLabel::Gemm(shape) => {
            format!("{} {}x{}x{}", shape.routine.name(), shape.m, shape.n, shape.k)
        }
        CapturedLabel::Collective { operation, .. } | CapturedLabel::Group { operation, .. } => {
            operation.to_string()
        }
        CapturedLabel::Graph(number) => format!("graph {number}"),
        CapturedLabel::Kernel(pattern) => pattern.clone(),
        CapturedLabel::Copy { direction, .. } => format!("copy {direction:?}"),
        CapturedLabel::Set { .. } => "set".to_owned(),
        CapturedLabel::Blocked(BlockingCall::Copy) => "waits for a copy".to_owned(),
        CapturedLabel::Blocked(BlockingCall::Launch) => "launches into a full queue".to_owned(),
        CapturedLabel::Blocked(BlockingCall::StreamSynchronize) => "cudaStreamSynchronize".to_owned(),
        CapturedLabel::Blocked(BlockingCall::DeviceSynchronize) => "cudaDeviceSynchronize".to_owned(),
        CapturedLabel::Blocked(BlockingCall::EventSynchronize) => "cudaEventSynchronize".to_owned(),
        CapturedLabel::Activity(name) => kernel::short(&kernel::demangled(name)),
        CapturedLabel::Function { name, .. } => name.clone(),
    }
}

/// Its details when it is selected.
pub fn details(single: &Single) -> Map<String, Value> {
    let mut all = Map::new();
    let mut say = |name: &str, value: Value| _ = all.insert(name.to_owned(), value);
    let mut planned = None;
    match &*single.label {
        CapturedLabel::Gemm(shape) => {
            say("batch", json!(shape.batch));
            say("datatype", json!(shape.datatype.to_string()));
            say("flops", json!(shape.flops()));
        }
        CapturedLabel::Collective { communicator, datatype, bytes, bus_bytes, plan, .. } => {
            say("communicator", json!(communicator.to_string()));
            say("datatype", json!(datatype.to_string()));
            say("bytes", json!(bytes));
            say("bus_bytes", json!(bus_bytes));
            planned = *plan;
        }
        CapturedLabel::Group { communicator, bytes, bus_bytes, collectives, plan, .. } => {
            say("communicator", json!(communicator.to_string()));
            say("bytes", json!(bytes));
            say("bus_bytes", json!(bus_bytes));
            say("collectives", json!(collectives));
            planned = *plan;
        }
        CapturedLabel::Copy { bytes, .. } | CapturedLabel::Set { bytes } => say("bytes", json!(bytes)),
        CapturedLabel::Activity(name) => say("name", json!(kernel::demangled(name))),
        CapturedLabel::Graph(_)
        | CapturedLabel::Kernel(_)
        | CapturedLabel::Blocked(_)
        | CapturedLabel::Function { .. } => {}
    }
    if let Some(Plan { algorithm, protocol, channels }) = planned {
        say("algorithm", json!(algorithm.name()));
        say("protocol", json!(protocol.name()));
        say("channels", json!(channels));
    }
    if let Some(sequence) = single.sequence {
        say("sequence", json!(sequence.0));
    }
    if let Some((begin, _)) = single.on_gpu() {
        say("after_launch_us", json!((begin.0 as f64 - single.at.0 as f64) / 1e3));
    }
    all
}
