//! Whether a rank's data is current. The screen, documents and metrics all use this.

use std::time::Duration;

use xpu_wire::{
    frame::{DeviceReading, Life},
    unit::{Moment, Nanoseconds},
};

use super::{RankState, RankStatus};
use crate::job::RankView;

/// Time without reports after which a rank may be doing something else: collectors report once a second.
pub const STALE: Duration = Duration::from_secs(5);

/// Number of step times for which a rank may make no progress.
const STEPS: u32 = 3;

/// The time since which a rank's figures are not current, by its host's clock: it hangs, waits for a hung
/// rank, is silent or gone, or has made no progress for a while. `None` while they are current. `silence`:
/// time since its last report.
pub fn stale_since(view: &RankView, state: RankState, silence: Duration) -> Option<Moment> {
    // A rank that has only introduced itself has no figures that could be old.
    view.latest()?;
    let step = view.pace().map_or(Duration::ZERO, |Nanoseconds(pace)| Duration::from_nanos(pace));
    let rests = view.last_report().since(view.last_progress()) >= STALE.max(step * STEPS);
    let is_well = matches!(state, RankState::Ok | RankState::Slow) && view.life() == Life::Alive;
    (!is_well || rests || silence >= STALE).then(|| view.last_progress())
}

impl RankStatus {
    /// Sets the rank's state, which follows from the findings, and the age of its figures. `ago`: time since
    /// a moment of its host's clock.
    pub fn place(&mut self, view: &RankView, state: RankState, ago: impl Fn(Moment) -> Duration) {
        self.state = state;
        let since = stale_since(view, state, ago(view.last_report()));
        self.figures_age_s = since.map(|since| ago(since).as_secs_f64());
        self.load = self.load.take().filter(|_| view.load().is_some_and(|load| ago(load.at) < STALE));
        if let Some((device, reading)) = self.device.as_mut().zip(view.device()) {
            device.unheard = view.life() != Life::Alive || ago(view.last_report()) >= STALE;
            device.age_s = age_of(reading, ago).as_secs_f64();
        }
    }

    /// Whether its figures are current.
    pub fn is_live(&self) -> bool {
        self.figures_age_s.is_none()
    }

    /// Clears values that are not current: its figures, and its GPU's last activity.
    pub fn forget_stale(&mut self) {
        let is_gone = self.state == RankState::Exited;
        if let Some(device) = self.device.as_mut().filter(|device| is_gone || device.is_stale()) {
            device.forget_moment();
        }
        if self.is_live() {
            return;
        }
        (self.step_ms_mean, self.step_ms_p50, self.step_ms_p99, self.step_timed_by) =
            (None, None, None, None);
        self.steps_measured = None;
        (self.tokens_per_s, self.samples_per_s, self.mfu) = (None, None, None);
        (self.achieved_tflops, self.gemm_tflops, self.gemm_peak_pct) = (None, None, None);
        (self.bus_gb_s, self.lateness_ms_p50) = (None, None);
        (self.blocked_pct, self.exposed_pct, self.gpu_time) = (None, None, None);
        self.memory_growth = None;
        self.collectives.iter_mut().for_each(|one| one.bus_gb_s = None);
        if is_gone {
            (self.memory_held_bytes, self.memory_nccl_bytes) = (None, None);
        }
    }
}

/// A reading's age. It is computed here because a collector that is gone does not update it.
pub fn age_of(reading: &DeviceReading, ago: impl Fn(Moment) -> Duration) -> Duration {
    Duration::from_nanos(reading.age.0).max(ago(reading.read))
}
