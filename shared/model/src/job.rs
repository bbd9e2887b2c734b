//! The present state of a job: frames are folded into one state, from any host and in any order.
//!
//! Pure: no clock, no network. The collector folds its own host's frames, the viewer those of all hosts, a
//! replay those of a file, and all come to the same state.

mod arrival_skew;
mod bound;
mod breakdown;
mod clock;
mod hang_before_end;
mod jobs;
mod join;
mod matched;
mod pace_history;
mod rank;
mod ras;
mod records;
mod stacks;
mod straggler_delay;
mod transfers;
mod what_if;

use std::{collections::BTreeMap, time::Duration};

use arrival_skew::ArrivalSkew;
pub use arrival_skew::Arrivals;
pub use bound::{Bound, BoundBy, GemmTime, GilHolder, MainThreadSeen, OtherTime};
pub use breakdown::{Breakdown, HostShares};
pub use clock::Clock;
use hang_before_end::HangBeforeEnd;
pub use jobs::{Collector, Jobs, Stream};
pub use join::{Join, Joins, Place};
pub use matched::PartlySeen;
use pace_history::PaceHistory;
pub use pace_history::PaceSample;
pub use rank::{Ahead, CpuWait, Load, RankView, Sample};
use records::Records;
use stacks::Stacks;
pub use straggler_delay::{Onset, Recent, StragglerDelay};
pub use transfers::{Route, Track, Traffic, Transfers, Window};

use xpu_wire::{
    frame::{Frame, JobWhatIf, RankDigest, RankExit, RankInfo, RasReport},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

/// If the job now has fewer ranks: time without a report, while others report, after which a rank belongs to
/// a former run.
const GONE: Duration = Duration::from_mins(1);

/// One job.
#[derive(Debug)]
pub struct Job {
    name: JobName,
    /// Boxed, because nodes of a tree that is filled in order are half empty.
    ranks: BTreeMap<Rank, Box<RankView>>,
    joins: Joins,
    transfers: Transfers,
    /// Number of processes, per host, by its collector's last report.
    turned_away: BTreeMap<HostName, u32>,
    stacks: Stacks,
    records: Records,
    ras: Option<Box<RasReport>>,
    what_if: Option<Box<JobWhatIf>>,
    /// Ends of failed ranks, which may arrive before the ranks are introduced.
    exits: BTreeMap<Rank, RankExit>,
    hang: Option<HangBeforeEnd>,
    /// Time by which each host's clock is behind the most advanced one, and that clock's value then.
    behind: BTreeMap<HostName, (Moment, Duration)>,
    /// Whether ranks may disagree on their number.
    mixed: bool,
    /// When the processes that others have replaced were last heard, by the most advanced host's clock.
    replaced: Option<Moment>,
    revision: u64,
}

impl Job {
    pub fn new(name: JobName) -> Self {
        Self {
            name,
            ranks: BTreeMap::new(),
            joins: Joins::default(),
            transfers: Transfers::default(),
            turned_away: BTreeMap::new(),
            stacks: Stacks::default(),
            records: Records::default(),
            ras: None,
            what_if: None,
            exits: BTreeMap::new(),
            hang: None,
            behind: BTreeMap::new(),
            mixed: false,
            replaced: None,
            revision: 0,
        }
    }

    fn introduce(&mut self, host: &HostName, info: &RankInfo) {
        self.revision += 1;
        self.forget_undivided(host, info);
        let differs = self.views().next().is_some_and(|other| other.world_size() != info.world_size);
        self.mixed |= differs;
        let former = self.ranks.get(&info.rank).filter(|view| (view.host(), view.pid()) != (host, info.pid));
        self.replaced = self.replaced.max(former.map(|view| self.common(view.host(), view.last_report())));
        let view =
            self.ranks.entry(info.rank).or_insert_with(|| Box::new(RankView::new(host.clone(), info.pid)));
        view.introduce(host, info, self.revision);
        view.take_exit(self.exits.get(&info.rank));
    }

    fn digest(&mut self, frame: &Frame, digest: &RankDigest) {
        self.revision += 1;
        let Frame { host, now, .. } = frame;
        let view = self
            .ranks
            .entry(digest.rank)
            .or_insert_with(|| Box::new(RankView::new(host.clone(), digest.pid)));
        view.digest(host, *now, digest, self.revision, &mut self.joins, &mut self.transfers);
        if view.is_alive() {
            // The report of its end was premature.
            self.exits.remove(&digest.rank);
        }
        view.take_exit(self.exits.get(&digest.rank));
    }

    /// Drops a process whose GPUs have become ranks of their own: it is no longer a rank itself.
    fn forget_undivided(&mut self, host: &HostName, info: &RankInfo) {
        let (process, pid) = (info.rank.process(), info.pid);
        let is_it = |view: &RankView| (view.host(), view.pid()) == (host, pid);
        if info.rank != process && self.ranks.get(&process).is_some_and(|view| is_it(view)) {
            self.ranks.remove(&process);
        }
    }

    /// Drops ranks of a former run.
    fn forget_former(&mut self) {
        if let Some(replaced) = self.replaced {
            self.forget_ended_before(replaced);
        }
        if self.mixed {
            self.forget_larger();
        }
    }

    /// Drops ranks of the run whose processes were `replaced`, if they ended before all living ones began. If
    /// such a rank does not start again, it is missing, but its former end is not the reason.
    fn forget_ended_before(&mut self, replaced: Moment) {
        let living = self.views().filter(|view| view.is_alive());
        let began = living.map(|view| Some(self.common(view.host(), view.info()?.started)));
        let Some(Some(began)) = began.min() else { return };
        let before = self.ranks.len();
        let former: Vec<_> = self
            .ranks()
            .filter(|(_, view)| {
                let at = |moment| self.common(view.host(), moment);
                let started = view.info().map(|info| at(info.started));
                let is_former = started.is_some_and(|started| started < replaced && started < began);
                !view.is_alive() && is_former && at(view.last_report()) < began
            })
            .map(|(rank, _)| rank)
            .collect();
        for rank in former {
            self.ranks.remove(&rank);
            self.exits.remove(&rank);
        }
        self.revision += u64::from(self.ranks.len() != before);
    }

    /// Drops ranks of a larger former run: those that ended, and those whose host no longer reports. The
    /// living ranks report the number of ranks.
    fn forget_larger(&mut self) {
        let heard = |view: &RankView| self.common(view.host(), view.last_report());
        let latest = self.views().map(heard).max().unwrap_or_default();
        let is_here = |view: &RankView| {
            let is_new = view.last_report() == Moment::default();
            view.is_alive() && (is_new || latest.since(heard(view)) < GONE)
        };
        let Some(world) = self.views().filter(|view| is_here(view)).map(RankView::world_size).max() else {
            return;
        };
        let before = self.ranks.len();
        let former: Vec<_> = self
            .ranks
            .iter()
            .filter(|(rank, view)| rank.process().0 >= world && !is_here(view))
            .map(|(&rank, _)| rank)
            .collect();
        for rank in former {
            self.ranks.remove(&rank);
        }
        self.exits.retain(|rank, _| self.ranks.contains_key(rank));
        let mixed = self.views().any(|view| view.world_size() != world);
        self.mixed = mixed;
        self.revision += u64::from(self.ranks.len() != before);
    }

    /// Notes the clock of a frame's host. A repeated frame gives no new information about it.
    fn update_clock(&mut self, frame: &Frame, behind: Duration) {
        match self.behind.get_mut(&frame.host) {
            Some((said, _)) if *said >= frame.now => {}
            Some(known) => *known = (frame.now, behind),
            None => drop(self.behind.insert(frame.host.clone(), (frame.now, behind))),
        }
    }

    /// A host's moment, by the most advanced host's clock: two hosts may differ by minutes.
    pub fn common(&self, host: &HostName, moment: Moment) -> Moment {
        moment.after(self.behind.get(host).map(|&(_, behind)| behind).unwrap_or_default())
    }

    fn take_exit(&mut self, exit: &RankExit) {
        self.exits.insert(exit.rank, exit.clone());
        self.with_rank(exit.rank, |view| {
            view.take_exit(Some(exit));
            true
        });
    }

    fn detail(&mut self, rank: Rank, detail: &xpu_wire::frame::RankDetail) {
        self.with_rank(rank, |view| {
            view.detail(&detail.summary);
            // No finding depends on it.
            false
        });
    }

    /// `change` returns whether it changed anything.
    fn with_rank(&mut self, rank: Rank, change: impl FnOnce(&mut RankView) -> bool) {
        self.revision += 1;
        if let Some(view) = self.ranks.get_mut(&rank)
            && change(view)
        {
            view.changed = self.revision;
        }
    }

    pub fn name(&self) -> &JobName {
        &self.name
    }

    /// Counts up with every change: results computed from a job are valid until then.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Ranks in order.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = (Rank, &RankView)> {
        self.ranks.iter().map(|(&rank, view)| (rank, &**view))
    }

    fn views(&self) -> impl Iterator<Item = &RankView> {
        self.ranks.values().map(Box::as_ref)
    }

    pub fn rank(&self, rank: Rank) -> Option<&RankView> {
        self.ranks.get(&rank).map(Box::as_ref)
    }

    /// The number of ranks that the ranks report, including ranks that were never seen.
    pub fn world_size(&self) -> u32 {
        self.views().map(RankView::world_size).max().unwrap_or(0)
    }

    /// Whether every process of the job was seen.
    pub fn is_whole(&self) -> bool {
        self.processes().count() >= self.world_size() as usize
    }

    /// Whether the job is one process with one GPU.
    pub fn is_alone(&self) -> bool {
        // Called for each rank, so the check that takes constant time comes first.
        self.ranks.len() <= 1 && self.world_size() == 1 && self.ranks.keys().all(|rank| rank.gpu().is_none())
    }

    /// Number of GPUs of the job, as far as they are known; a process that was not seen counts as one.
    pub fn gpus(&self) -> usize {
        self.ranks.len().max(self.world_size() as usize)
    }

    /// One rank of each process, which represents it: the rank of its first GPU.
    pub fn processes(&self) -> impl Iterator<Item = (Rank, &RankView)> {
        let mut last = None;
        self.ranks().filter(move |(rank, _)| last.replace(rank.process()) != Some(rank.process()))
    }

    /// The rank that represents this process: that of its first GPU.
    pub fn of_process(&self, process: Rank) -> Option<Rank> {
        self.ranks.keys().copied().find(|rank| rank.process() == process)
    }

    /// Hosts with at least one rank, in order.
    pub fn hosts(&self) -> Vec<&HostName> {
        let mut hosts: Vec<_> = self.views().map(RankView::host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    pub fn living(&self) -> usize {
        self.ranks.values().filter(|view| view.is_alive()).count()
    }

    /// The newest report of a rank, by the clock of its host.
    pub fn last_report(&self) -> Moment {
        self.views().map(RankView::last_report).max().unwrap_or_default()
    }

    /// The transfer rates of its communicators.
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Number of living processes that claim ranks of this job that other processes hold.
    pub fn turned_away(&self) -> u32 {
        self.turned_away.values().fold(0, |sum, more| sum.saturating_add(*more))
    }
}

/// The number of processes of ranks in order.
pub fn processes(ranks: impl Iterator<Item = Rank>) -> usize {
    let (mut count, mut last) = (0, None);
    for process in ranks.map(Rank::process) {
        count += usize::from(last.replace(process) != Some(process));
    }
    count
}

pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The median; for an even number of values, the mean of the two middle ones.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    median_of(&mut values)
}

/// Same as [`median`], but reorders the values.
fn median_of(values: &mut [f64]) -> Option<f64> {
    let (count, middle) = (values.len(), values.len() / 2);
    if count == 0 {
        return None;
    }
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if count % 2 == 1 {
        return Some(upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
#[path = "job/again_tests.rs"]
mod again_tests;
#[cfg(test)]
mod tests;
