//! Kernels, by name: all kernels if CUPTI recorded them, else the requested ones.

use std::collections::HashMap;

use serde::Serialize;
use xpu_wire::frame::CapturedLabel;

use super::{
    super::{Seen, WholeStep, Work, kernel},
    spread::{Spread, share},
};

/// All launches of one kernel, over all ranks and fully recorded steps.
#[derive(Clone, Debug, Serialize)]
pub struct KernelRow {
    /// The whole demangled name; a pattern for kernels requested by name.
    pub name: String,
    /// A short form of the name, for display.
    pub short: String,
    pub work: Work,
    pub count: u64,
    #[serde(flatten)]
    pub took: Spread,
    /// Share of the time of all steps.
    pub share: Option<f64>,
}

pub(super) fn rows(steps: &[WholeStep<'_>], all: u64) -> Vec<KernelRow> {
    let mut names: HashMap<&str, (Work, u64, Vec<u64>)> = HashMap::new();
    for step in steps {
        for single in step.operations {
            let name = match (&*single.label, step.seen) {
                (CapturedLabel::Activity(name), _) => name,
                (CapturedLabel::Kernel(pattern), Seen::Operations) => pattern,
                _ => continue,
            };
            let work = if kernel::communicates(name) { Work::Communication } else { Work::Compute };
            let (_, count, took) = names.entry(name).or_insert_with(|| (work, 0, Vec::new()));
            *count += 1;
            took.extend(single.took_on_gpu());
        }
    }
    let row = |(name, (work, count, took)): (&str, (Work, u64, Vec<u64>))| {
        let (name, took) = (kernel::demangled(name), Spread::of(took));
        KernelRow { short: kernel::short(&name), name, work, count, share: share(took.total_ns, all), took }
    };
    let mut rows: Vec<_> = names.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.took.total_ns.cmp(&a.took.total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}
