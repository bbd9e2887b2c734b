//! Asks the collectors of all hosts of a job that hangs. One collector knows only the ranks of its host, and the
//! rank for which the others wait may be on another one.

use std::{
    collections::BTreeSet,
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
};

use serde_json::{Value, json};
use xpu_client::request;
use xpu_model::{figure::counted, finding::Kind, status::Status};
use xpu_net::key::Key;
use xpu_wire::{
    endpoint::Endpoint,
    id::{HostName, JobName, Rank},
};

use super::action::Action;

/// From this many hosts on, only their number is given.
const NAMED: usize = 4;

/// The user's program, which waits for the answers of the job's hosts.
#[derive(Debug)]
pub(super) struct WholeJob {
    action: Option<Action>,
    status: Receiver<Status>,
}

impl WholeJob {
    /// Asks on a separate thread. Without answers, the document of `action` stays as it is.
    pub(super) fn ask(job: &JobName, hosts: Vec<Endpoint>, key: Option<Key>, action: Action) -> Self {
        let (answer, status) = mpsc::channel();
        let job = job.clone();
        let asked = thread::Builder::new().name("whole job".to_owned()).spawn(move || {
            match request::status_of_hung_job(hosts, key, job) {
                Ok(status) => drop(answer.send(status)),
                Err(error) => tracing::warn!("on-hang: the job's other hosts are not asked: {error}"),
            }
        });
        if let Err(error) = asked {
            tracing::warn!("on-hang: the job's other hosts are not asked: {error}");
        }
        Self { action: Some(action), status }
    }

    /// The program with its input, once the hosts have answered. `None` until then.
    pub(super) fn action(&mut self) -> Option<Action> {
        let status = match self.status.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => None,
            Ok(status) => Some(status),
        };
        let mut action = self.action.take()?;
        if let Some(status) = status.filter(|status| !status.ranks.is_empty()) {
            action.replace_document(together(status));
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
    let silent = status.coverage.hosts_unreachable.len();
    let mut unknown =
        format!("{}: no progress; cause not found", counted(status.ranks.len(), "rank", "ranks"));
    if silent > 0 {
        unknown += &format!("; {} did not answer", counted(silent, "host", "hosts"));
    }
    document(status, &unknown)
}

/// The status, with a sentence about the hang; this one if there is no finding about it.
fn document(status: Status, unknown: &str) -> Value {
    let found = status.findings.iter().find(|finding| finding.kind == Kind::Hang);
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
    match hosts.len() {
        0 => String::new(),
        1 => format!("; host {}", hosts.into_iter().collect::<String>()),
        NAMED.. => format!("; on {} hosts", hosts.len()),
        _ => format!("; hosts {}", hosts.into_iter().collect::<Vec<_>>().join(", ")),
    }
}
