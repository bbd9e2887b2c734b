//! What a job requests for a hang, or for a rank's end: a command, from `XPU_TOP_ON_HANG` in the job's
//! environment or from `--on-hang` of the collector; the hosts to ask; and whether the kernels on its GPUs are
//! read.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use xpu_model::hosts::Hosts;
use xpu_wire::{
    endpoint::{BasePort, Endpoint, variable},
    frame::RankInfo,
    id::{JobName, Pid, Rank},
};

use crate::environment::Environment;

/// Number of jobs whose actions are kept.
const JOBS: usize = 256;

/// The command to run, and the folder in which it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HangAction {
    pub line: String,
    pub folder: PathBuf,
}

impl HangAction {
    /// The command for jobs that set none.
    pub(crate) fn usual(line: &str) -> Self {
        Self { line: line.to_owned(), folder: PathBuf::from("/") }
    }

    /// The action of a job, from the environment of one of its processes.
    fn of(pid: Pid, environment: &Environment) -> Option<Self> {
        let line = environment.value(variable::ON_HANG)?;
        Some(Self { line, folder: working_folder(pid) })
    }
}

fn working_folder(pid: Pid) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| PathBuf::from("/"))
}

/// The hosts of a job, as its environment gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum JobHosts {
    File(PathBuf),
    List(String),
}

impl JobHosts {
    fn of(pid: Pid, environment: &Environment) -> Option<Self> {
        let set = |name| environment.value(name).filter(|value| !value.is_empty());
        let Some(given) = set(variable::JOB_HOSTS) else {
            return set(variable::HOSTS_OF_SLURM).map(Self::List);
        };
        let file = working_folder(pid).join(&given);
        Some(if file.is_file() { Self::File(file) } else { Self::List(given) })
    }

    /// Reads them; `base` is for hosts without a port.
    fn read(&self, base: BasePort) -> Hosts {
        match self {
            Self::List(list) => Hosts::from_list(list, base),
            Self::File(path) => Hosts::from_file(path, base).unwrap_or_else(|error| {
                tracing::warn!("{}: {}: {error}", variable::JOB_HOSTS, path.display());
                Hosts::default()
            }),
        }
    }
}

/// The action of each job. It is read as its ranks join, because a rank may be gone a moment later.
#[derive(Clone, Debug, Default)]
pub(crate) struct HangActions(Arc<Mutex<BTreeMap<JobName, JobAction>>>);

/// The action of one job, from its lowest rank on this host.
#[derive(Clone, Debug)]
struct JobAction {
    by: Rank,
    action: Option<HangAction>,
    hosts: Option<JobHosts>,
    /// Whether the kernels on the job's GPUs are read in a hang, which ends the job.
    names_kernels: bool,
}

impl HangActions {
    /// Takes the action of a rank that has joined. The lowest of a job's ranks here determines the job's
    /// action.
    pub(crate) fn note(&self, info: &RankInfo) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.get(&info.job).is_some_and(|asked| asked.by < info.rank) {
            return;
        }
        if jobs.len() >= JOBS && !jobs.contains_key(&info.job) {
            jobs.pop_first();
        }
        let environment = Environment::of(info.pid, &info.job);
        let environment = environment.as_ref();
        let set = environment.and_then(|environment| environment.value(variable::GPU_CORE));
        let asked = JobAction {
            by: info.rank,
            action: environment.and_then(|environment| HangAction::of(info.pid, environment)),
            hosts: environment.and_then(|environment| JobHosts::of(info.pid, environment)),
            names_kernels: set.is_some_and(|set| set == variable::GPU_CORE_ON_HANG),
        };
        jobs.insert(info.job.clone(), asked);
    }

    pub(crate) fn of(&self, job: &JobName) -> Option<HangAction> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(job)?.action.clone()
    }

    /// The collectors of the job's hosts, as far as its environment names them.
    pub(crate) fn endpoints(&self, job: &JobName, base: BasePort) -> Vec<Endpoint> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = jobs.get(job).and_then(|asked| asked.hosts.clone());
        drop(jobs);
        let Some(hosts) = hosts.map(|hosts| hosts.read(base)) else { return Vec::new() };
        hosts.warnings.iter().for_each(|warning| tracing::warn!("hosts of {job}: {warning}"));
        hosts.endpoints
    }

    /// Whether the kernels on the job's GPUs are to be read in a hang, which ends its ranks.
    pub(crate) fn names_kernels(&self, job: &JobName) -> bool {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(job).is_some_and(|asked| asked.names_kernels)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn a_job_sets_its_action_on_a_hang() {
        let mut sleeper = Command::new("sleep");
        sleeper.arg("600").current_dir("/tmp").env(variable::JOB, "train").env(variable::ON_HANG, "mail x");
        let mut sleeper = sleeper.spawn().unwrap();
        let of = |job: &str, pid: u32| {
            let action = HangAction::of(Pid(pid), &Environment::of(Pid(pid), &job.into())?)?;
            Some((action.line, action.folder))
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        let its_own = Some(("mail x".to_owned(), PathBuf::from("/tmp")));
        // Waits until the process has executed its program.
        while of("train", sleeper.id()) != its_own {
            assert!(Instant::now() < deadline, "{:?}", of("train", sleeper.id()));
            std::thread::yield_now();
        }
        assert_eq!(of("other", sleeper.id()), None, "it is none of that job");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(of("train", sleeper.id()), None);
    }
}
