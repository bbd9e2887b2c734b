//! Ranks that wait for each other before they have a communicator, by the stacks of their main threads.

use std::time::Duration;

use xpu_wire::{
    frame::{Life, RankStacks, StackFrame},
    id::Rank,
};

use super::held;
use crate::job::{Job, RankView};

/// A rank that was active this recently may still come.
const AT_WORK: Duration = Duration::from_secs(30);

/// Functions in which a program waits for the other ranks of its job, with the end of their Python file, and what
/// they are called here.
const PYTHON: [(&str, &str, &str); 5] = [
    ("torch/distributed/distributed_c10d.py", "init_process_group", "init_process_group"),
    ("torch/distributed/distributed_c10d.py", "_store_based_barrier", "_store_based_barrier"),
    ("torch/distributed/rendezvous.py", "rendezvous", "rendezvous"),
    ("jax/_src/distributed.py", "initialize", "initialize"),
    // The launcher itself, which starts its ranks afterwards.
    ("torch/distributed/elastic/agent/server/api.py", "_rendezvous", "torchrun's rendezvous"),
];

/// The same in native code: the beginning of the function's name, and what it is called here. The first
/// collective of a communicator waits in PyTorch's store for the communicator's id.
const NATIVE: [(&str, &str); 5] = [
    ("MPI_Init", "MPI_Init"),
    ("PMPI_Init", "MPI_Init"),
    ("c10d::TCPStore::", "PyTorch's store"),
    ("c10d::PrefixStore::", "PyTorch's store"),
    ("c10d::FileStore::", "PyTorch's store"),
];

/// Where a rank is while others wait in a rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Its main thread waits for other ranks in this function, outside of any call of CUDA or NCCL.
    Meets(&'static str),
    Elsewhere,
    /// It does nothing, and its stack has not been read since, or only in part.
    Unknown,
}

pub(super) fn position(job: &Job, rank: Rank, view: &RankView) -> Position {
    let idle = view.idle_for().min(view.stalled_for());
    if view.life() != Life::Alive || held(view).is_some() || idle < AT_WORK {
        return Position::Elsewhere;
    }
    let now = |stacks: &&RankStacks| view.last_report().since(stacks.read_at) < idle;
    let Some(stacks) = job.stacks_of(rank).filter(now) else { return Position::Unknown };
    let frames = main_thread(stacks);
    match frames.iter().find_map(of) {
        Some(place) => Position::Meets(place),
        // The frames that were not read may be those of a rendezvous.
        None if frames.is_empty() || !stacks.why.is_empty() => Position::Unknown,
        None => Position::Elsewhere,
    }
}

/// The function in which the main thread of a process waits for the other ranks of its job.
pub fn meeting_place(stacks: &RankStacks) -> Option<&'static str> {
    main_thread(stacks).iter().find_map(of)
}

fn main_thread(stacks: &RankStacks) -> &[StackFrame] {
    stacks.main_thread().map(|thread| &thread.frames[..]).unwrap_or_default()
}

fn of(frame: &StackFrame) -> Option<&'static str> {
    if frame.is_python() {
        let is_it = |&&(file, function, _): &&(&str, &str, &str)| {
            frame.own_name() == function && frame.file.ends_with(file)
        };
        return PYTHON.iter().find(is_it).map(|&(.., name)| name);
    }
    NATIVE.iter().find(|(begin, _)| frame.function.starts_with(begin)).map(|&(_, name)| name)
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::example::stacks;

    use super::*;

    #[test]
    fn the_rendezvous_of_ranks_and_of_their_launcher_is_known() {
        let place = |function: &str, file: &str| {
            let mut stacks = stacks::rank(1, &["main"]);
            let frame =
                StackFrame { function: function.into(), file: format!("/v/site-packages/{file}"), line: 7 };
            stacks.threads.iter_mut().find(|thread| thread.main).unwrap().frames.push(frame);
            meeting_place(&stacks)
        };
        let ranks = "torch/distributed/distributed_c10d.py";
        assert_eq!(place("init_process_group", ranks), Some("init_process_group"));
        let agent = "torch/distributed/elastic/agent/server/api.py";
        for function in ["_rendezvous", "SimpleElasticAgent._rendezvous"] {
            assert_eq!(place(function, agent), Some("torchrun's rendezvous"));
        }
        assert_eq!(place("SimpleElasticAgent._monitor_workers", agent), None);
        assert_eq!(
            place("c10d::TCPStore::waitForWorkers", "torch/lib/libtorch_cpu.so"),
            Some("PyTorch's store")
        );
    }
}
