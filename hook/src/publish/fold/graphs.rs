//! Launches of graphs: each launch counts the graph's contents.

use std::{collections::HashMap, ffi::c_int};

use xpu_wire::{frame::GraphTotals, unit::Nanoseconds};

use super::{CollectiveKey, Fold, GemmKey, OnGpu, TOTALS_AT_ONCE, totals::Totals};
use crate::{
    gpu::{gpus::Gpus, graphs::Contents},
    observe::observer::Observer,
};

/// Totals by graph number, with the contents at the graph's last launch.
#[derive(Debug, Default)]
pub(super) struct GraphTally {
    totals: Totals<u32>,
    held: HashMap<u32, Held>,
    /// Launches of graphs with conditional nodes.
    conditional: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    gemms: u32,
    flops: f64,
    collectives: u32,
    bus_bytes: u64,
    only_gemms: bool,
    /// The device of its last launch, in a process that uses several.
    device: Option<c_int>,
}

impl Held {
    fn of(contents: &Contents, device: Option<c_int>) -> Self {
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            gemms: short(contents.gemms),
            flops: contents.flops as f64,
            collectives: short(contents.collectives + contents.point_to_point),
            bus_bytes: contents.bus_bytes,
            only_gemms: contents.has_only_gemms(),
            device,
        }
    }
}

impl GraphTally {
    fn count(&mut self, number: u32, contents: Option<&Contents>, device: Option<c_int>, launches: u64) {
        self.totals.count(number, launches);
        if self.totals.holds(&number) {
            let held =
                contents.map_or_else(|| Held { device, ..Held::default() }, |held| Held::of(held, device));
            self.held.insert(number, held);
        }
    }

    pub(super) fn time(&mut self, number: u32, duration: Nanoseconds) {
        self.totals.time(number, duration);
    }

    pub(super) fn mark_all(&mut self) {
        self.totals.mark_all();
    }

    pub(super) fn has_more(&self) -> bool {
        self.totals.has_more()
    }

    pub(super) fn conditional(&self) -> u64 {
        self.conditional
    }

    pub(super) fn dropped(&self) -> u64 {
        self.totals.dropped()
    }

    pub(super) fn memory(&self) -> usize {
        self.totals.memory() + self.held.capacity() * size_of::<(u32, Held)>()
    }
}

impl Fold {
    pub(super) fn count_graphs(&mut self, observer: &Observer) {
        observer.graphs.take_launches(|number, device, contents, launches| {
            self.graphs.count(number, contents, device, launches);
            let gpu = observer.gpus.beside_home(device);
            self.gpus.count(device, |all| all.graphs += launches);
            let Some(contents) = contents else { return };
            self.graphs.conditional += if contents.conditionals > 0 { launches } else { 0 };
            self.gpus.count(device, |all| {
                all.gemms += contents.gemms * launches;
                all.collectives += contents.collectives * launches;
                all.point_to_point += contents.point_to_point * launches;
            });
            for &(shape, count) in contents.shapes() {
                self.gemms.count(GemmKey { gpu, shape }, count * launches);
            }
            for (pattern, count) in contents.named.iter().enumerate() {
                self.kernels.count(pattern, count * launches);
            }
            for &(alike, count) in contents.operations() {
                let key = CollectiveKey {
                    gpu,
                    communicator: alike.communicator,
                    operation: alike.operation,
                    datatype: alike.datatype,
                    bytes: alike.bytes,
                };
                self.collectives.count(key, count * launches);
            }
        });
    }

    pub(crate) fn take_graphs(&mut self, gpus: &Gpus) -> Vec<OnGpu<GraphTotals>> {
        let held = &self.graphs.held;
        self.graphs.totals.take(TOTALS_AT_ONCE, |&graph, total, durations| {
            let held = held.get(&graph).copied().unwrap_or_default();
            let Held { gemms, flops, collectives, bus_bytes, only_gemms, device } = held;
            let totals = GraphTotals {
                graph,
                gemms,
                flops,
                collectives,
                bus_bytes,
                only_gemms,
                count: total.count,
                timed: total.timed,
                timed_for: total.timed_for,
                durations,
            };
            (gpus.beside_home(device), totals)
        })
    }
}
