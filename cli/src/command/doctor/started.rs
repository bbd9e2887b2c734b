//! Programs that `xpu-top run` has started on this host and that have no rank, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
};

use xpu_model::{
    expected::{self, Expected},
    finding,
};
use xpu_wire::{
    codec,
    endpoint::{BasePort, RuntimeDir},
    frame::{Body, RankStacks},
    id::Pid,
};

use super::check::Check;
use crate::parts::{Part, Parts};

/// Programs listed one by one.
const NAMED: usize = 8;

/// Processes of a program whose stacks are read.
const READ: usize = 16;

const NAME: &str = "started";

const MEETS: &str = "check that all ranks and launchers start, with the same address and port (MASTER_ADDR, MASTER_PORT, \
     --rdzv-endpoint), and reach it (firewalls)";

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
    if let Some((pid, place)) = family.iter().take(READ).find_map(|&pid| Some((pid, meeting_place(pid)?))) {
        let found = format!("{who} has no rank: process {pid}{} waits for others in {place}", rank(pid));
        return Check::warn(NAME, found, MEETS);
    }
    let why = if loaded("/libtorch_cpu.so") {
        "PyTorch is loaded, but no call of CUDA or NCCL, no step of an optimizer and no mark was seen"
    } else {
        "no call of CUDA or NCCL and no mark of a step was seen"
    };
    Check::warn(NAME, format!("{who} has no rank: {why}"), MARKS)
}

/// The function in which the process waits for the other ranks of its job, by its Python frames. It is not stopped.
fn meeting_place(pid: Pid) -> Option<&'static str> {
    let reader = Parts::beside_this_program().ok()?.find(Part::Collector).ok()?;
    let mut command = Command::new(reader);
    command.args(["--read-stacks", &pid.to_string()]).env_remove("LD_PRELOAD").stderr(Stdio::null());
    finding::meeting_place(&last_frame(&command.output().ok()?.stdout)?)
}

/// The last of the reader's frames, which has the most data.
fn last_frame(mut bytes: &[u8]) -> Option<RankStacks> {
    let mut last = None;
    while let Some(&[.., a, b, c, d]) = bytes.first_chunk::<{ codec::HEADER }>() {
        let length = codec::HEADER + u32::from_le_bytes([a, b, c, d]) as usize;
        let Some((frame, rest)) = bytes.split_at_checked(length) else { break };
        if let Ok(Body::Stacks(stacks)) = codec::decode(frame).map(|frame| frame.body) {
            last = Some(stacks);
        }
        bytes = rest;
    }
    last
}

/// ` (rank 0 of 2)`, by the environment of the process; empty if it has no rank.
fn rank(pid: Pid) -> String {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let set = |name: &str| {
        let mut all = environment.split(|&byte| byte == 0).filter_map(|set| std::str::from_utf8(set).ok());
        let value = all.find_map(|set| set.strip_prefix(name)?.strip_prefix('='))?;
        value.parse::<u32>().ok()
    };
    match (set("RANK"), set("WORLD_SIZE")) {
        (Some(rank), Some(world)) => format!(" (rank {rank} of {world})"),
        _ => String::new(),
    }
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
