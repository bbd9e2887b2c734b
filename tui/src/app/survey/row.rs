//! What the screen says of one rank.

use std::time::Duration;

use xpu_shared::{
    frame::Life,
    id::{JobName, Rank},
    job::{Job, RankView},
    status::{self, RankState, RankStatus},
    unit::Moment,
};

use crate::filter::Subject;

/// A rank that has not been heard of for so long is drawn as old: collectors speak once a second.
pub(in crate::app) const STALE: Duration = Duration::from_secs(5);

/// One rank.
#[derive(Clone, Debug)]
pub struct Row {
    pub status: RankStatus,
    pub life: Life,
    pub(super) heard: Moment,
    /// Since it was last heard of.
    pub age: Duration,
    /// What its products reach of what its GPU can do at the clock it has now, in percent.
    pub of_peak: Option<f64>,
    /// The filter leaves it out.
    pub aside: bool,
    /// What was known of the rank when its figures were worked out.
    of: u64,
}

impl Row {
    pub(super) fn of(job: &Job, rank: Rank, view: &RankView) -> Self {
        let status = status::rank_line(job, rank, view);
        let of_peak = of_peak(&status, view);
        let (life, heard, of) = (view.life(), view.heard(), view.changed());
        Self { status, life, heard, age: Duration::ZERO, of_peak, aside: false, of }
    }

    /// Whether nothing is known of the rank that is not in its figures.
    pub(super) fn is_of(&self, view: &RankView) -> bool {
        self.of == view.changed()
    }

    /// Whether it is there, and since when nothing was heard of it: known at once, also where its figures have to wait.
    pub(super) fn hear(&mut self, view: &RankView) {
        (self.life, self.heard) = (view.life(), view.heard());
    }

    /// How bad its state is: a rank nothing is heard of is at least silent.
    pub fn severity(&self) -> RankState {
        let old = self.life == Life::Alive && !self.is_fresh();
        if old { self.status.state.max(RankState::Silent) } else { self.status.state }
    }

    pub(super) fn subject<'a>(&'a self, job: &'a JobName) -> Subject<'a> {
        Subject { status: &self.status, state: self.severity(), job }
    }

    /// Whether its figures are of now.
    pub fn is_fresh(&self) -> bool {
        self.life == Life::Alive && self.age < STALE
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.life, Life::Ended | Life::Died)
    }
}

/// Where the driver does not tell the clock, of the peak as the data sheet has it.
fn of_peak(status: &RankStatus, view: &RankView) -> Option<f64> {
    let share = status.gemm_tflops?.0 / view.gemm_peak()?.0;
    let device = status.device.as_ref().filter(|device| !device.is_stale());
    let clocks = device.and_then(|device| device.sm_max_mhz.zip(device.sm_mhz));
    let slower =
        clocks.filter(|&(_, now)| now > 0).map_or(1.0, |(most, now)| f64::from(most) / f64::from(now));
    Some(share * slower * 100.0)
}
