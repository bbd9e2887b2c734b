//! Ranks that wait for each other before they have a communicator, by the stacks of their main threads.

use xpu_wire::{
    frame::{RankStacks, StackFrame},
    id::Rank,
};

use super::held;
use crate::job::{Job, RankView};

/// Functions in which a program waits for the other ranks of its job, with the end of their Python file.
const PYTHON: [(&str, &str); 4] = [
    ("torch/distributed/distributed_c10d.py", "init_process_group"),
    ("torch/distributed/distributed_c10d.py", "_store_based_barrier"),
    ("torch/distributed/rendezvous.py", "rendezvous"),
    ("jax/_src/distributed.py", "initialize"),
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

/// Where the rank waits for others, if its main thread does so outside of any call of CUDA or NCCL. Stacks that
/// are older than its last activity do not count.
pub(super) fn place(job: &Job, rank: Rank, view: &RankView) -> Option<&'static str> {
    let idle = view.idle_for().min(view.stalled_for());
    let now = |stacks: &&RankStacks| view.heard().since(stacks.read_at) < idle;
    if held(view).is_some() {
        return None;
    }
    let main = job.stacks_of(rank).filter(now)?.threads.iter().find(|thread| thread.main)?;
    main.frames.iter().find_map(of)
}

fn of(frame: &StackFrame) -> Option<&'static str> {
    if frame.is_python() {
        let is_it =
            |&&(file, function): &&(&str, &str)| frame.function == function && frame.file.ends_with(file);
        return PYTHON.iter().find(is_it).map(|&(_, function)| function);
    }
    NATIVE.iter().find(|(begin, _)| frame.function.starts_with(begin)).map(|&(_, name)| name)
}
