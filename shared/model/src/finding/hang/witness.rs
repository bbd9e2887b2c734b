//! GPUs that have not started a collective, by the driver's figures. A kernel that waits for other ranks
//! keeps its GPU busy at low power.

use std::collections::BTreeSet;

use super::{Place, Rank};
use crate::job::{RankView, median};

/// Number of readings of a rank, all taken during the time without progress. The utilisation covers at most a
/// second.
const READINGS: usize = 3;
const LATER_BY: f64 = 3.0;

/// In percent: below the first, nothing runs; above the second, something always runs.
const IDLE: f64 = 1.0;
pub(super) const BUSY: f64 = 95.0;

/// In watts, and as a ratio: the additional power of a GPU that computes, compared with GPUs that wait in a
/// collective.
const MORE_WATTS: f64 = 100.0;
const MORE: f64 = 1.7;

/// The evidence that a GPU has not started a collective.
#[derive(Clone, Debug, PartialEq)]
pub enum Witness {
    /// An event before it on its stream.
    Event,
    /// Its GPU runs nothing, and those of the others do: in percent of the time.
    Idle { others_busy_pct: f64 },
    /// It takes this much power, and the others take at most `others_watts`.
    Power { watts: f64, others_watts: f64 },
}

/// The ranks whose GPUs have not started a collective that all ranks launched.
pub(super) fn not_started(places: &[Place<'_>]) -> Option<(Vec<Rank>, Witness)> {
    let loads: Vec<_> =
        places.iter().map(|place| Some((place.rank, Load::of(place.view)?))).collect::<Option<_>>()?;
    if loads.len() < 2 || !have_own_devices(places) {
        return None;
    }
    let (idle, running): (Vec<_>, Vec<_>) = loads.iter().partition(|(_, load)| load.busy_pct <= IDLE);
    let others_busy_pct = running.iter().map(|(_, load)| load.busy_pct).fold(f64::INFINITY, f64::min);
    if others_busy_pct < BUSY {
        return None;
    }
    if !idle.is_empty() {
        let ranks = idle.iter().map(|(rank, _)| *rank).collect();
        return (!running.is_empty()).then_some((ranks, Witness::Idle { others_busy_pct }));
    }
    let watts: Vec<_> = loads.iter().map(|(rank, load)| Some((load.watts?, *rank))).collect::<Option<_>>()?;
    let (watts, rank) = watts.iter().copied().max_by(|one, other| one.0.total_cmp(&other.0))?;
    let others = loads.iter().filter(|(other, _)| *other != rank).filter_map(|(_, load)| load.watts);
    let others_watts = others.fold(0.0, f64::max);
    let computes = watts >= others_watts * MORE && watts >= others_watts + MORE_WATTS;
    computes.then(|| (vec![rank], Witness::Power { watts, others_watts }))
}

/// If ranks share a GPU, the driver's figures for one include those of the other.
pub(super) fn have_own_devices(places: &[Place<'_>]) -> bool {
    let device = |place: &Place<'_>| place.view.device().map(|reading| reading.uuid);
    let devices: Vec<_> = places.iter().filter_map(device).collect();
    let apart: BTreeSet<_> = devices.iter().copied().collect();
    apart.len() == devices.len()
}

/// The load of a GPU while its rank makes no progress.
pub(super) struct Load {
    pub busy_pct: f64,
    pub watts: Option<f64>,
    pub limit_watts: Option<f64>,
}

impl Load {
    pub(super) fn of(view: &RankView) -> Option<Self> {
        let newest = view.device().filter(|reading| !reading.is_stale())?;
        let limit_watts = newest.power_limit.map(|limit| f64::from(limit) / 1e3);
        let since = view.stalled_for().as_secs_f64() - LATER_BY;
        let is_of_now = |age: f64| age < since;
        let readings: Vec<_> = view
            .device_readings()
            .take_while(|reading| is_of_now(view.last_report().since(reading.read).as_secs_f64()))
            .take(READINGS)
            .collect();
        let busy: Vec<_> = readings.iter().filter_map(|reading| reading.utilisation.map(f64::from)).collect();
        let watts = readings.iter().filter_map(|reading| reading.power.map(|power| f64::from(power) / 1e3));
        let watts = median(watts.collect());
        (busy.len() == READINGS).then_some(())?;
        Some(Self { busy_pct: median(busy)?, watts, limit_watts })
    }
}
