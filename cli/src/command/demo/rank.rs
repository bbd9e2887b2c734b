//! A simulated rank: the worker, started as a launcher and `xpu-top run` would start it.

use std::{
    io::{self, Write as _},
    process::{Command, ExitStatus},
};

use anyhow::Context as _;
use xpu_wire::endpoint::variable;

use super::{
    Plan,
    child::{Child, end_all},
    folder::DemoFolder,
    node::Node,
    node_of,
};

/// Number of failed ranks whose last output is shown; the others mostly failed because of these.
const SHOWN: usize = 3;

#[derive(Debug)]
pub(super) struct Worker {
    rank: u32,
    child: Child,
    /// Whether it was asked to end. If so, its exit status means nothing.
    dismissed: bool,
}

impl Worker {
    pub(super) fn start(folder: &DemoFolder, plan: &Plan, rank: u32, nodes: &[Node]) -> anyhow::Result<Self> {
        let Plan { ranks, nodes: count, steps, seed, stages, ref faults, .. } = *plan;
        let node = node_of(rank, ranks, count);
        let neighbours = || (0..ranks).filter(|&other| node_of(other, ranks, count) == node);
        let local_rank = neighbours().take_while(|&other| other != rank).count();
        let mut command = Command::new(&folder.python);
        command
            .arg(folder.worker())
            .arg(format!("--steps={steps}"))
            .arg(format!("--seed={seed}"))
            .arg(format!("--stages={stages}"))
            .arg(format!("--more-layers={}", plan.more_layers(rank)))
            .args(plan.long_sequences.then_some("--long-sequences"))
            .arg("--rendezvous")
            .arg(folder.rendezvous())
            .env("LD_PRELOAD", &folder.hook)
            .env("LD_LIBRARY_PATH", folder.libraries())
            .env("PYTHONPATH", folder.packages())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("LOCAL_RANK", local_rank.to_string())
            .env("LOCAL_WORLD_SIZE", neighbours().count().to_string())
            .env(variable::JOB, "demo")
            .env(variable::SOCKET, nodes[node as usize].socket())
            .env("SIMGPU_SHM_DIR", folder.shared_memory())
            .env("SIMGPU_MACHINE_DIR", folder.machine(node))
            .env("SIMGPU_DEVICES", plan.devices().to_string())
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove(variable::DISABLE);
        if let Some(factor) = faults.slowdown(rank) {
            command.env("SIMGPU_SLOWDOWN", factor.to_string());
        }
        if let Some(megahertz) = faults.throttled_mhz(rank) {
            command.env("SIMGPU_CLOCK_MHZ", megahertz.to_string());
        }
        if let Some(milliseconds) = faults.lost_ms(rank) {
            command.arg(format!("--slow-host={milliseconds}"));
        }
        if let Some(step) = faults.hangs_at(rank) {
            command.arg(format!("--hang={step}"));
        }
        let log = folder.logs().join(format!("rank-{rank}"));
        let child = Child::start(&mut command, log).with_context(|| format!("cannot start rank {rank}"))?;
        Ok(Self { rank, child, dismissed: false })
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.ended()
    }

    /// How it ended, if it failed.
    pub(super) fn failure(&mut self) -> Option<ExitStatus> {
        self.ended().filter(|status| !status.success() && !self.dismissed)
    }
}

/// Reports ranks that failed by themselves; `true` if there was one.
pub(super) fn report_failures(workers: &mut [Worker]) -> bool {
    let failed: Vec<_> = workers.iter_mut().filter_map(|worker| Some((worker.failure()?, worker))).collect();
    for (status, worker) in failed.iter().take(SHOWN) {
        let words = match worker.child.stderr_tail() {
            words if words.is_empty() => ", and wrote nothing".to_owned(),
            words => format!("; its last output:\n{words}"),
        };
        // The terminal may be gone by now.
        let _ = writeln!(io::stderr(), "rank {} failed ({status}){words}", worker.rank);
    }
    !failed.is_empty()
}

/// Ends the ranks that still run; first asks them to end.
pub(super) fn dismiss(workers: &mut [Worker]) {
    for worker in workers.iter_mut() {
        worker.dismissed |= worker.ended().is_none();
    }
    end_all(workers.iter_mut().map(|worker| &mut worker.child));
}
