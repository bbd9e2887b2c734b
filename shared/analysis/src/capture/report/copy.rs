//! Copies and fills, by direction.

use std::collections::BTreeMap;

use serde::Serialize;
use xpu_wire::{
    frame::{CapturedLabel, CapturedSpan},
    unit::{GigabytesPerSecond, Nanoseconds},
};

use super::{
    super::WholeStep,
    spread::{Spread, share},
};

/// All copies of one direction, or all fills, over all ranks and fully recorded steps.
#[derive(Clone, Debug, Serialize)]
pub struct CopyRow {
    /// `HostToDevice`; `Set` for fills.
    pub what: String,
    pub count: u64,
    pub bytes: u64,
    /// GPU times of copies on a stream, in fully recorded steps.
    #[serde(flatten)]
    pub took: Spread,
    pub gbytes_per_s: Option<GigabytesPerSecond>,
    /// Time that threads spent in the calls; `null` if these were not recorded.
    pub held_ns: Option<u64>,
    /// Share of the time of all steps.
    pub share: Option<f64>,
}

/// The name of a copy or a fill, and its bytes.
pub fn what(label: &CapturedLabel) -> Option<(String, u64)> {
    match label {
        CapturedLabel::Copy { direction, bytes } => Some((format!("{direction:?}"), *bytes)),
        CapturedLabel::Set { bytes } => Some(("Set".to_owned(), *bytes)),
        _ => None,
    }
}

pub(super) fn rows(steps: &[WholeStep<'_>], all: u64) -> Vec<CopyRow> {
    #[derive(Default)]
    struct Sum {
        count: u64,
        bytes: u64,
        timed_bytes: u64,
        took: Vec<u64>,
        held: Option<u64>,
    }
    let mut kinds: BTreeMap<String, Sum> = BTreeMap::new();
    for step in steps {
        for single in step.operations {
            let Some((name, bytes)) = what(&single.label) else { continue };
            let sum = kinds.entry(name).or_default();
            sum.count += 1;
            sum.bytes = sum.bytes.saturating_add(bytes);
            if let Some(took) = single.took_on_gpu() {
                sum.took.push(took);
                sum.timed_bytes = sum.timed_bytes.saturating_add(bytes);
            }
            if let CapturedSpan::Host { took } = single.span {
                sum.held = Some(sum.held.unwrap_or(0).saturating_add(took.0));
            }
        }
    }
    let rows = kinds.into_iter().map(|(what, sum)| {
        let took = Spread::of(sum.took);
        CopyRow {
            what,
            count: sum.count,
            bytes: sum.bytes,
            gbytes_per_s: GigabytesPerSecond::from_work(sum.timed_bytes as f64, Nanoseconds(took.total_ns)),
            held_ns: sum.held,
            share: share(took.total_ns, all),
            took,
        }
    });
    rows.collect()
}
