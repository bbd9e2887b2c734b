//! The positions of ranks in a communicator: ranks at the same position form a group, and groups that are
//! behind come first.

use std::time::Duration;

use xpu_model::{
    job::{Job, RankView},
    stack::Ranks,
};
use xpu_wire::{
    frame::{CommunicatorState, Life},
    id::CommunicatorId,
    ledger::Call,
    unit::Nanoseconds,
};

/// Shorter calls do not count as blocking, because ranks make many of them in a second.
const HELD: Nanoseconds = Nanoseconds(1_000_000_000);

/// A rank with recent progress is not waiting. Hosts report at different times, so ranks at the same position
/// may seem to be some collectives apart.
const STALLED: Duration = Duration::from_secs(2);

/// Ranks at the same place.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub ranks: Ranks,
    pub entered: u64,
    pub enqueued: u64,
    pub completed: u64,
    /// The call in which they wait, if any.
    pub call: Option<Call>,
    /// The time that the first of them has waited in it.
    pub held: Duration,
    pub life: Life,
    /// Whether all of them wait.
    stand: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankPositions {
    /// The communicator as its ranks call it: its hash, and its name if it has one.
    pub title: String,
    pub size: u32,
    pub groups: Vec<Group>,
    /// Ranks that entered the most and wait, and those that entered fewer.
    waits: Option<(Ranks, Ranks)>,
}

impl RankPositions {
    /// The positions in the communicator with this id, otherwise in the largest one.
    pub(super) fn of(job: &Job, wanted: Option<&str>) -> Self {
        let states = || {
            let digests = job.ranks().filter_map(|(_, view)| view.latest());
            digests.flat_map(|digest| &digest.communicators)
        };
        let named = wanted.and_then(|id| states().find(|state| state.id.to_string() == id));
        let busiest = || states().max_by_key(|state| (state.size, state.entered));
        let Some(shown) = named.or_else(busiest) else { return Self::default() };
        Self::new(title(shown), shown.size, groups(job, shown.id))
    }

    pub(super) fn new(title: String, size: u32, groups: Vec<Group>) -> Self {
        let waits = waits(&groups);
        Self { title, size, groups, waits }
    }

    /// The waiting ranks and the awaited ranks, among all its ranks.
    pub fn waits(&self) -> Option<&(Ranks, Ranks)> {
        self.waits.as_ref()
    }

    /// Whether other ranks wait for the group, and it waits for none.
    pub fn is_behind(&self, group: &Group) -> bool {
        let behind = self.waits.as_ref().map(|(_, behind)| behind);
        behind.zip(group.ranks.first()).is_some_and(|(behind, first)| behind.contains(first))
    }

    /// The positions with only these ranks listed; dependencies still cover all ranks.
    pub fn only(&self, matching: Option<&Ranks>) -> Self {
        let mut shown = self.clone();
        let Some(matching) = matching else { return shown };
        for group in &mut shown.groups {
            group.ranks = group.ranks.iter().filter(|&rank| matching.contains(rank)).collect();
        }
        shown.groups.retain(|group| !group.ranks.is_empty());
        shown
    }
}

fn waits(groups: &[Group]) -> Option<(Ranks, Ranks)> {
    let most = groups.iter().map(|group| group.entered).max()?;
    let of = |ahead: bool| -> Ranks {
        let groups = groups.iter().filter(|group| (group.entered == most) == ahead);
        groups.flat_map(|group| group.ranks.iter()).collect()
    };
    let (ahead, behind) = (of(true), of(false));
    let stand = groups.iter().filter(|group| group.entered == most).all(|group| group.stand);
    (stand && !behind.is_empty()).then_some((ahead, behind))
}

/// Whether the rank has made no progress for a while.
pub(super) fn is_stuck(view: &RankView) -> bool {
    view.stalled_for() >= STALLED
}

pub(super) fn title(state: &CommunicatorState) -> String {
    if state.name.is_empty() { state.id.to_string() } else { format!("{} {}", state.name, state.id) }
}

pub(super) fn groups(job: &Job, id: CommunicatorId) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (rank, view) in job.ranks() {
        let Some(digest) = view.latest() else { continue };
        let Some(state) = digest.communicators.iter().find(|state| state.id == id) else { continue };
        let inside =
            digest.inside.iter().filter(|inside| inside.waited >= HELD).max_by_key(|inside| inside.waited);
        let call = inside.map(|inside| inside.call);
        let held = inside.map_or(Duration::ZERO, |inside| Duration::from_nanos(inside.waited.0));
        let place = (state.entered, state.enqueued, state.completed, call, view.life());
        let same = |group: &&mut Group| {
            (group.entered, group.enqueued, group.completed, group.call, group.life) == place
        };
        if let Some(group) = groups.iter_mut().find(same) {
            group.ranks.insert(rank);
            group.held = group.held.max(held);
            group.stand &= is_stuck(view);
        } else {
            groups.push(Group {
                ranks: std::iter::once(rank).collect(),
                entered: state.entered,
                enqueued: state.enqueued,
                completed: state.completed,
                call,
                held,
                life: view.life(),
                stand: is_stuck(view),
            });
        }
    }
    groups.sort_by_key(|group| (group.entered, group.enqueued, group.ranks.len()));
    groups
}
