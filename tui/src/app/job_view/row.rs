//! The view model of one rank.

use std::time::Duration;

use xpu_client::filter::Subject;
use xpu_model::{
    finding::Kind,
    job::{Job, RankView},
    status::{self, RankState, RankStatus, STALE},
};
use xpu_wire::{
    frame::Life,
    id::{JobName, Rank},
};

use super::Clock;

/// How important a rank is in the list; the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A finding names it.
    Named,
    /// The rank does not report, or is gone.
    Troubled,
    /// The rank works normally, or waits for others.
    Calm,
}

/// One rank.
#[derive(Clone, Debug)]
pub struct Row {
    pub status: RankStatus,
    pub life: Life,
    /// The present time on its host.
    clock: Clock,
    /// Time since its last report.
    pub age: Duration,
    /// The class of the worst finding that names it.
    pub named: Option<Kind>,
    /// Whether the filter leaves it out.
    pub aside: bool,
    /// The value of [`RankView::changed`] for which the figures were computed.
    of: u64,
}

impl Row {
    pub(super) fn of(job: &Job, rank: Rank, view: &RankView) -> Self {
        let status = status::rank_line(job, rank, view);
        let (life, of) = (view.life(), view.changed());
        Self { status, life, clock: Clock::default(), age: Duration::ZERO, named: None, aside: false, of }
    }

    /// Notes that its figures must be computed again.
    pub(super) fn outdate(&mut self) {
        self.of = u64::MAX;
    }

    /// Whether its figures include all known data of the rank.
    pub(super) fn is_of(&self, view: &RankView) -> bool {
        self.of == view.changed()
    }

    /// Notes whether it is alive, and the time since its last report. These are known at once, even if its
    /// figures have to wait.
    pub(super) fn update_age(&mut self, view: &RankView, clock: Clock) {
        (self.life, self.clock, self.age) = (view.life(), clock, clock.age(view.last_report()));
    }

    /// Sets its state by the findings, and clears figures that are not current; for an ended job, they are
    /// kept.
    pub(super) fn place(&mut self, view: &RankView, state: RankState, is_over: bool) {
        let clock = self.clock;
        self.status.place(view, state, |then| clock.age(then));
        if !is_over {
            self.status.forget_stale();
        }
    }

    /// The rank's present data, for its line.
    pub(in crate::app) fn current_status(&self, job: &Job, view: &RankView, is_over: bool) -> RankStatus {
        let mut row = Self { status: status::rank_line(job, self.status.rank, view), ..self.clone() };
        row.place(view, self.status.state, is_over);
        row.status
    }

    /// The severity of its state: a rank that does not report is at least silent.
    pub fn severity(&self) -> RankState {
        let old = self.life == Life::Alive && !self.is_heard();
        if old { self.status.state.max(RankState::Silent) } else { self.status.state }
    }

    /// Its default priority on the screen.
    pub fn urgency(&self) -> Urgency {
        match self.severity() {
            _ if self.named.is_some() => Urgency::Named,
            RankState::Ok | RankState::Waiting => Urgency::Calm,
            _ if self.life == Life::Ended => Urgency::Calm,
            RankState::Slow | RankState::Hung | RankState::Silent | RankState::Exited => Urgency::Troubled,
        }
    }

    pub(super) fn subject<'a>(&'a self, job: &'a JobName) -> Subject<'a> {
        Subject { status: &self.status, state: self.severity(), job }
    }

    /// Whether it is alive and has reported recently.
    pub fn is_heard(&self) -> bool {
        self.life == Life::Alive && self.age < STALE
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.life, Life::Ended | Life::Died)
    }
}
