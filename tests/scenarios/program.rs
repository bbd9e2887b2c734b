//! A simulated job's program: its groups, and the operations of a step.

use xpu_wire::collective::Operation;

/// How work is spread over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One rank without collectives.
    Alone,
    /// Data parallel: four buckets that overlap backward.
    Ddp,
    /// Data parallel, as PyTorch does it: twenty-five buckets, and the loss after them.
    Buckets,
    /// Data parallel with gradients that are accumulated over four micro-batches, and reduced in the last.
    Accumulated,
    /// Sharded: weights are gathered layer by layer.
    Fsdp,
    /// Tensor parallel within eight ranks, data parallel across.
    TensorData,
    /// Four stages that pass micro-batches on, data parallel within a stage.
    Pipeline,
    /// Experts on eight ranks each, which tokens are sent to.
    Experts,
}

/// The members of a communicator. A rank is in one of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Circle {
    World,
    /// Eight ranks side by side.
    Host,
    /// Those with the same place among eight.
    Across,
    Stage,
}

/// One operation of a step, the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// A share of the step's arithmetic.
    Compute(f64),
    Collective {
        circle: Circle,
        operation: Operation,
        bytes: u64,
        /// On a stream of its own, beside what is computed next.
        beside: bool,
    },
    /// A micro-batch through all stages, computing this share in each.
    Pass { forward: bool, share: f64 },
    /// Waits for what runs beside.
    Join,
}

const MIB: u64 = 1 << 20;

fn collective(circle: Circle, operation: Operation, bytes: u64) -> Op {
    Op::Collective { circle, operation, bytes, beside: false }
}

fn beside(circle: Circle, operation: Operation, bytes: u64) -> Op {
    Op::Collective { circle, operation, bytes, beside: true }
}

impl Layout {
    pub(crate) const STAGES: u32 = 4;

    pub(crate) fn step(self) -> Vec<Op> {
        use Circle::{Across, Host, Stage, World};
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

    /// The kinds of communicators it has.
    pub(crate) fn circles(self) -> &'static [Circle] {
        match self {
            Self::Alone => &[],
            Self::Ddp | Self::Buckets | Self::Accumulated | Self::Fsdp => &[Circle::World],
            Self::TensorData => &[Circle::Host, Circle::Across],
            Self::Pipeline => &[Circle::Stage, Circle::World],
            Self::Experts => &[Circle::Host, Circle::World],
        }
    }

    pub(crate) fn stage(self, rank: u32, ranks: u32) -> u32 {
        if self == Self::Pipeline { rank * Self::STAGES / ranks } else { 0 }
    }
}

impl Circle {
    /// Which of its kind a rank is in.
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
