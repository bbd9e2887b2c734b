//! Communicators without progress, and the ranks in them that wait for others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use xpu_wire::{
    frame::{CommunicatorState, Life},
    id::{CommunicatorId, Rank},
    ledger::Call,
};

use super::CollectiveCall;
use crate::job::{Job, RankView};

/// One rank's line of a communicator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub rank: Rank,
    pub view: &'a RankView,
    pub state: &'a CommunicatorState,
}

impl Place<'_> {
    pub(super) fn is_alive(&self) -> bool {
        self.view.life() == Life::Alive
    }

    /// Whether all timed collectives of this communicator are of one kind; then the missed one is of this
    /// kind too.
    fn always_alike(&self) -> bool {
        let mut known = self.view.samples().filter(|sample| sample.communicator == self.state.id);
        known.all(|sample| Some(sample.operation) == self.state.last_operation)
    }
}

/// A communicator none of whose ranks has moved for long.
#[derive(Debug)]
pub(super) struct StalledCommunicator<'a> {
    pub id: CommunicatorId,
    pub places: Vec<Place<'a>>,
    /// The shortest time for which its ranks have not moved.
    pub stalled_for: Duration,
}

impl<'a> StalledCommunicator<'a> {
    fn entered(&self) -> impl Iterator<Item = u64> {
        self.places.iter().map(|place| place.state.entered)
    }

    /// The number of the first collective that not all ranks have entered. If all have entered the same, that
    /// of the next one.
    pub(super) fn least(&self) -> u64 {
        self.entered().min().unwrap_or(0)
    }

    pub(super) fn most(&self) -> u64 {
        self.entered().max().unwrap_or(0)
    }

    /// Ranks that entered fewer collectives than others. All of them are at the same collective.
    pub(super) fn behind(&self) -> impl Iterator<Item = &Place<'a>> {
        let (least, most) = (self.least(), self.most());
        self.places.iter().filter(move |place| place.state.entered == least && least < most)
    }

    /// Ranks that entered the collective that the ranks behind did not enter.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Place<'a>> {
        let least = self.least();
        self.places.iter().filter(move |place| place.state.entered > least)
    }

    /// Whether its ranks have already waited there for as long and then continued: for a checkpoint, or an
    /// evaluation.
    fn is_usual(&self) -> bool {
        let living = self.places.iter().filter(|place| place.is_alive());
        let usual = living.map(|place| place.view.usual_stall(self.id, place.state.last_operation)).max();
        self.stalled_for < usual.unwrap_or_default() * 3 / 2
    }

    /// Whether every rank of it is known.
    pub(super) fn is_whole(&self) -> bool {
        let size = self.places.iter().map(|place| place.state.size).max().unwrap_or(0);
        self.places.len() >= size as usize
    }

    /// Collective `number`, as reported by the rank in `of` that has entered the fewest collectives.
    pub(super) fn collective<'b>(
        &self,
        number: u64,
        of: impl Iterator<Item = &'b Place<'b>>,
    ) -> CollectiveCall {
        let reporter = of.min_by_key(|place| (place.state.entered, place.rank));
        let reported = reporter.filter(|place| place.state.entered <= number + 1 || place.always_alike());
        CollectiveCall {
            communicator: self.id.to_string(),
            name: reporter.map(|place| place.state.name.clone()).unwrap_or_default(),
            number,
            operation: reported.and_then(|place| place.state.last_operation).map(|o| o.to_string()),
            // The kind is the same, but the size may differ: only that of the last one is known.
            bytes: reported
                .filter(|place| place.state.entered <= number + 1)
                .map(|place| place.state.last_bytes),
        }
    }
}

/// The communicators whose living ranks have not moved for `deadline`. Communicators with a rank whose hook
/// is off, or without living ranks, are not examined.
pub(super) fn stalled(job: &Job, deadline: Duration) -> Vec<StalledCommunicator<'_>> {
    // A communicator hangs only if one of its ranks hangs.
    let is_stuck = |view: &RankView| view.life() == Life::Alive && view.stalled_for() >= deadline;
    if !job.ranks().any(|(_, view)| is_stuck(view)) {
        return Vec::new();
    }
    let mut places: BTreeMap<CommunicatorId, Vec<Place<'_>>> = BTreeMap::new();
    for (rank, view) in job.ranks() {
        for state in view.latest().into_iter().flat_map(|digest| &digest.communicators) {
            places.entry(state.id).or_default().push(Place { rank, view, state });
        }
    }
    let mut stalled = Vec::new();
    for (id, places) in places {
        let living = || places.iter().filter(|place| place.is_alive());
        let seen = living().all(|place| place.view.latest().is_some_and(|digest| digest.enabled));
        let Some(stalled_for) = living().map(|place| place.view.stalled_for()).min() else { continue };
        if !seen || stalled_for < deadline {
            continue;
        }
        stalled.push(StalledCommunicator { id, places, stalled_for });
    }
    // A usual pause does not excuse a stopped or dead rank.
    if job.ranks().all(|(_, view)| view.life() == Life::Alive) { without_habits(stalled) } else { stalled }
}

/// Leaves out communicators that have paused for as long before and continued, and those that pause with
/// them: a rank that waits for a rank at a checkpoint waits for the checkpoint too.
fn without_habits(mut stalled: Vec<StalledCommunicator<'_>>) -> Vec<StalledCommunicator<'_>> {
    let mut excused: BTreeSet<Rank> = BTreeSet::new();
    loop {
        let is_excused = |one: &StalledCommunicator<'_>| {
            one.is_usual() || one.places.iter().any(|place| excused.contains(&place.rank))
        };
        let (with, without): (Vec<_>, Vec<_>) = stalled.into_iter().partition(is_excused);
        if with.is_empty() {
            return without;
        }
        excused.extend(with.iter().flat_map(|one| &one.places).map(|place| place.rank));
        stalled = without;
    }
}

/// The rank's longest present call.
pub(super) fn held(view: &RankView) -> Option<(Call, f64)> {
    let inside = view.latest()?.inside.iter().max_by_key(|inside| inside.waited)?;
    Some((inside.call, inside.waited.seconds()))
}

/// The ranks that are behind, each with the ranks for which it waits itself.
#[derive(Debug)]
pub(super) struct Waits {
    edges: BTreeMap<Rank, BTreeSet<Rank>>,
}

impl Waits {
    pub(super) fn among(stalled: &[StalledCommunicator<'_>]) -> Self {
        // If no thread is seen inside a call, calls are not observed at all, and every rank may be blocked.
        let reported =
            stalled.iter().flat_map(|stalled| &stalled.places).any(|place| held(place.view).is_some());
        let mut edges: BTreeMap<Rank, BTreeSet<Rank>> = BTreeMap::new();
        for place in stalled.iter().flat_map(StalledCommunicator::behind) {
            edges.entry(place.rank).or_default();
        }
        for stalled in stalled {
            let behind: BTreeSet<_> = stalled.behind().map(|place| place.rank).collect();
            for place in stalled.waiting() {
                let held = place.is_alive() && (!reported || held(place.view).is_some());
                if let Some(waits_for) = edges.get_mut(&place.rank).filter(|_| held) {
                    waits_for.extend(behind.iter().copied().filter(|rank| *rank != place.rank));
                }
            }
        }
        Self { edges }
    }

    /// The ranks behind that wait for no other: all others ultimately wait for them.
    pub(super) fn culprits(&self) -> BTreeSet<Rank> {
        let free = self.edges.iter().filter(|(_, waits_for)| waits_for.is_empty());
        free.map(|(&rank, _)| rank).collect()
    }

    /// Ranks that wait, through others, for themselves.
    pub(super) fn cycle(&self) -> Vec<Rank> {
        let reaches_itself = |start: Rank| {
            let mut seen = BTreeSet::new();
            let mut next: Vec<_> = self.edges[&start].iter().copied().collect();
            while let Some(rank) = next.pop() {
                if rank == start {
                    return true;
                }
                if seen.insert(rank) {
                    next.extend(self.edges.get(&rank).into_iter().flatten().copied());
                }
            }
            false
        };
        self.edges.keys().copied().filter(|&rank| reaches_itself(rank)).collect()
    }
}
