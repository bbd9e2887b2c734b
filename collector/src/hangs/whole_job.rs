//! Asks the collectors of all hosts of a job that hangs. One collector knows only the ranks of its host, and the
//! rank for which the others wait may be on another one.

use std::{
    collections::BTreeSet,
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use xpu_client::request;
use xpu_model::{figure::counted, status::Status};
use xpu_net::key::Key;
use xpu_wire::{
    endpoint::BasePort,
    id::{HostName, JobName, Rank},
};

use super::action::Action;
use crate::on_hang::JobHosts;

/// From this many hosts on, only their number is given.
const NAMED: usize = 4;

/// Longest wait for the answers, including that for the file with the hosts.
const PATIENCE: Duration = Duration::from_secs(25);

/// The collectors of a job.
pub(super) struct Collectors {
    pub(super) hosts: JobHosts,
    /// The first port of hosts without one.
    pub(super) base: BasePort,
    pub(super) key: Option<Key>,
}

/// The user's program, which waits for the answers of the job's hosts.
#[derive(Debug)]
pub(super) struct WholeJob {
    pub(super) job: JobName,
    /// The ranks of this host.
    ranks: Vec<Rank>,
    action: Option<Action>,
    status: Receiver<Status>,
    began: Instant,
}

impl WholeJob {
    /// Asks on a separate thread. Without answers, the document of `action` stays as it is.
    pub(super) fn ask(job: &JobName, ranks: Vec<Rank>, collectors: Collectors, action: Action) -> Self {
        let (answer, status) = mpsc::channel();
        let name = job.clone();
        let asked = thread::Builder::new().name("whole job".to_owned()).spawn(move || {
            let endpoints = collectors.hosts.endpoints(collectors.base);
            if endpoints.is_empty() {
                return;
            }
            match request::status_of_hung_job(endpoints, collectors.key, name) {
                Ok(status) => drop(answer.send(status)),
                Err(error) => tracing::warn!("on-hang: the job's other hosts are not asked: {error}"),
            }
        });
        if let Err(error) = asked {
            tracing::warn!("on-hang: the job's other hosts are not asked: {error}");
        }
        Self { job: job.clone(), ranks, action: Some(action), status, began: Instant::now() }
    }

    /// The program with its input, once the hosts have answered. `None` until then.
    pub(super) fn action(&mut self, now: Instant) -> Option<Action> {
        let status = match self.status.try_recv() {
            Err(TryRecvError::Empty) if now.duration_since(self.began) < PATIENCE => return None,
            Err(_) => None,
            Ok(status) => Some(status),
        };
        let mut action = self.action.take()?;
        if let Some(status) = status {
            let has = |rank: &Rank| status.ranks.iter().any(|one| one.rank == *rank);
            if self.ranks.iter().all(has) {
                *action.document() = together(status);
            } else {
                // This host is not among those that answered, so its own document has more.
                action.document()["coverage"]["hosts_unreachable"] = json!(status.coverage.hosts_unreachable);
            }
        }
        Some(action)
    }
}

/// The document of the ranks of this host.
pub(super) fn alone(status: Status, host: &HostName) -> Value {
    let ranks = counted(status.ranks.len(), "rank on", "ranks on");
    let unknown = format!(
        "{ranks} {host}: no progress; this host alone does not show the cause: ask all hosts (xpu-top status --job-hosts)"
    );
    document(status, &unknown)
}

/// The document of the ranks of all hosts that answered.
fn together(status: Status) -> Value {
    let ranks = counted(status.ranks.len(), "rank", "ranks");
    let without = match status.coverage.hosts_unreachable.len() {
        0 => String::new(),
        silent => format!("; {} did not answer", counted(silent, "host", "hosts")),
    };
    let unknown = format!("{ranks}: the cause was not found, or the job has gone on meanwhile{without}");
    document(status, &unknown)
}

/// The status, with a sentence about the hang; this one if there is no finding about it.
fn document(status: Status, unknown: &str) -> Value {
    let found = status.findings.iter().find(|finding| finding.stops_the_job());
    let sentence = found.map_or_else(
        || unknown.to_owned(),
        |finding| format!("{}{}", finding.evidence, on_hosts(&status, &finding.ranks)),
    );
    let mut document = json!(status);
    document["hang"] = sentence.into();
    document
}

/// The hosts of these ranks, if they are few.
fn on_hosts(status: &Status, ranks: &[Rank]) -> String {
    let named = status.ranks.iter().filter(|rank| ranks.contains(&rank.rank));
    let hosts: BTreeSet<&str> = named.map(|rank| rank.host.as_str()).collect();
    let hosts: Vec<_> = hosts.into_iter().collect();
    match &hosts[..] {
        [] => String::new(),
        [one] => format!("; host {one}"),
        few if few.len() < NAMED => format!("; hosts {}", few.join(", ")),
        many => format!("; on {} hosts", many.len()),
    }
}
