//! The communicators of a job, each as all its ranks report it.

use std::collections::BTreeMap;

use xpu_model::{
    job::{Job, RankView, Sample, median},
    stack::Ranks,
};
use xpu_wire::{
    collective::Operation,
    frame::{CommunicatorState, Life},
    id::{CommunicatorId, Rank},
    unit::Nanoseconds,
};

use super::whereabouts::{self, Whereabouts};

/// Communicators computed; a job of many more shows the first, those with a rank behind first.
const MOST: usize = 512;

/// Ranks in a ranking of lateness.
const RANKED: usize = 16;

/// One communicator.
#[derive(Clone, Debug)]
pub struct Communicator {
    pub id: CommunicatorId,
    pub name: String,
    pub parent: Option<CommunicatorId>,
    pub size: u32,
    /// Its ranks that were seen.
    pub ranks: Ranks,
    /// Collectives entered, by the rank that entered fewest and the one that entered most.
    pub entered: (u64, u64),
    /// Known to be done on all its ranks.
    pub completed: u64,
    /// Ranks that others wait for.
    pub behind: Ranks,
    /// The last that any rank entered, and its bytes.
    pub last: Option<(Operation, u64)>,
    pub whereabouts: Whereabouts,
    /// Milliseconds behind the first to come, the latest rank first.
    pub late: Vec<(Rank, f64)>,
    pub traffic: Vec<Traffic>,
}

/// The timed collectives of one operation and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    pub operation: Operation,
    pub bytes: u64,
    /// Timed ones the ranks remember.
    pub timed: usize,
    pub bus_gb_s: Option<f64>,
    /// Median as the ranks saw it, waiting included.
    pub duration: Option<Nanoseconds>,
}

/// A rank's line of a communicator.
struct Member<'a> {
    rank: Rank,
    view: &'a RankView,
    state: &'a CommunicatorState,
}

/// Those with waiting ranks first, then by size and use. With a filter, those with any of its ranks, which
/// alone are listed. Figures are those of the ranks that count.
pub(super) fn of(job: &Job, meant: Option<&Ranks>, counts: impl Fn(Rank) -> bool) -> Vec<Communicator> {
    let is_meant = |rank| meant.is_none_or(|meant| meant.contains(rank));
    let mut members: BTreeMap<CommunicatorId, Vec<Member<'_>>> = BTreeMap::new();
    for (rank, view) in job.ranks() {
        for state in view.latest().into_iter().flat_map(|digest| &digest.communicators) {
            members.entry(state.id).or_default().push(Member { rank, view, state });
        }
    }
    let spread = |members: &[Member<'_>]| {
        let entered = || members.iter().map(|member| member.state.entered);
        (entered().min().unwrap_or(0), entered().max().unwrap_or(0))
    };
    let mut members: Vec<_> = members.into_iter().collect();
    members.retain(|(_, members)| members.iter().any(|member| is_meant(member.rank)));
    members.sort_by_key(|(id, members)| {
        let (least, most) = spread(members);
        let size = members.first().map_or(0, |member| member.state.size);
        let mut first = members.iter().filter(|member| member.state.entered == most);
        let waits = least < most && first.all(|member| whereabouts::stands(member.view));
        (!waits, std::cmp::Reverse((size, most)), *id)
    });
    members.truncate(MOST);
    members
        .into_iter()
        .map(|(id, members)| one(job, id, &members, spread(&members), (meant, &counts)))
        .collect()
}

fn one(
    job: &Job,
    id: CommunicatorId,
    members: &[Member<'_>],
    entered: (u64, u64),
    (meant, counts): (Option<&Ranks>, &impl Fn(Rank) -> bool),
) -> Communicator {
    let furthest = members.iter().max_by_key(|member| member.state.entered).map(|member| member.state);
    let named = members.iter().map(|member| &member.state.name).find(|name| !name.is_empty());
    let size = members.iter().map(|member| member.state.size).max().unwrap_or(0);
    let is_meant = |rank| meant.is_none_or(|meant| meant.contains(rank));
    let counting = || members.iter().filter(|member| counts(member.rank));
    let living = counting().filter(|member| member.view.life() == Life::Alive && is_meant(member.rank));
    let mut late: Vec<_> = living
        .filter_map(|member| Some((member.rank, job.lateness_of(samples(member, id))?.milliseconds())))
        .collect();
    late.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    late.truncate(RANKED);
    let title = furthest.map(whereabouts::title).unwrap_or_default();
    let whereabouts = Whereabouts::new(title, size, whereabouts::groups(job, id));
    Communicator {
        id,
        name: named.cloned().unwrap_or_default(),
        parent: members.iter().find_map(|member| member.state.parent),
        size,
        ranks: members.iter().map(|member| member.rank).collect(),
        entered,
        completed: members.iter().map(|member| member.state.completed).min().unwrap_or(0),
        behind: whereabouts.waits().map(|(_, behind)| behind.clone()).unwrap_or_default(),
        last: furthest.and_then(|state| Some((state.last_operation?, state.last_bytes))),
        whereabouts: whereabouts.only(meant),
        late,
        traffic: traffic(job, id, size, counting()),
    }
}

fn samples<'a>(member: &Member<'a>, id: CommunicatorId) -> impl Iterator<Item = &'a Sample> {
    member.view.samples().filter(move |sample| sample.communicator == id)
}

/// By operation and size, the largest first.
fn traffic<'a>(
    job: &Job,
    id: CommunicatorId,
    size: u32,
    members: impl Iterator<Item = &'a Member<'a>>,
) -> Vec<Traffic> {
    let mut kinds: BTreeMap<(u64, u8), (Operation, Vec<&Sample>)> = BTreeMap::new();
    let messages =
        |member: &'a Member<'a>| member.view.messages().filter(move |sample| sample.communicator == id);
    for sample in members.flat_map(|member| samples(member, id).chain(messages(member))) {
        let key = (sample.bus_bytes, sample.operation as u8);
        kinds.entry(key).or_insert_with(|| (sample.operation, Vec::new())).1.push(sample);
    }
    let told = kinds.into_iter().rev().map(|((bus_bytes, _), (operation, samples))| {
        let factor = operation.bus_factor(size);
        let durations = samples.iter().map(|sample| sample.duration.0 as f64).collect();
        Traffic {
            operation,
            bytes: if factor > 0.0 { (bus_bytes as f64 / factor) as u64 } else { bus_bytes },
            timed: samples.len(),
            bus_gb_s: job.bus_bandwidth_of(samples.iter().copied()).map(|rate| rate.0),
            duration: median(durations).map(|nanoseconds| Nanoseconds(nanoseconds as u64)),
        }
    });
    told.collect()
}
