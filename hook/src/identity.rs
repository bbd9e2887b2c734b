//! Who this process is in its job, and where it finds its collector: what its launcher put into the environment.
//!
//! All of it is read at once, by the thread of the first call. The program may change its environment at any time, and in C
//! nobody can read it then: not from another thread.

use std::{env, path::PathBuf};

use xpu_shared::{
    endpoint::{self, BasePort, RuntimeDir, variable},
    frame::RankInfo,
    id::{DeviceIndex, HostName, JobName, Pid, Rank},
    unit::Moment,
};

/// Longest command line that is carried.
const LONGEST_PROGRAM: usize = 200;

/// torchrun, Slurm, Open MPI, MVAPICH, MPICH and PMI, in this order: under srun and torchrun together, torchrun's are right.
const RANK: &[&str] =
    &["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
const WORLD_SIZE: &[&str] =
    &["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"];
const LOCAL_RANK: &[&str] = &[
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
];

/// What is known of this process for as long as it lives.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) info: RankInfo,
    pub(crate) host: HostName,
    /// Where the collector's socket is, or will be.
    pub(crate) socket: Option<PathBuf>,
}

impl Identity {
    pub(crate) fn read(ledger: Option<u32>) -> Self {
        Self { info: of_this_process(ledger), host: endpoint::host_name(), socket: socket() }
    }
}

fn socket() -> Option<PathBuf> {
    env::var_os(variable::SOCKET).map(PathBuf::from).or_else(|| {
        let base = env::var(BasePort::VARIABLE).ok().and_then(|text| BasePort::new(text.parse().ok()?));
        RuntimeDir::locate().socket(base.unwrap_or_default()).ok()
    })
}

/// A process outside of any launcher is rank 0 of 1.
fn of_this_process(ledger: Option<u32>) -> RankInfo {
    let rank = number(RANK).unwrap_or(0);
    RankInfo {
        job: job(),
        rank: Rank(rank),
        world_size: number(WORLD_SIZE).unwrap_or(1).max(rank.saturating_add(1)),
        local_rank: number(LOCAL_RANK).map(DeviceIndex),
        pid: Pid(std::process::id()),
        started: started(),
        program: program(),
        version: xpu_shared::VERSION.to_owned(),
        ledger,
    }
}

fn number(names: &[&str]) -> Option<u32> {
    names.iter().find_map(|name| env::var(name).ok()?.trim().parse().ok())
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

/// When the kernel says this process began, to the second.
fn started() -> Moment {
    let made = std::fs::metadata("/proc/self").and_then(|found| found.modified());
    let since = made.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or_else(Moment::now, |since| Moment(u64::try_from(since.as_nanos()).unwrap_or(0)))
}
