//! Finds the job of a command, which must be alive and is never guessed, and reports hosts that do not
//! answer.

use std::time::Duration;

pub(super) use xpu_client::request::{take_records, take_stacks, take_until};
use xpu_client::{
    arrival::Arrivals,
    filter::Filter,
    follow::Following,
    kept,
    live::{self, Live},
};
use xpu_model::{job::Job, status::Status};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use crate::args::{JobArgs, UsageError, quoted};

/// Time limit for hosts to report their jobs.
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// Hosts named one by one.
const NAMED: usize = 10;

/// The known jobs of some hosts' collectors, the connection for requests, and the arriving frames.
pub(super) struct Connection {
    pub(super) following: Following,
    pub(super) live: Live,
    pub(super) arrivals: Arrivals,
}

/// Connects to the hosts' collectors.
pub(super) fn connect(of: &JobArgs) -> anyhow::Result<Connection> {
    let hosts = of.hosts()?;
    let key = of.connection.key()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let following = Following::new(hosts.endpoints.iter().cloned(), of.job.clone());
    let (live, arrivals) = live::connect(hosts.endpoints, key, of.job.clone());
    Ok(Connection { following, live, arrivals })
}

/// Reports the hosts that did not answer, and the consequence for the command.
pub(super) fn report_unreachable(following: &Following, so: &str) {
    for host in following.unreachable().take(NAMED) {
        eprintln!("xpu-top: {}{so}", host.why);
    }
    let more = following.unreachable().count().saturating_sub(NAMED);
    if more > 0 {
        eprintln!("xpu-top: and {more} more hosts cannot be reached");
    }
}

/// The named job if it is alive, or the only living one; it is not guessed.
pub(super) fn the_job(following: &Following, named: Option<&JobName>) -> Result<Option<JobName>, UsageError> {
    let lives = |job: &&Job| job.living() > 0;
    let living: Vec<_> = following.jobs().iter().filter(lives).map(Job::name).collect();
    match named {
        Some(named) => Ok(living.contains(&named).then(|| named.clone())),
        None => unambiguous(&living),
    }
}

/// The named job if it has ended and its collectors still know it, or the only such job.
pub(super) fn ended_job(following: &Following, named: Option<&JobName>) -> Option<JobName> {
    let known: Vec<_> = following.jobs().iter().map(Job::name).collect();
    match named {
        Some(named) => known.contains(&named).then(|| named.clone()),
        None => unambiguous(&known).ok().flatten(),
    }
}

/// The only one of these jobs; a choice between several is the user's.
pub(super) fn unambiguous(jobs: &[&JobName]) -> Result<Option<JobName>, UsageError> {
    match jobs {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => {
            let names: Vec<_> = several.iter().map(|name| name.as_str()).collect();
            Err(UsageError::Value(format!(
                "there are {} jobs: choose one with --job: {}",
                names.len(),
                names.join(", ")
            )))
        }
    }
}

/// Reports that there is no such job.
pub(super) fn report_no_job(named: Option<&JobName>) {
    let why = match named {
        Some(job) => format!("job {job} has no rank on these hosts; `xpu-top status` lists the jobs there"),
        None => {
            "no job runs on these hosts: name them with --job-hosts or --hosts, or start one under `xpu-top run`; `xpu-top doctor` on a host says why a started program has no rank"
                .to_owned()
        }
    };
    eprintln!("xpu-top: {why}");
}

/// Reports the newest incident folder of this machine's collectors, for a job without ranks to ask.
pub(super) fn report_kept(command: &str, named: Option<&JobName>) {
    if let Some(folder) = kept::newest(named) {
        let folder = quoted(&folder.to_string_lossy());
        eprintln!("xpu-top: newest incident folder: xpu-top {command} --replay {folder}");
    }
}

/// The matching ranks among `may`. Reports the number of undecidable ones.
pub(super) fn selected(
    filter: &Filter,
    following: &Following,
    now: Moment,
    job: &JobName,
    may: impl Fn(Rank) -> bool,
) -> Result<Vec<Rank>, UsageError> {
    let known = following.jobs().get(job);
    let status = known.map(|job| Status::of(following.jobs(), job, now));
    let ranks = status.map(|status| status.ranks).unwrap_or_default();
    let (selected, unknown) = filter.among(&ranks, job);
    if unknown > 0 {
        eprintln!("xpu-top: {}", filter.unsure(unknown));
    }
    let selected: Vec<_> = selected.into_iter().map(|rank| rank.rank).filter(|&rank| may(rank)).collect();
    if selected.is_empty() {
        return Err(UsageError::Value(format!(
            "--filter {filter}: no rank of job {job} matches; `xpu-top status` lists their figures"
        )));
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;

    use super::*;

    #[test]
    fn with_several_jobs_one_must_be_named() {
        let mut following = Following::new([], None);
        let second = Simulation { job: "eval".into(), ..Simulation::new(2, 1, 1) };
        for frame in Simulation::new(1, 1, 2).snapshots(1).into_iter().chain(second.snapshots(1)) {
            following.take(xpu_client::arrival::Arrival::Frame(Box::new(frame)));
        }
        let error = the_job(&following, None).unwrap_err().to_string();
        assert!(error.contains("--job: eval, llama-70b"), "{error}");
        assert_eq!(the_job(&following, Some(&"eval".into())).unwrap(), Some("eval".into()));
        assert_eq!(the_job(&following, Some(&"gone".into())).unwrap(), None);
    }
}
