//! What the screen says of one rank.

use std::time::Duration;

use xpu_shared::{
    finding::Kind,
    frame::Life,
    id::{JobName, Rank},
    job::{Job, RankView},
    status::{self, RankState, RankStatus},
    unit::Moment,
};

use crate::filter::Subject;

/// A rank that has not been heard of for so long is drawn as old: collectors speak once a second.
pub(in crate::app) const STALE: Duration = Duration::from_secs(5);

/// Who is to be seen first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A finding speaks of it.
    Named,
    /// Nothing is heard of it, or it is gone.
    Troubled,
    /// It does what it should, or waits for others.
    Calm,
}

/// One rank.
#[derive(Clone, Debug)]
pub struct Row {
    pub status: RankStatus,
    pub life: Life,
    pub(super) heard: Moment,
    /// Since it was last heard of.
    pub age: Duration,
    /// What the worst finding that names it is about.
    pub named: Option<Kind>,
    /// The filter leaves it out.
    pub aside: bool,
    /// What was known of the rank when its figures were worked out.
    of: u64,
}

impl Row {
    pub(super) fn of(job: &Job, rank: Rank, view: &RankView) -> Self {
        let status = status::rank_line(job, rank, view);
        let (life, heard, of) = (view.life(), view.heard(), view.changed());
        Self { status, life, heard, age: Duration::ZERO, named: None, aside: false, of }
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

    /// How soon it is to be seen where nobody has said otherwise.
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

    /// Whether its figures are of now.
    pub fn is_fresh(&self) -> bool {
        self.life == Life::Alive && self.age < STALE
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.life, Life::Ended | Life::Died)
    }
}
