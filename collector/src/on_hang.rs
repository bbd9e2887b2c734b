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

/// The hosts of a job, as the environment of one of its processes gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobHosts {
    variable: &'static str,
    /// The path of a file, or a list.
    given: String,
    folder: PathBuf,
}

impl JobHosts {
    fn of(pid: Pid, environment: &Environment) -> Option<Self> {
        let set = [variable::JOB_HOSTS, variable::HOSTS_OF_SLURM].into_iter();
        let mut set = set.filter_map(|variable| Some((variable, environment.value(variable)?)));
        let (variable, given) = set.find(|(_, value)| !value.is_empty())?;
        Some(Self { variable, given, folder: working_folder(pid) })
    }

    /// Their collectors; `base` is for hosts without a port. Reads a file, so a thread that serves others must not
    /// call it.
    pub(crate) fn endpoints(&self, base: BasePort) -> Vec<Endpoint> {
        let path = self.folder.join(&self.given);
        let hosts = if self.variable == variable::JOB_HOSTS && path.is_file() {
            Hosts::from_file(&path, base).unwrap_or_else(|error| {
                tracing::warn!("{}: {}: {error}", self.variable, path.display());
                Hosts::default()
            })
        } else {
            Hosts::from_list(&self.given, base)
        };
        hosts.warnings.iter().for_each(|warning| tracing::warn!("{}: {}", self.variable, warning.what));
        hosts.endpoints
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

    /// The job's hosts, if its environment names them.
    pub(crate) fn hosts(&self, job: &JobName) -> Option<JobHosts> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(job)?.hosts.clone()
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
    fn hosts_are_in_a_file_or_a_list() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("hosts.txt"), "a slots=8\nb:2000\n").unwrap();
        let of = |variable, given: &str| {
            let hosts = JobHosts { variable, given: given.to_owned(), folder: dir.path().to_owned() };
            let names = hosts.endpoints(BasePort::DEFAULT).into_iter();
            names.map(|one| format!("{}:{}", one.host, one.base.0)).collect::<Vec<_>>()
        };
        assert_eq!(of(variable::JOB_HOSTS, "hosts.txt"), ["a:18889", "b:2000"]);
        assert_eq!(of(variable::HOSTS_OF_SLURM, "gpu[1-2]"), ["gpu1:18889", "gpu2:18889"]);
        assert_eq!(of(variable::JOB_HOSTS, "a,b:2000"), ["a:18889", "b:2000"]);
    }

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
