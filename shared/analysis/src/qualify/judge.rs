//! The verdicts. Each figure is compared with its peak, its neighbours and its past. Each GPU is judged by
//! its figures, each host by its GPUs and links.

use std::collections::BTreeMap;

use xpu_model::figure::{three, whole_percent};

use super::{Figure, Host, Kind, Qualification, Verdict, limits::Limits};

/// Number of a GPU's reasons that its host repeats; the GPU itself lists all.
const SHOWN: usize = 2;

pub(super) fn judge(of: &mut Qualification) {
    compare_gpus(&mut of.hosts);
    compare_pairs(&mut of.hosts);
    compare_hosts(&mut of.hosts);
    compare_host_pairs(of);
    for host in &mut of.hosts {
        conclude(host);
    }
    blame_hosts(of);
    let between = !of.errors.is_empty()
        || of.host_pairs.iter().any(|pair| {
            pair.error.is_some() || pair.figure.as_ref().is_some_and(|figure| figure.verdict == Verdict::Fail)
        });
    let worst = of.hosts.iter().map(|host| host.verdict).max().unwrap_or(Verdict::NotRun);
    of.verdict = if between { Verdict::Fail } else { worst };
}

/// Compares every figure of a GPU with figures of the same name on all GPUs of the same model.
fn compare_gpus(hosts: &mut [Host]) {
    let mut groups: Groups<(Option<String>, String)> = Groups::default();
    for gpu in hosts.iter().flat_map(|host| &host.gpus) {
        for figure in &gpu.figures {
            groups.add((gpu.name.clone(), figure.title()), figure.median);
        }
    }
    groups.sort();
    for gpu in hosts.iter_mut().flat_map(|host| &mut host.gpus) {
        gpu.why.clear();
        for figure in &mut gpu.figures {
            let others = groups.without(&(gpu.name.clone(), figure.title()), figure.median);
            let limits = Limits::of(figure.kind, &figure.name, gpu.condition.power_limit_w);
            gpu.why.extend(hold(figure, others, limits).map(|why| format!("{}: {why}", figure.title())));
        }
        gpu.why.extend(gpu.errors.iter().cloned());
        gpu.verdict = if gpu.why.is_empty() { Verdict::Pass } else { Verdict::Fail };
    }
}

/// Compares pairs with the same kind of link, on GPUs of the same model.
fn compare_pairs(hosts: &mut [Host]) {
    type Key = (Option<String>, bool, Option<i32>);
    let key = |host: &Host, place: usize| -> Key {
        let pair = &host.pairs[place];
        let from = host.gpus.iter().find(|gpu| gpu.index == pair.from);
        (from.and_then(|gpu| gpu.name.clone()), pair.access, pair.link)
    };
    let mut groups: Groups<Key> = Groups::default();
    for host in hosts.iter() {
        for (place, pair) in host.pairs.iter().enumerate() {
            groups.add(key(host, place), pair.figure.median);
        }
    }
    groups.sort();
    for host in hosts {
        host.why.clear();
        for place in 0..host.pairs.len() {
            let key = key(host, place);
            let pair = &mut host.pairs[place];
            let others = groups.without(&key, pair.figure.median);
            let why = hold(&mut pair.figure, others, Limits::of(Kind::Peer, "", None));
            host.why.extend(why.map(|why| format!("GPU {} to GPU {}: {why}", pair.from, pair.to)));
        }
    }
}

/// Compares all-reduces over all GPUs of a host with those of hosts with the same GPUs.
fn compare_hosts(hosts: &mut [Host]) {
    let key = |host: &Host| host.gpus.iter().map(|gpu| gpu.name.clone()).collect::<Vec<_>>();
    let mut groups: Groups<Vec<Option<String>>> = Groups::default();
    for host in hosts.iter() {
        groups.extend(key(host), host.all_reduce.iter().map(|figure| figure.median));
    }
    groups.sort();
    for host in hosts {
        let key = key(host);
        if let Some(figure) = &mut host.all_reduce {
            let others = groups.without(&key, figure.median);
            let why = hold(figure, others, Limits::of(Kind::AllReduce, "", None));
            host.why.extend(why.map(|why| format!("all-reduce over its GPUs: {why}")));
        }
    }
}

fn compare_host_pairs(of: &mut Qualification) {
    let mut groups: Groups<()> = Groups::default();
    groups.extend((), of.host_pairs.iter().filter_map(|pair| Some(pair.figure.as_ref()?.median)));
    groups.sort();
    for figure in of.host_pairs.iter_mut().filter_map(|pair| pair.figure.as_mut()) {
        let others = groups.without(&(), figure.median);
        let _ = hold(figure, others, Limits::of(Kind::AllReduce, "", None));
    }
}

/// Sets the verdict on one figure. Returns the reason if it fails.
fn hold(figure: &mut Figure, neighbours: Option<f64>, limits: Limits) -> Option<String> {
    figure.neighbours = neighbours;
    let share = |of: Option<f64>| of.filter(|of| *of > 0.0).map(|of| figure.median / of);
    let (peak, past, others) = (share(figure.peak), share(figure.past), share(neighbours));
    (figure.of_peak, figure.of_past, figure.of_neighbours) = (peak, past, others);
    let unit = figure.kind.unit();
    let low = |share: Option<f64>, limit: Option<f64>, of: Option<f64>, whose: &str| {
        let (share, limit, of) = (share?, limit?, of?);
        (share < limit).then(|| {
            format!(
                "{} {unit}, {} of {whose} ({}), at least {} are expected",
                three(figure.median),
                whole_percent(share),
                three(of),
                whole_percent(limit)
            )
        })
    };
    let why = low(others, limits.neighbours, neighbours, "its neighbours")
        .or_else(|| low(past, limits.past, figure.past, "its own past"))
        .or_else(|| low(peak, limits.peak, figure.peak, "its peak"));
    figure.verdict = if why.is_some() { Verdict::Fail } else { Verdict::Pass };
    why
}

/// A host fails if any of its GPUs, pairs or other figures fails. If several pairs fail, a GPU in all of them
/// fails too.
fn conclude(host: &mut Host) {
    let failing: Vec<_> = host
        .pairs
        .iter()
        .filter(|pair| pair.figure.verdict == Verdict::Fail)
        .map(|pair| [pair.from, pair.to])
        .collect();
    for gpu in &mut host.gpus {
        if host.pairs.len() > 2 && failing.len() > 1 && failing.iter().all(|pair| pair.contains(&gpu.index)) {
            gpu.verdict = Verdict::Fail;
            gpu.why.push(format!("it is in each of the {} slow pairs of GPUs", failing.len()));
        }
    }
    let mut why: Vec<_> = Vec::new();
    for gpu in host.gpus.iter().filter(|gpu| gpu.verdict == Verdict::Fail) {
        let shown = gpu.why.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
        let more = gpu.why.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        why.push(format!("GPU {}: {shown}{more}", gpu.index));
    }
    host.why.splice(0..0, why);
    host.why.extend(host.errors.iter().cloned());
    host.verdict = match (host.why.is_empty(), &host.not_run) {
        (false, _) => Verdict::Fail,
        (true, Some(_)) => Verdict::NotRun,
        (true, None) if host.gpus.is_empty() => Verdict::NotRun,
        (true, None) => Verdict::Pass,
    };
}

/// If several pairs of hosts fail, a host in all of them fails too.
fn blame_hosts(of: &mut Qualification) {
    let is_bad = |figure: Option<&Figure>| figure.is_none_or(|figure| figure.verdict == Verdict::Fail);
    let failing: Vec<_> = of
        .host_pairs
        .iter()
        .filter(|pair| is_bad(pair.figure.as_ref()))
        .map(|pair| pair.hosts.clone())
        .collect();
    let some_pass = failing.len() < of.host_pairs.len();
    for host in &mut of.hosts {
        if some_pass && failing.len() > 1 && failing.iter().all(|pair| pair.contains(&host.host)) {
            host.verdict = Verdict::Fail;
            host.why.push(format!("it is in each of the {} slow pairs of hosts", failing.len()));
        }
    }
}

/// Groups of similar figures, for the median without the compared figure.
#[derive(Debug)]
struct Groups<Key>(BTreeMap<Key, Vec<f64>>);

impl<Key> Default for Groups<Key> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<Key: Ord> Groups<Key> {
    fn add(&mut self, key: Key, value: f64) {
        self.0.entry(key).or_default().push(value);
    }

    fn extend(&mut self, key: Key, values: impl Iterator<Item = f64>) {
        self.0.entry(key).or_default().extend(values);
    }

    fn sort(&mut self) {
        self.0.values_mut().for_each(|values| values.sort_by(f64::total_cmp));
    }

    /// The median of the others; `None` if there are none.
    fn without(&self, key: &Key, value: f64) -> Option<f64> {
        let sorted = self.0.get(key)?;
        let own = sorted.iter().position(|known| *known == value)?;
        let others = sorted.len() - 1;
        let at = |place: usize| sorted[if place < own { place } else { place + 1 }];
        (others > 0).then(|| f64::midpoint(at((others - 1) / 2), at(others / 2)))
    }
}

#[cfg(test)]
mod tests;
