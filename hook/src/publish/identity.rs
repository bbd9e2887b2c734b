//! This process's place in its job, and the address of its collector, from the launcher's environment.
//!
//! The thread of the first intercepted call reads the whole environment at once. The program may change its
//! environment at any time, so reads from other threads would be unsafe.

use std::{env, path::PathBuf};

use xpu_wire::{
    endpoint::{
        self, BasePort, RuntimeDir,
        variable::{self, Launcher},
    },
    frame::RankInfo,
    id::{CommunicatorId, DeviceIndex, HostName, JobName, Pid, Rank},
    unit::Moment,
};

/// Longest command line that is sent, in bytes.
const LONGEST_PROGRAM: usize = 200;

/// The process's identity.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) info: RankInfo,
    pub(crate) host: HostName,
    /// The path of the collector's socket, which may not exist yet.
    pub(crate) socket: Option<PathBuf>,
    /// The place by the communicators at the last check, if no launcher set the place.
    by_communicators: Option<Place>,
    is_launched: bool,
}

/// The place of a process in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) rank: Rank,
    pub(crate) world_size: u32,
}

/// A communicator of this process: its size and this process's rank.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Membership {
    pub(crate) communicator: CommunicatorId,
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

impl Identity {
    pub(crate) fn read(ledger: Option<u32>) -> Self {
        let info = of_this_process(ledger, |name| env::var(name).ok()?.trim().parse().ok());
        Self {
            is_launched: info.world_size > 1,
            info,
            host: endpoint::host_name(),
            socket: socket(),
            by_communicators: None,
        }
    }

    /// Sets the rank if no launcher sets it, or if the launcher started this process alone: then the program
    /// starts other processes itself, or the launcher started a shell. The rank comes from torch.distributed,
    /// else from the widest communicator, as under JAX. Returns whether the rank has changed. A rank from
    /// communicators counts only when it was found twice in succession, because a process with several GPUs
    /// creates its communicators one after another.
    pub(crate) fn learn(
        &mut self,
        by_torch: Option<Place>,
        memberships: impl Iterator<Item = Membership> + Clone,
    ) -> bool {
        if self.is_launched {
            return false;
        }
        if let Some(place) = by_torch.filter(|place| place.world_size > self.info.world_size) {
            self.is(place);
            return true;
        }
        let found = widest(memberships);
        let is_new = found.is_some_and(|place| place.world_size > self.info.world_size);
        let is_confirmed = std::mem::replace(&mut self.by_communicators, found) == found;
        if let Some(place) = found.filter(|_| is_new && is_confirmed) {
            self.is(place);
            return true;
        }
        false
    }

    fn is(&mut self, Place { rank: process, world_size }: Place) {
        self.info.rank = self.info.rank.gpu().map_or(process, |gpu| process.of_gpu(gpu));
        self.info.world_size = world_size;
    }

    /// Makes the process's rank stand for its first GPU, because the process uses several. `true` if this is
    /// new.
    pub(crate) fn has_several(&mut self, first: DeviceIndex) -> bool {
        let rank = self.info.rank.of_gpu(first);
        std::mem::replace(&mut self.info.rank, rank) != rank
    }

    /// Whether the communicators show another place that is not confirmed yet.
    pub(crate) fn is_unsure(&self) -> bool {
        !self.is_launched
            && self.by_communicators.is_some_and(|place| place.world_size > self.info.world_size)
    }
}

/// This process's place by its widest communicator, and the number of processes. If the process has several
/// ranks of the communicator, every process is assumed to have the same number; if that is impossible, the
/// place is the lowest rank. `None` if the process has all ranks, because then it is alone.
fn widest(memberships: impl Iterator<Item = Membership> + Clone) -> Option<Place> {
    let widest = memberships.clone().max_by_key(|one| (one.size, one.communicator))?;
    let here = memberships.filter(|one| one.communicator == widest.communicator);
    let (count, lowest) = here.fold((0, u32::MAX), |(count, lowest), one| (count + 1, lowest.min(one.rank)));
    if count >= widest.size || lowest >= widest.size {
        return None;
    }
    let alike = if lowest % count == 0 && widest.size % count == 0 { count } else { 1 };
    Some(Place { rank: Rank(lowest / alike), world_size: widest.size / alike })
}

fn socket() -> Option<PathBuf> {
    env::var_os(variable::SOCKET).map(PathBuf::from).or_else(|| {
        let base = env::var(BasePort::VARIABLE).ok().and_then(|text| BasePort::new(text.parse().ok()?));
        RuntimeDir::locate().socket(base.unwrap_or_default()).ok()
    })
}

/// The rank by the launcher's variables. A process without a launcher is rank 0 of 1. `number` reads a
/// variable.
fn of_this_process(ledger: Option<u32>, number: impl Fn(&str) -> Option<u32>) -> RankInfo {
    let launcher = variable::LAUNCHERS.iter().position(|launcher| number(launcher.rank).is_some());
    // A user's script may set `RANK`, while the launcher of the script sets the other variables.
    let others =
        &variable::LAUNCHERS[launcher.filter(|&place| place > 0).map_or(0, |_| variable::LAUNCHERS.len())..];
    let launcher = launcher.map(|place| &variable::LAUNCHERS[place]);
    let first = |name: fn(&Launcher) -> &'static str| {
        launcher.into_iter().chain(others).find_map(|launcher| number(name(launcher)))
    };
    let rank = launcher.and_then(|launcher| number(launcher.rank)).unwrap_or(0);
    let world_size = first(|launcher| launcher.world_size).unwrap_or(1);
    RankInfo {
        job: job(),
        rank: Rank(rank),
        world_size: world_size.max(rank.saturating_add(1)),
        local_rank: first(|launcher| launcher.local_rank).map(DeviceIndex),
        pid: Pid(std::process::id()),
        started: started(),
        program: program(),
        version: xpu_wire::VERSION.to_owned(),
        ledger,
    }
}

fn job() -> JobName {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let name = set(variable::JOB).or_else(|| set("SLURM_JOB_ID").map(|id| format!("slurm-{id}")));
    JobName::cleaned(&name.unwrap_or_else(|| "job".to_owned()))
}

fn program() -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = String::from_utf8_lossy(&line).replace('\0', " ");
    text.trim_end().chars().filter(|c| !c.is_control()).take(LONGEST_PROGRAM).collect()
}

/// When this process started, by the kernel, in whole seconds.
fn started() -> Moment {
    let made = std::fs::metadata("/proc/self").and_then(|found| found.modified());
    let since = made.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or_else(Moment::now, |since| Moment(u64::try_from(since.as_nanos()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(is_launched: bool) -> Identity {
        let mut identity = Identity::read(None);
        (identity.info.rank, identity.info.world_size) = (Rank(0), 1);
        Identity { is_launched, ..identity }
    }

    fn learns(identity: &mut Identity, all: &[(u64, u32, u32)]) -> bool {
        let each =
            |&(id, rank, size): &(u64, u32, u32)| Membership { communicator: CommunicatorId(id), rank, size };
        identity.learn(None, all.iter().map(each))
    }

    /// Rank, world size and local rank by these variables.
    fn place(set: &[(&str, u32)]) -> (u32, u32, Option<u32>) {
        let info = of_this_process(None, |name| {
            set.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
        });
        (info.rank.0, info.world_size, info.local_rank.map(|local| local.0))
    }

    #[test]
    fn all_variables_are_taken_from_the_innermost_launcher() {
        let shell = [("SLURM_PROCID", 0), ("SLURM_NTASKS", 1), ("SLURM_LOCALID", 0)];
        let mpirun =
            [("OMPI_COMM_WORLD_RANK", 3), ("OMPI_COMM_WORLD_SIZE", 4), ("OMPI_COMM_WORLD_LOCAL_RANK", 1)];
        assert_eq!(place(&[&shell[..], &mpirun, &[("PMIX_RANK", 3)]].concat()), (3, 4, Some(1)));
        assert_eq!(place(&[&shell[..], &[("PMI_RANK", 2), ("PMI_SIZE", 3)]].concat()), (2, 3, None));
        let batch = [("SLURM_PROCID", 0), ("SLURM_NTASKS", 16)];
        assert_eq!(place(&[&batch[..], &[("RANK", 1), ("WORLD_SIZE", 2)]].concat()), (1, 2, None));
        assert_eq!(place(&[&batch[..], &[("RANK", 1)]].concat()), (1, 16, None));
        assert_eq!(place(&[("PMIX_RANK", 5)]), (5, 6, None));
        assert_eq!(place(&[]), (0, 1, None));
    }

    #[test]
    fn the_widest_communicator_gives_the_rank_once_seen_twice() {
        let mut identity = identity(false);
        assert!(!learns(&mut identity, &[]) && !identity.is_unsure());
        assert!(!learns(&mut identity, &[(7, 1, 2)]) && identity.is_unsure());
        assert!(learns(&mut identity, &[(7, 1, 2)]) && !identity.is_unsure());
        assert_eq!((identity.info.rank, identity.info.world_size), (Rank(1), 2));
        let wider = [(7, 1, 2), (8, 5, 8)];
        assert!(!learns(&mut identity, &wider) && learns(&mut identity, &wider));
        assert_eq!((identity.info.rank, identity.info.world_size), (Rank(5), 8));
        assert!(!learns(&mut identity, &[(7, 1, 2)]) && !learns(&mut identity, &[(7, 1, 2)]), "not narrower");
    }

    #[test]
    fn a_process_of_several_gpus_is_numbered_by_the_ranks_it_shares() {
        let mut apart = identity(false);
        let half = [(7, 3, 4), (7, 2, 4)];
        assert!(apart.has_several(DeviceIndex(1)) && !apart.has_several(DeviceIndex(1)));
        assert!(!learns(&mut apart, &half) && learns(&mut apart, &half));
        assert_eq!((apart.info.rank, apart.info.world_size), (Rank(1).of_gpu(DeviceIndex(1)), 2));
        let (mut uneven, two) = (identity(false), [(7, 1, 5), (7, 2, 5)]);
        assert!(!learns(&mut uneven, &two) && learns(&mut uneven, &two));
        assert_eq!((uneven.info.rank, uneven.info.world_size), (Rank(1), 5));
        let (mut whole, all) = (identity(false), [(7, 0, 2), (7, 1, 2)]);
        assert!(!learns(&mut whole, &all) && !learns(&mut whole, &all));
        assert_eq!(whole.info.world_size, 1);
    }

    #[test]
    fn torch_distributed_gives_the_rank_at_once() {
        let mut identity = identity(false);
        // The first communicator has only a part of the job's ranks.
        assert!(!learns(&mut identity, &[(7, 0, 2)]) && learns(&mut identity, &[(7, 0, 2)]));
        assert!(identity.learn(Some(Place { rank: Rank(2), world_size: 4 }), std::iter::empty()));
        assert_eq!((identity.info.rank, identity.info.world_size), (Rank(2), 4));
        assert!(
            !identity.learn(Some(Place { rank: Rank(2), world_size: 4 }), std::iter::empty()),
            "it is known"
        );
        assert!(!learns(&mut identity, &[(7, 0, 2)]) && !learns(&mut identity, &[(7, 0, 2)]));
    }

    #[test]
    fn a_launchers_rank_takes_precedence() {
        let (mut identity, all) = (identity(true), [(7, 1, 2)]);
        assert!(!learns(&mut identity, &all) && !learns(&mut identity, &all) && !identity.is_unsure());
        assert!(!identity.learn(Some(Place { rank: Rank(1), world_size: 2 }), std::iter::empty()));
        assert_eq!(identity.info.world_size, 1);
    }
}
