//! Programs that `xpu-top run` has started on this host and that have no rank, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use xpu_model::expected::{self, Expected};
use xpu_wire::{
    endpoint::{BasePort, RuntimeDir},
    id::Pid,
};

use super::check::Check;

/// Programs listed one by one.
const NAMED: usize = 8;

const NAME: &str = "started";

/// The steps of a program without an optimizer are known only if it marks them.
const MARKS: &str = "wait until it trains; steps without a PyTorch optimizer, and steps on CPUs without PyTorch, \
     need marks: `from xpu_top import Tracer`, `tracer = Tracer()`, and `tracer.step()` after each step";

/// `ranks`: the processes of this host that are ranks.
pub(super) fn checks(base: BasePort, ranks: &BTreeSet<Pid>) -> Vec<Check> {
    let children = children();
    let without_rank = expected::living(&RuntimeDir::locate(), base).into_iter().filter_map(|program| {
        let family = family(program.pid, &children);
        (!family.iter().any(|pid| ranks.contains(pid))).then(|| check(&program, &family))
    });
    without_rank.take(NAMED).collect()
}

fn check(program: &Expected, family: &[Pid]) -> Check {
    let name = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let who = format!("process {} ({}) of job {}", program.pid, name(program.pid).trim(), program.job);
    let loaded = |library: &str| {
        let mut maps = family.iter().filter_map(|pid| fs::read(format!("/proc/{pid}/maps")).ok());
        maps.any(|maps| String::from_utf8_lossy(&maps).contains(library))
    };
    if !loaded("/libxpu_hook.so") {
        let remedy = "check that its launcher keeps LD_PRELOAD, and that the program is linked against glibc";
        return Check::warn(NAME, format!("{who} has no rank: no process of it has loaded the hook"), remedy);
    }
    let why = if loaded("/libtorch_cpu.so") {
        "PyTorch is loaded, but no call of CUDA or NCCL, no step of an optimizer and no mark was seen"
    } else {
        "no call of CUDA or NCCL and no mark of a step was seen"
    };
    Check::warn(NAME, format!("{who} has no rank: {why}"), MARKS)
}

/// The process and its present descendants.
fn family(pid: Pid, children: &BTreeMap<Pid, Vec<Pid>>) -> Vec<Pid> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(parent) = all.get(at) {
        let more = children.get(parent).cloned().unwrap_or_default();
        all.extend(more);
        at += 1;
    }
    all
}

/// The children of every visible process.
fn children() -> BTreeMap<Pid, Vec<Pid>> {
    let mut children: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The process's name comes before its parent, and may contain blanks and brackets.
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        if let Some(parent) = parent.map(Pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}
