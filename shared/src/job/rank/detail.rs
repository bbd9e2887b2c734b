//! The whole summary of a rank that somebody looks at.

use std::collections::BTreeMap;

use super::RankView;
use crate::{
    collective::Operation,
    datatype::DataType,
    frame::{CollectiveTotals, GemmTotals, GraphTotals, KernelTotals, Summary},
    gemm::GemmShape,
    histogram::Histogram,
    id::CommunicatorId,
};

/// What collectives are told apart by.
type CollectiveKey = (CommunicatorId, Operation, DataType, u64);

/// Shapes, and collectives, remembered.
const KEYS: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Detail {
    summary: Option<Summary>,
    steps: Histogram,
    gemms: BTreeMap<GemmShape, Option<GemmTotals>>,
    collectives: BTreeMap<CollectiveKey, Option<CollectiveTotals>>,
    graphs: BTreeMap<u32, Option<GraphTotals>>,
    kernels: BTreeMap<String, Option<KernelTotals>>,
}

impl Detail {
    pub(super) fn take(&mut self, summary: &Summary) {
        for gemm in &summary.gemms {
            if let Some(known) = room(&mut self.gemms, gemm.shape) {
                add(known, gemm, |totals| &mut totals.durations);
            }
        }
        for collective in &summary.collectives {
            let key = (collective.communicator, collective.operation, collective.datatype, collective.bytes);
            if let Some(known) = room(&mut self.collectives, key) {
                add(known, collective, |totals| &mut totals.durations);
            }
        }
        for graph in &summary.graphs {
            if let Some(known) = room(&mut self.graphs, graph.graph) {
                add(known, graph, |totals| &mut totals.durations);
            }
        }
        for kernel in &summary.kernels {
            if let Some(known) = room(&mut self.kernels, kernel.pattern.clone()) {
                add(known, kernel, |totals| &mut totals.durations);
            }
        }
        if let Some(steps) = &summary.steps {
            self.steps.merge(&steps.durations);
        }
        self.summary = Some(summary.clone());
    }
}

impl RankView {
    /// The whole summary, of a rank somebody looks at.
    pub fn summary(&self) -> Option<&Summary> {
        self.detail.as_ref()?.summary.as_ref()
    }

    /// Steps one by one, those completed since somebody looks. `None` unless looked at.
    pub fn single_steps(&self) -> Option<&Histogram> {
        self.detail.as_ref().map(|detail| &detail.steps)
    }

    /// Totals by shape since the rank started, with the durations seen since somebody looks. Empty unless looked at.
    pub fn gemms(&self) -> impl Iterator<Item = &GemmTotals> {
        self.detail.iter().flat_map(|detail| detail.gemms.values().flatten())
    }

    /// Likewise by communicator, operation and size.
    pub fn collectives(&self) -> impl Iterator<Item = &CollectiveTotals> {
        self.detail.iter().flat_map(|detail| detail.collectives.values().flatten())
    }

    /// Likewise CUDA graphs, and kernels of the names asked for.
    pub fn graphs(&self) -> impl Iterator<Item = &GraphTotals> {
        self.detail.iter().flat_map(|detail| detail.graphs.values().flatten())
    }

    pub fn kernels(&self) -> impl Iterator<Item = &KernelTotals> {
        self.detail.iter().flat_map(|detail| detail.kernels.values().flatten())
    }
}

/// The place for `key`, while there is room for new ones.
fn room<K: Ord, V>(map: &mut BTreeMap<K, Option<V>>, key: K) -> Option<&mut Option<V>> {
    let fits = map.len() < KEYS || map.contains_key(&key);
    fits.then(|| map.entry(key).or_default())
}

/// Newer totals replace older ones; durations add up.
fn add<T: Clone>(known: &mut Option<T>, newer: &T, durations: impl Fn(&mut T) -> &mut Histogram) {
    let mut merged = newer.clone();
    if let Some(before) = known {
        durations(&mut merged).merge(durations(before));
    }
    *known = Some(merged);
}
