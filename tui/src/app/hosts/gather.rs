//! The state of each host, from all sources: ranks, collectors, and the connections to them.

use std::collections::HashMap;

use xpu_client::arrival::Endpoint;
use xpu_model::{
    job::{Job, Jobs},
    status::STALE,
};
use xpu_wire::{id::HostName, unit::Moment};

use super::{super::Connections, Gpus, Host};

pub(super) fn hosts(
    jobs: &Jobs,
    shown: Option<&Job>,
    connections: &Connections,
    arrived: &HashMap<HostName, Moment>,
    now: Moment,
) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut places: HashMap<HostName, usize> = HashMap::new();
    let place = |hosts: &mut Vec<Host>, places: &mut HashMap<HostName, usize>, name: &HostName| -> usize {
        if let Some(&at) = places.get(name) {
            return at;
        }
        places.insert(name.clone(), hosts.len());
        hosts.push(Host { name: name.clone(), ..Host::default() });
        hosts.len() - 1
    };
    for job in jobs.iter() {
        let is_shown = shown.is_some_and(|shown| shown.name() == job.name());
        for (rank, view) in job.ranks() {
            let at = place(&mut hosts, &mut places, view.host());
            if is_shown {
                hosts[at].take(rank, view);
            } else {
                hosts[at].others += usize::from(view.is_alive());
            }
        }
    }
    for (name, collector) in jobs.collectors() {
        let at = place(&mut hosts, &mut places, name);
        hosts[at].collector = Some(collector.clone());
    }
    for (endpoint, link) in connections.iter() {
        let name = connections.name(endpoint).cloned().unwrap_or_else(|| named_alike(endpoint, &places));
        let at = place(&mut hosts, &mut places, &name);
        hosts[at].endpoint = Some(endpoint.clone());
        hosts[at].link = Some((link.clone(), now.since(connections.since(endpoint).unwrap_or(now))));
    }
    for host in &mut hosts {
        host.lost_frames = jobs.stream(&host.name).map_or(0, |stream| stream.lost);
        host.age = arrived.get(&host.name).map(|&came| now.since(came));
        if host.age.is_some_and(|age| age >= STALE) {
            (host.gpus, host.load) = (Gpus::default(), None);
        }
    }
    hosts
}

/// The likely host of an endpoint that has not reported its name: the host with the addressed name, with or
/// without its domain.
fn named_alike(endpoint: &Endpoint, known: &HashMap<HostName, usize>) -> HostName {
    let asked = endpoint.host.as_str();
    let short = asked.split('.').next().unwrap_or(asked);
    [asked, short]
        .into_iter()
        .map(HostName::from)
        .find(|name| known.contains_key(name))
        .unwrap_or_else(|| endpoint.to_string().into())
}

/// The version of most collectors; if two are equally frequent, the later one in alphabetical order.
pub(super) fn usual_version(hosts: &[Host]) -> Option<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for host in hosts {
        if let Some(collector) = &host.collector {
            *counts.entry(&collector.version).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|&(version, count)| (count, version)).map(|(version, _)| version.to_owned())
}
