//! The program of a simulated job: its communicators, and the operations of a step.

use xpu_wire::collective::Operation;

/// How work is spread over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One rank without collectives.
    Alone,
    /// Data parallel: four buckets overlap the backward pass.
    Ddp,
    /// Data parallel as in PyTorch: twenty-five buckets, and then the loss.
    Buckets,
    /// Data parallel with gradients accumulated over four micro-batches. The last micro-batch reduces them.
    Accumulated,
    /// Sharded: weights are gathered layer by layer.
    Fsdp,
    /// Tensor parallel within eight ranks, data parallel across them.
    TensorData,
    /// Four stages that pass micro-batches on, with data parallel within each stage.
    Pipeline,
    /// Experts on eight ranks each. Tokens are sent to them.
    Experts,
}

/// The members of a communicator. A rank is in one communicator of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommunicatorKind {
    World,
    /// Eight consecutive ranks.
    Host,
    /// Ranks with the same position among eight.
    Across,
    Stage,
}

/// One operation of a step, the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// A share of the step's computation.
    Compute(f64),
    Collective {
        kind: CommunicatorKind,
        operation: Operation,
        bytes: u64,
        /// Whether it runs on its own stream, together with the computation that follows.
        beside: bool,
    },
    /// Passes a micro-batch through all stages. Each computes this share.
    Pass { forward: bool, share: f64 },
    /// Waits for the collectives on other streams.
    Join,
}

const MIB: u64 = 1 << 20;

fn collective(kind: CommunicatorKind, operation: Operation, bytes: u64) -> Op {
    Op::Collective { kind, operation, bytes, beside: false }
}

fn beside(kind: CommunicatorKind, operation: Operation, bytes: u64) -> Op {
    Op::Collective { kind, operation, bytes, beside: true }
}

impl Layout {
    pub(crate) const STAGES: u32 = 4;

    pub(crate) fn step(self) -> Vec<Op> {
        use CommunicatorKind::{Across, Host, Stage, World};
        use Operation::{AllGather, AllReduce, AlltoAll, ReduceScatter};
        let mut ops = Vec::new();
        match self {
            Self::Alone => ops.extend([Op::Compute(0.3), Op::Compute(0.7)]),
            Self::Ddp => {
                ops.push(Op::Compute(0.4));
                for _ in 0..4 {
                    ops.extend([Op::Compute(0.15), beside(World, AllReduce, 64 * MIB)]);
                }
                ops.push(Op::Join);
            }
            Self::Accumulated => {
                ops.push(Op::Compute(0.85));
                for _ in 0..3 {
                    ops.extend([Op::Compute(0.05), beside(World, AllReduce, 64 * MIB)]);
                }
                ops.push(Op::Join);
            }
            Self::Buckets => {
                ops.push(Op::Compute(0.35));
                for _ in 0..25 {
                    ops.extend([Op::Compute(0.026), beside(World, AllReduce, 8 * MIB)]);
                }
                ops.extend([Op::Join, collective(World, AllReduce, 4)]);
            }
            Self::Fsdp => {
                for _ in 0..4 {
                    ops.extend([beside(World, AllGather, 64 * MIB), Op::Compute(0.08)]);
                }
                for _ in 0..4 {
                    ops.extend([beside(World, AllGather, 64 * MIB), Op::Compute(0.17)]);
                    ops.push(beside(World, ReduceScatter, 64 * MIB));
                }
                ops.push(Op::Join);
            }
            Self::TensorData => {
                for _ in 0..8 {
                    ops.extend([Op::Compute(0.11), collective(Host, AllReduce, 32 * MIB)]);
                }
                ops.push(Op::Compute(0.12));
                ops.extend([collective(Across, ReduceScatter, 128 * MIB), Op::Join]);
            }
            Self::Pipeline => {
                for forward in [true, false] {
                    for _ in 0..6 {
                        ops.push(Op::Pass { forward, share: if forward { 0.06 } else { 0.1 } });
                    }
                }
                ops.push(collective(Stage, AllReduce, 128 * MIB));
                ops.extend([collective(World, AllReduce, MIB / 2), Op::Join]);
            }
            Self::Experts => {
                for _ in 0..4 {
                    ops.extend([Op::Compute(0.1), collective(Host, AlltoAll, 32 * MIB)]);
                    ops.extend([Op::Compute(0.15), collective(Host, AlltoAll, 32 * MIB)]);
                }
                ops.extend([collective(World, AllReduce, 64 * MIB), Op::Join]);
            }
        }
        ops
    }

    /// The kinds of communicators in this layout.
    pub(crate) fn kinds(self) -> &'static [CommunicatorKind] {
        match self {
            Self::Alone => &[],
            Self::Ddp | Self::Buckets | Self::Accumulated | Self::Fsdp => &[CommunicatorKind::World],
            Self::TensorData => &[CommunicatorKind::Host, CommunicatorKind::Across],
            Self::Pipeline => &[CommunicatorKind::Stage, CommunicatorKind::World],
            Self::Experts => &[CommunicatorKind::Host, CommunicatorKind::World],
        }
    }

    pub(crate) fn stage(self, rank: u32, ranks: u32) -> u32 {
        if self == Self::Pipeline { rank * Self::STAGES / ranks } else { 0 }
    }
}

impl CommunicatorKind {
    /// The number of the rank's communicator among those of this kind.
    pub(crate) fn index(self, rank: u32, ranks: u32) -> u32 {
        match self {
            Self::World => 0,
            Self::Host => rank / 8,
            Self::Across => rank % 8,
            Self::Stage => Layout::Pipeline.stage(rank, ranks),
        }
    }

    pub(crate) fn count(self, ranks: u32) -> u32 {
        match self {
            Self::World => 1,
            Self::Host => ranks / 8,
            Self::Across => 8,
            Self::Stage => Layout::STAGES,
        }
    }

    pub(crate) fn size(self, ranks: u32) -> u32 {
        ranks / self.count(ranks)
    }
}
