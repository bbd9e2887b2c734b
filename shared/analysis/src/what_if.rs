//! What-if analysis of stragglers. It simulates a job's steps as they were, with every operation at its
//! typical time, and with one part of the job repaired. It is a separate module because the rest of the crate
//! reports only measured data.
//!
//! The method and its figures are those of "Understanding Stragglers in Large Model Training Using What-if
//! Analysis" (arXiv 2505.05713).

mod account;
mod captured;
mod figures;
mod graph;
mod hosts;
mod ideal;
mod length;
mod loss;
mod sentence;
#[cfg(test)]
mod tests;
mod traced;

pub use account::{Account, Estimate, Lost, Total};
pub use figures::{Culprits, KindFigures, SequenceLength, StageFigures, StepTimes, WhatIf, Worker};
use graph::{Durations, Graph, Shape};
pub use hosts::HostFigures;
pub use loss::Loss;
use serde::Serialize;
pub use traced::Row;
pub use xpu_wire::frame::StragglerCause as Cause;
use xpu_wire::id::{HostName, Rank, Step};

/// Kinds of operations. The names in a trace are those of the public traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    ForwardCompute,
    BackwardCompute,
    ForwardSend,
    ForwardRecv,
    BackwardSend,
    BackwardRecv,
    ParamsAllGather,
    GradsReduceScatter,
    LayernormGradsAllReduce,
    EmbeddingGradsAllReduce,
    OptimizerClipMainGrad,
    Optimizer,
    Gc,
    /// A rank's work between two collectives; only in captures.
    Compute,
    /// A collective; only in captures.
    Communication,
}

impl Kind {
    const OF_TRACES: [Self; 13] = [
        Self::ForwardCompute,
        Self::BackwardCompute,
        Self::ForwardSend,
        Self::ForwardRecv,
        Self::BackwardSend,
        Self::BackwardRecv,
        Self::ParamsAllGather,
        Self::GradsReduceScatter,
        Self::LayernormGradsAllReduce,
        Self::EmbeddingGradsAllReduce,
        Self::OptimizerClipMainGrad,
        Self::Optimizer,
        Self::Gc,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ForwardCompute => "forward-compute",
            Self::BackwardCompute => "backward-compute",
            Self::ForwardSend => "forward-send",
            Self::ForwardRecv => "forward-recv",
            Self::BackwardSend => "backward-send",
            Self::BackwardRecv => "backward-recv",
            Self::ParamsAllGather => "params-all-gather",
            Self::GradsReduceScatter => "grads-reduce-scatter",
            Self::LayernormGradsAllReduce => "layernorm-grads-all-reduce",
            Self::EmbeddingGradsAllReduce => "embedding-grads-all-reduce",
            Self::OptimizerClipMainGrad => "optimizer-clip-main-grad",
            Self::Optimizer => "optimizer",
            Self::Gc => "gc",
            Self::Compute => "compute",
            Self::Communication => "communication",
        }
    }

    /// The kind of this name in a trace; `None` for a name that the simulation does not know.
    pub fn of_trace(name: &str) -> Option<Self> {
        Self::OF_TRACES.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it is compute. The ideal time of compute is the mean; that of all other kinds is the median.
    pub(crate) fn is_compute(self) -> bool {
        matches!(
            self,
            Self::ForwardCompute | Self::BackwardCompute | Self::Optimizer | Self::Gc | Self::Compute
        )
    }
}

/// Why there is no simulation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it has no operation: write the rows of some steps to it")]
    Empty,
    #[error("{0}: correct the trace; docs/what-if.md has its form")]
    Trace(String),
    #[error(
        "{0}: what-if simulates only pipelines with one forward and one backward per microbatch and stage"
    )]
    Schedule(String),
    #[error(
        "operations wait for each other in a circle: the trace is damaged, or what-if does not simulate its schedule"
    )]
    Circle,
    #[error(
        "{0}: what-if simulates captures of jobs only if all their ranks make the same calls (DDP, FSDP, tensor parallelism); `xpu-top report` reads this file"
    )]
    NotSpmd(String),
    #[error(
        "{0}: what-if simulates captures of jobs whose ranks send to each other only if these are pipelines with one forward and one backward per microbatch and stage (GPipe, 1F1B), and all their replicas make the same calls; `xpu-top report` reads this file"
    )]
    NotPipeline(String),
    #[error(
        "it has launches of CUDA graphs, and what-if needs the operations in them one by one; `xpu-top report` reads this file"
    )]
    Graphs,
    #[error(
        "the file does not say between which ranks the sends and receives are: capture again with this version of xpu-top"
    )]
    PeersUnknown,
    #[error(
        "the file does not say which ranks are in a communicator with sends and receives, because a rank reports only the 8 communicators that it used last: capture for longer (`--steps 20`), then more of them are reported"
    )]
    MembersUnknown,
    #[error(
        "{untimed} of {all} operations have no GPU times, more than a quarter: capture fewer steps (`--steps 2`)"
    )]
    Untimed { untimed: u64, all: u64 },
    #[error(
        "the file has {there} of the {all} ranks that meet in its collectives: capture all ranks (without `--ranks`)"
    )]
    RanksMissing { there: usize, all: usize },
    #[error(
        "no two successive steps have the same collectives on all ranks, all with GPU times: capture more steps (`--steps 5`)"
    )]
    NoSteps,
}

/// A job that can be simulated.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) graph: Graph,
    pub(crate) shape: Shape,
    pub(crate) actual: Durations,
    pub(crate) stages: usize,
    /// For each stage, the ranks of its replicas.
    pub(crate) ranks: Vec<Vec<Rank>>,
    /// For each stage, the hosts of its replicas; empty for a trace, which has none.
    pub(crate) hosts: Vec<Vec<HostName>>,
    pub(crate) steps: Vec<Step>,
    /// Measured times of the steps, in seconds.
    pub(crate) measured: Vec<f64>,
    /// Steps left out because their ranks' operations differ.
    pub(crate) left_out: usize,
    /// For each stage, the shortest step of each replica by its host's clock, without calls that wait for the
    /// GPU, in seconds. A host that launches ahead of its GPU needs this long even if no other rank is late. 0
    /// if it is not known to launch ahead; empty for a trace, which has no host times.
    pub(crate) host_steps: Vec<Vec<f64>>,
    /// For each operation in each place, the replica for which a collective beside it waited: NCCL's kernel then
    /// takes SMs from it. Empty for pipelines and traces, in which that is unknown.
    pub(crate) crowded_by: Vec<Option<usize>>,
}
