//! The parts of the time in GEMMs: the time at the GPU's peak, the time lost to lower clocks, and the rest.

use std::fmt;

use serde::Serialize;
use xpu_wire::frame::{DeviceReading, Throttle};

use crate::job::Breakdown;

/// Percentage of the time below which a loss to lower clocks has no reason given.
const LOST: f64 = 0.5;

/// Parts of the GEMM time, in percent of all time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GemmTime {
    /// The time that the GEMMs would take at the GPU's peak.
    #[serde(rename = "gemms_at_peak_pct")]
    pub at_peak_pct: f64,
    /// Time that would be saved at the highest clock, if GEMMs are as much faster as the clock is higher. Reasons
    /// for a lower clock are a power limit, heat, or a setting.
    #[serde(rename = "gemms_clock_pct")]
    pub clock_pct: f64,
    /// The rest: shapes, kernels, and other work on the GPU.
    #[serde(rename = "gemms_below_peak_pct")]
    pub below_peak_pct: f64,
    /// The driver's reasons for low clocks on at least half of the GPUs.
    #[serde(rename = "clocks_held_by")]
    pub held_by: Vec<&'static str>,
}

impl GemmTime {
    /// `gemms`: the share of all time. `None` if the GPU's peak or its clock is unknown.
    pub(super) fn of(one: &Breakdown, gemms: f64) -> Option<Self> {
        let at_peak = one.at_peak?.min(gemms);
        let clock = one.clock.filter(|clock| *clock > 0.0)?.min(1.0);
        let to_clock = (gemms * (1.0 - clock)).min(gemms - at_peak);
        Some(Self {
            at_peak_pct: 100.0 * at_peak,
            clock_pct: 100.0 * to_clock,
            below_peak_pct: 100.0 * (gemms - at_peak - to_clock).max(0.0),
            held_by: Vec::new(),
        })
    }

    pub(super) fn take_reasons<'a>(&mut self, readings: impl Iterator<Item = &'a DeviceReading>) {
        if self.clock_pct < LOST {
            return;
        }
        let throttles = readings.filter(|reading| !reading.is_stale()).filter_map(|reading| reading.throttle);
        let throttles: Vec<Throttle> = throttles.collect();
        let any = throttles.iter().fold(Throttle(0), |any, one| Throttle(any.0 | one.0));
        let of_most = |word: &&str| {
            2 * throttles.iter().filter(|one| one.words().contains(word)).count() >= throttles.len()
        };
        self.held_by = any.words().into_iter().filter(of_most).collect();
    }
}

/// `45 % at the GPU's peak, 5 % lost to lower clocks (power cap), 13 % below peak`
impl fmt::Display for GemmTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_peak_pct, clock_pct, below_peak_pct, held_by } = self;
        write!(f, "{at_peak_pct:.0} % at the GPU's peak, {clock_pct:.0} % lost to lower clocks")?;
        if !held_by.is_empty() {
            write!(f, " ({})", held_by.join(", "))?;
        }
        write!(f, ", {below_peak_pct:.0} % below peak")
    }
}
