//! The communicators of a job, each combined from the reports of all its ranks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use xpu_model::{
    figure,
    job::{Job, RankView, Sample, median},
    stack::Ranks,
};
use xpu_wire::{
    collective::Operation,
    frame::{CommunicatorState, Life},
    id::{CommunicatorId, Rank},
    unit::Nanoseconds,
};

use super::{
    fold::stem,
    rank_positions::{self, RankPositions},
};

/// Number of communicators that are computed. A job with more shows only the first ones; those with a rank
/// behind come first.
const MOST: usize = 512;

/// Number of communicators that are listed one by one. If there are more, those of one kind share a line.
const ONE_BY_ONE: usize = 16;

/// Number of ranks in a ranking of arrival skew.
const RANKED: usize = 16;

/// The communicators of a job, and the selected one.
#[derive(Clone, Debug, Default)]
pub struct Communicators {
    pub lines: Vec<Communicator>,
    /// All kinds, the most frequent first.
    pub kinds: Vec<Kind>,
    /// The number of communicators.
    pub total: usize,
    /// Whether each communicator has a line, however many there are.
    pub(crate) every: bool,
    /// The index of the selected line.
    at: usize,
}

/// A kind of communicators: the name without its number, and the size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub count: usize,
    name: String,
    size: u32,
}

/// `tp ×128`; without a name `8 ranks ×16`; a single communicator by its own name.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            f.write_str(&figure::counted(self.size as usize, "rank", "ranks"))?;
        } else {
            f.write_str(&self.name)?;
        }
        if self.count == 1 { Ok(()) } else { write!(f, " ×{}", figure::count(self.count as u64)) }
    }
}

/// Range of entered collectives of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    pub least: u64,
    pub most: u64,
}

/// One communicator.
#[derive(Clone, Debug)]
pub struct Communicator {
    /// Its kind, if its line represents all communicators of that kind in which no rank is awaited.
    pub kind: Option<Kind>,
    pub id: CommunicatorId,
    pub name: String,
    pub parent: Option<CommunicatorId>,
    pub size: u32,
    /// Its ranks that were seen.
    pub ranks: Ranks,
    /// Number of collectives that the rank furthest behind has entered, and the rank furthest ahead.
    pub entered: Entered,
    /// Collectives known to be done on all its ranks.
    pub completed: u64,
    /// Ranks for which others wait.
    pub behind: Ranks,
    /// The last collective that any rank entered, and its bytes.
    pub last: Option<(Operation, u64)>,
    pub rank_positions: RankPositions,
    /// Arrival skew in milliseconds, the latest rank first.
    pub late: Vec<(Rank, f64)>,
    pub traffic: Vec<Traffic>,
}

/// The timed collectives of one operation and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    pub operation: Operation,
    pub bytes: u64,
    /// Number of timed collectives that the ranks still hold.
    pub timed: usize,
    pub bus_gb_s: Option<f64>,
    /// Median duration as the ranks saw it, including waiting.
    pub duration: Option<Nanoseconds>,
}

/// A rank in a communicator.
struct Member<'a> {
    rank: Rank,
    view: &'a RankView,
    state: &'a CommunicatorState,
}

impl Communicators {
    /// The index of the selected line.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn select(&mut self, line: usize) {
        self.at = line;
    }

    pub(crate) fn selected(&self) -> Option<&Communicator> {
        self.lines.get(self.at)
    }

    /// Selects the line of this communicator; `false` if it has none.
    pub(crate) fn select_one(&mut self, id: CommunicatorId) -> bool {
        let line = self.lines.iter().position(|one| one.id == id);
        self.at = line.unwrap_or(self.at);
        line.is_some()
    }

    /// Whether some communicators have no line of their own.
    pub(crate) fn has_more(&self) -> bool {
        self.total > self.lines.len()
    }

    pub(crate) fn settle(&mut self, job: &Job, matching: Option<&Ranks>, counts: impl Fn(Rank) -> bool) {
        let at = self.at;
        *self = Self::of(job, matching, counts, self.every);
        self.at = at.min(self.lines.len().saturating_sub(1));
    }

    /// Communicators with waiting ranks come first, then by size and use. With a filter, only communicators
    /// with a matching rank are listed, and only matching ranks. Figures cover only ranks with current
    /// figures.
    fn of(job: &Job, matching: Option<&Ranks>, counts: impl Fn(Rank) -> bool, every: bool) -> Self {
        let is_matching = |rank| matching.is_none_or(|matching| matching.contains(rank));
        let mut members: BTreeMap<CommunicatorId, Vec<Member<'_>>> = BTreeMap::new();
        for (rank, view) in job.ranks() {
            for state in view.latest().into_iter().flat_map(|digest| &digest.communicators) {
                members.entry(state.id).or_default().push(Member { rank, view, state });
            }
        }
        let spread = |members: &[Member<'_>]| {
            let entered = || members.iter().map(|member| member.state.entered);
            Entered { least: entered().min().unwrap_or(0), most: entered().max().unwrap_or(0) }
        };
        let mut members: Vec<_> = members.into_iter().collect();
        members.retain(|(_, members)| members.iter().any(|member| is_matching(member.rank)));
        let waits = |members: &[Member<'_>]| {
            let Entered { least, most } = spread(members);
            let mut first = members.iter().filter(|member| member.state.entered == most);
            least < most && first.all(|member| rank_positions::is_stuck(member.view))
        };
        members.sort_by_cached_key(|(id, members)| {
            let size = members.first().map_or(0, |member| member.state.size);
            (!waits(members), Reverse((size, spread(members).most)), *id)
        });
        let total = members.len();
        let mut kinds: BTreeMap<(String, u32), usize> = BTreeMap::new();
        for (_, members) in &members {
            *kinds.entry(likeness(members)).or_default() += 1;
        }
        let mut representatives: BTreeMap<CommunicatorId, Kind> = BTreeMap::new();
        if !every && total > ONE_BY_ONE {
            let mut seen: BTreeSet<(String, u32)> = BTreeSet::new();
            members.retain(|(id, members)| {
                let (name, size) = likeness(members);
                let count = kinds[&(name.clone(), size)];
                if count == 1 || waits(members) {
                    return true;
                }
                representatives.insert(*id, Kind { count, name: name.clone(), size });
                seen.insert((name, size))
            });
        }
        members.truncate(MOST);
        let lines = members.into_iter().map(|(id, members)| Communicator {
            kind: representatives.remove(&id),
            ..one(job, id, &members, spread(&members), matching, &counts)
        });
        let lines = lines.collect();
        let mut kinds: Vec<_> =
            kinds.into_iter().map(|((name, size), count)| Kind { count, name, size }).collect();
        kinds.sort_by(|one, other| other.cmp(one));
        Self { lines, kinds, total, every, at: 0 }
    }
}

/// What communicators of one kind have in common: the name without its number, and the size.
fn likeness(members: &[Member<'_>]) -> (String, u32) {
    let named = members.iter().map(|member| &member.state.name).find(|name| !name.is_empty());
    let size = members.iter().map(|member| member.state.size).max().unwrap_or(0);
    (named.map_or_else(String::new, |name| stem(name)), size)
}

fn one(
    job: &Job,
    id: CommunicatorId,
    members: &[Member<'_>],
    entered: Entered,
    matching: Option<&Ranks>,
    counts: &impl Fn(Rank) -> bool,
) -> Communicator {
    let furthest = members.iter().max_by_key(|member| member.state.entered).map(|member| member.state);
    let named = members.iter().map(|member| &member.state.name).find(|name| !name.is_empty());
    let size = members.iter().map(|member| member.state.size).max().unwrap_or(0);
    let is_matching = |rank| matching.is_none_or(|matching| matching.contains(rank));
    let counting = || members.iter().filter(|member| counts(member.rank));
    let living = counting().filter(|member| member.view.life() == Life::Alive && is_matching(member.rank));
    let mut late: Vec<_> = living
        .filter_map(|member| Some((member.rank, job.arrival_skew_of(samples(member, id))?.milliseconds())))
        .collect();
    late.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    late.truncate(RANKED);
    let title = furthest.map(rank_positions::title).unwrap_or_default();
    let rank_positions = RankPositions::new(title, size, rank_positions::groups(job, id));
    Communicator {
        kind: None,
        id,
        name: named.cloned().unwrap_or_default(),
        parent: members.iter().find_map(|member| member.state.parent),
        size,
        ranks: members.iter().map(|member| member.rank).collect(),
        entered,
        completed: members.iter().map(|member| member.state.completed).min().unwrap_or(0),
        behind: rank_positions.waits().map(|(_, behind)| behind.clone()).unwrap_or_default(),
        last: furthest.and_then(|state| Some((state.last_operation?, state.last_bytes))),
        rank_positions: rank_positions.only(matching),
        late,
        traffic: traffic(job, id, size, counting()),
    }
}

fn samples<'a>(member: &Member<'a>, id: CommunicatorId) -> impl Iterator<Item = &'a Sample> {
    member.view.samples().filter(move |sample| sample.communicator == id)
}

/// The traffic by operation and size, the largest first.
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
    let rows = kinds.into_iter().rev().map(|((bus_bytes, _), (operation, samples))| {
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
    rows.collect()
}

#[cfg(test)]
mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;
    use xpu_wire::frame::Body;

    use super::*;

    /// Sixty-four ranks, each in a pair of its own kind and in the communicator of all.
    fn pairs() -> Jobs {
        let mut jobs = Jobs::default();
        for mut frame in Simulation::new(1, 8, 8).snapshots(9) {
            let Body::Snapshot(snapshot) = &mut frame.body else { unreachable!() };
            for rank in &mut snapshot.jobs[0].ranks {
                let number = rank.digest.rank.0;
                let mut pair = rank.digest.communicators[0].clone();
                pair.id = CommunicatorId(100 + u64::from(number / 2));
                (pair.name, pair.size) = (format!("tp{}", number / 2), 2);
                rank.digest.communicators.push(pair);
            }
            jobs.fold(&frame);
        }
        jobs
    }

    #[test]
    fn of_many_communicators_those_of_one_kind_share_a_line() {
        let jobs = pairs();
        let job = jobs.foremost().unwrap();
        let listed = Communicators::of(job, None, |_| true, false);
        assert_eq!((listed.lines.len(), listed.total), (2, 33));
        let kinds: Vec<_> = listed.kinds.iter().map(ToString::to_string).collect();
        assert_eq!(kinds, ["tp ×32", "64 ranks"]);
        assert_eq!(listed.lines[0].kind, None, "one alone is shown as it is");
        assert_eq!(listed.lines[1].kind.as_ref().map(|kind| kind.count), Some(32));
        let every = Communicators::of(job, None, |_| true, true);
        assert_eq!((every.lines.len(), every.total), (33, 33));
        // A filter leaves only few ranks.
        let matching: Ranks = (0..8).map(Rank).collect();
        assert_eq!(Communicators::of(job, Some(&matching), |_| true, false).lines.len(), 5);
    }
}
