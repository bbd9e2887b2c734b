//! Shows the ranks of one group as one row: that of the worst rank.

use std::collections::BTreeMap;

use xpu_analysis::capture::Groups;
use xpu_model::{job::Job, stack::Ranks};
use xpu_wire::{frame::CommunicatorState, id::CommunicatorId};

use super::Row;

/// The folded item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fold {
    #[default]
    Nothing,
    Hosts,
    /// Groups of this kind: an axis of `--groups`, or a kind of communicators.
    Kind(String),
}

/// Ranks that share one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pub name: String,
    /// Their rows, as indices among the rows of the job view.
    pub rows: Vec<usize>,
    /// The worst of them.
    pub worst: usize,
}

/// Largest number of kinds of groups by communicators; in a job with more, the names do not denote kinds.
const KINDS: usize = 6;

/// Largest number of runs of ranks in a group's name.
const RUNS: usize = 2;

impl Fold {
    /// The next folding: hosts, then each kind of group, then none.
    #[must_use]
    pub fn next(&self, kinds: &[String]) -> Self {
        let kind = |at: usize| kinds.get(at).cloned().map_or(Self::Nothing, Self::Kind);
        match self {
            Self::Nothing => Self::Hosts,
            Self::Hosts => kind(0),
            Self::Kind(now) => {
                kinds.iter().position(|kind| kind == now).map_or(Self::Nothing, |at| kind(at + 1))
            }
        }
    }

    /// The ranks in groups; a rank in no group is its own group. Empty if nothing is folded.
    pub(super) fn bundles(&self, job: &Job, rows: &[Row], groups: Option<&Groups>) -> Vec<Bundle> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Hosts => bundled(rows, |row| Some(row.status.host.to_string())),
            Self::Kind(kind) => groups.map_or_else(
                || by_communicators(kind, job, rows),
                |groups| bundled(rows, |row| Some(groups.beside(kind, row.status.rank))),
            ),
        }
    }
}

/// The groups of one kind, by their communicators; none if there is no such kind.
fn by_communicators(kind: &str, job: &Job, rows: &[Row]) -> Vec<Bundle> {
    let Some(family) = families(job, rows).into_iter().find(|family| family.name == kind) else {
        return Vec::new();
    };
    let mut names = vec![None; rows.len()];
    for (name, members) in family.groups {
        for row in members {
            names[row] = Some(name.clone());
        }
    }
    let mut names = names.into_iter();
    bundled(rows, |_| names.next()?)
}

/// The available kinds of groups, in the order of folding.
pub(super) fn kinds(job: &Job, rows: &[Row], groups: Option<&Groups>) -> Vec<String> {
    match groups {
        Some(groups) => groups.wide().map(str::to_owned).collect(),
        None => families(job, rows).into_iter().map(|family| family.name).collect(),
    }
}

/// Groups, in the order of the first rank of each.
fn bundled(rows: &[Row], mut name: impl FnMut(&Row) -> Option<String>) -> Vec<Bundle> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut bundles: Vec<Bundle> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let name = name(row).unwrap_or_else(|| format!("rank {}", row.status.rank));
        let place = *places.entry(name.clone()).or_insert(bundles.len());
        match bundles.get_mut(place) {
            Some(bundle) => bundle.rows.push(index),
            None => bundles.push(Bundle { name, rows: vec![index], worst: index }),
        }
    }
    bundles
}

/// Groups of one kind; no rank is in two of them.
struct Family {
    name: String,
    groups: Vec<(String, Vec<usize>)>,
}

/// What the groups of a kind have in common: the name without its number, the number of ranks, and the
/// distance between them.
type Likeness = (String, u32, u32);

/// The families by the ranks' communicators. Communicators of all ranks or of one rank are left out, because
/// they fold nothing.
fn families(job: &Job, rows: &[Row]) -> Vec<Family> {
    let world = job.world_size();
    let mut members: BTreeMap<CommunicatorId, (&CommunicatorState, Vec<usize>)> = BTreeMap::new();
    for (index, (_, view)) in job.ranks().enumerate().take(rows.len()) {
        for state in view.latest().into_iter().flat_map(|digest| &digest.communicators) {
            if state.size > 1 && state.size < world {
                members.entry(state.id).or_insert_with(|| (state, Vec::new())).1.push(index);
            }
        }
    }
    let mut alike: BTreeMap<Likeness, Vec<(&CommunicatorState, Vec<usize>)>> = BTreeMap::new();
    for (state, members) in members.into_values() {
        let rank = |at: usize| {
            members.get(at).and_then(|&row| rows.get(row)).map_or(0, |row| row.status.rank.process().0)
        };
        let stride = rank(1).saturating_sub(rank(0));
        alike.entry((stem(&state.name), state.size, stride)).or_default().push((state, members));
    }
    let mut families: Vec<_> =
        alike.into_iter().filter_map(|(likeness, groups)| family(likeness, groups, rows, world)).collect();
    // Families that hold the most ranks come first.
    families.sort_by_key(|family| {
        std::cmp::Reverse(family.groups.iter().map(|(_, members)| members.len()).sum::<usize>())
    });
    families.truncate(KINDS);
    families
}

fn family(
    (stem, size, stride): Likeness,
    mut groups: Vec<(&CommunicatorState, Vec<usize>)>,
    rows: &[Row],
    world: u32,
) -> Option<Family> {
    // A rank in several groups belongs to the one with the most collectives.
    groups.sort_by_key(|(state, _)| std::cmp::Reverse(state.entered));
    let mut taken = vec![false; rows.len()];
    groups.retain(|(_, members)| {
        let free = members.iter().all(|&row| !taken[row]);
        if free {
            for &row in members {
                taken[row] = true;
            }
        }
        free
    });
    let named = |(state, members): (&CommunicatorState, Vec<usize>)| {
        let ranks: Ranks = members.iter().map(|&row| rows[row].status.rank).collect();
        let name =
            if state.name.is_empty() || state.name == stem { ranks.named(RUNS) } else { state.name.clone() };
        (name, members)
    };
    let name = match (stem.is_empty(), stride) {
        (false, _) => stem.clone(),
        (true, 0 | 1) => format!("groups of {size}"),
        (true, stride) => format!("groups of {size}, {stride} apart"),
    };
    // Only groups whose size divides the job, because other splits would fold it into parts that cannot be
    // compared.
    let divide = world.is_multiple_of(size);
    (groups.len() > 1 && divide).then(|| Family { name, groups: groups.into_iter().map(named).collect() })
}

/// The name without the number at its end: `tp3` and `tp 4` are of one kind.
pub(super) fn stem(name: &str) -> String {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    letters.trim_end_matches(|c: char| !c.is_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;
    use xpu_wire::frame::Body;

    use super::*;
    use crate::app::job_view::tests::row;

    /// Eight ranks on two hosts, in pairs and in groups of four across the hosts, named by the program.
    fn job(names: [&str; 2]) -> Jobs {
        let mut jobs = Jobs::default();
        for mut frame in Simulation::new(1, 2, 4).snapshots(9) {
            let Body::Snapshot(snapshot) = &mut frame.body else { unreachable!() };
            for rank in &mut snapshot.jobs[0].ranks {
                let number = rank.digest.rank.0;
                let whole = rank.digest.communicators[0].clone();
                let pair = CommunicatorState {
                    id: CommunicatorId(100 + u64::from(number / 2)),
                    name: names[0].replace('#', &(number / 2).to_string()),
                    size: 2,
                    ..whole.clone()
                };
                let four = CommunicatorState {
                    id: CommunicatorId(200 + u64::from(number % 2)),
                    name: names[1].replace('#', &(number % 2).to_string()),
                    size: 4,
                    ..whole
                };
                rank.digest.communicators.extend([pair, four]);
            }
            jobs.fold(&frame);
        }
        jobs
    }

    fn rows() -> Vec<Row> {
        (0..8).map(|rank| row(rank, if rank < 4 { "a" } else { "b" })).collect()
    }

    fn folded(fold: &Fold, jobs: &Jobs, groups: Option<&Groups>) -> Vec<(String, Vec<usize>)> {
        let bundles = fold.bundles(jobs.foremost().unwrap(), &rows(), groups);
        bundles.into_iter().map(|bundle| (bundle.name, bundle.rows)).collect()
    }

    #[test]
    fn a_key_goes_from_hosts_to_each_kind_of_groups_and_back_to_ranks() {
        let jobs = job(["tp#", "dp#"]);
        let kinds = kinds(jobs.foremost().unwrap(), &rows(), None);
        assert_eq!(kinds, ["dp", "tp"]);
        let hosts = Fold::Nothing.next(&kinds);
        assert_eq!(hosts, Fold::Hosts);
        assert_eq!(
            folded(&hosts, &jobs, None),
            [("a".into(), vec![0, 1, 2, 3]), ("b".into(), vec![4, 5, 6, 7])]
        );
        let dp = hosts.next(&kinds);
        assert_eq!(
            folded(&dp, &jobs, None),
            [("dp0".into(), vec![0, 2, 4, 6]), ("dp1".into(), vec![1, 3, 5, 7])]
        );
        let tp = dp.next(&kinds);
        assert_eq!(folded(&tp, &jobs, None)[3], ("tp3".into(), vec![6, 7]));
        assert_eq!(tp.next(&kinds), Fold::Nothing);
        assert_eq!(hosts.next(&[]), Fold::Nothing);
    }

    #[test]
    fn groups_without_names_are_distinguished_by_size_and_by_how_far_apart_their_ranks_are() {
        let jobs = job(["", ""]);
        assert_eq!(kinds(jobs.foremost().unwrap(), &rows(), None), ["groups of 2", "groups of 4, 2 apart"]);
        let pairs = folded(&Fold::Kind("groups of 2".to_owned()), &jobs, None);
        assert_eq!(pairs[1], ("ranks 2-3".into(), vec![2, 3]));
    }

    /// Two groups of three in eight ranks would leave two ranks over.
    #[test]
    fn groups_that_do_not_divide_the_job_are_not_offered() {
        let mut jobs = Jobs::default();
        for mut frame in Simulation::new(1, 2, 4).snapshots(9) {
            let Body::Snapshot(snapshot) = &mut frame.body else { unreachable!() };
            for rank in snapshot.jobs[0].ranks.iter_mut().filter(|rank| rank.digest.rank.0 < 6) {
                let of = CommunicatorId(100 + u64::from(rank.digest.rank.0 / 3));
                let three = CommunicatorState { id: of, size: 3, ..rank.digest.communicators[0].clone() };
                rank.digest.communicators.push(three);
            }
            jobs.fold(&frame);
        }
        assert_eq!(kinds(jobs.foremost().unwrap(), &rows(), None), [""; 0]);
    }

    #[test]
    fn a_given_layout_of_ranks_is_used() {
        let jobs = job(["", ""]);
        let groups: Groups = "tp2-dp2-pp2".parse().unwrap();
        assert_eq!(kinds(jobs.foremost().unwrap(), &rows(), Some(&groups)), ["tp", "dp", "pp"]);
        let along_dp = folded(&Fold::Kind("dp".to_owned()), &jobs, Some(&groups));
        assert_eq!(along_dp[1], ("tp1 pp0".into(), vec![1, 3]));
    }
}
