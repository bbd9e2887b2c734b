//! Activity of threads on the host: spans of the program, Python's functions and garbage collector, data
//! loaders, and calls that wait for the GPU.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use xpu_wire::frame::{BlockingCall, CapturedLabel, CapturedSpan, FunctionKind};

use super::{
    super::WholeStep,
    spread::{Spread, share},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostKind {
    Function,
    GarbageCollection,
    DataLoader,
    /// A span that the program named.
    Span,
    /// A call that waits for the GPU.
    Blocked,
}

impl fmt::Display for HostKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Function => "function",
            Self::GarbageCollection => "garbage_collection",
            Self::DataLoader => "data_loader",
            Self::Span => "span",
            Self::Blocked => "blocked",
        })
    }
}

/// One function or call, over all ranks and fully recorded steps.
#[derive(Clone, Debug, Serialize)]
pub struct HostRow {
    pub kind: HostKind,
    pub name: String,
    pub count: u64,
    /// The time of a nested function counts in both functions.
    #[serde(flatten)]
    pub took: Spread,
    /// Share of the time of all steps.
    pub share: Option<f64>,
}

/// The kind and name of a thread's activity, if it is a host activity.
pub fn what(label: &CapturedLabel) -> Option<(HostKind, &str)> {
    Some(match label {
        CapturedLabel::Function { kind, name } => {
            let kind = match kind {
                FunctionKind::Named => HostKind::Function,
                FunctionKind::GarbageCollection => HostKind::GarbageCollection,
                FunctionKind::DataLoader => HostKind::DataLoader,
                FunctionKind::Span => HostKind::Span,
            };
            (kind, name)
        }
        CapturedLabel::Blocked(call) => {
            let name = match call {
                BlockingCall::Copy => "cudaMemcpy",
                BlockingCall::Launch => "launch into a full queue",
                BlockingCall::StreamSynchronize => "cudaStreamSynchronize",
                BlockingCall::DeviceSynchronize => "cudaDeviceSynchronize",
                BlockingCall::EventSynchronize => "cudaEventSynchronize",
            };
            (HostKind::Blocked, name)
        }
        _ => return None,
    })
}

pub(super) fn rows(steps: &[WholeStep<'_>], all: u64) -> Vec<HostRow> {
    let mut names: BTreeMap<(HostKind, &str), (u64, Vec<u64>)> = BTreeMap::new();
    for single in steps.iter().flat_map(|step| step.operations) {
        let Some(key) = what(&single.label) else { continue };
        let (count, took) = names.entry(key).or_default();
        *count += 1;
        if let CapturedSpan::Host { took: one } = single.span {
            took.push(one.0);
        }
    }
    let row = |((kind, name), (count, took)): ((HostKind, &str), (u64, Vec<u64>))| {
        let took = Spread::of(took);
        HostRow { kind, name: name.to_owned(), count, share: share(took.total_ns, all), took }
    };
    let mut rows: Vec<_> = names.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.took.total_ns));
    rows
}
