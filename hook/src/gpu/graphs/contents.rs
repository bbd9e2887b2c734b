//! The contents of a graph capture, as counts.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use xpu_wire::{
    collective::Operation, datatype::DataType, frame::Direction, gemm::GemmShape, id::CommunicatorId,
};

use super::nodes::{Nodes, Work};
use crate::{
    observe::{group::Message, kernels::PATTERNS},
    python::optimizer::Optimizer,
};

/// Maximum number of distinct GEMMs, operations and communicators in all graphs together: 4 MiB. Further ones
/// are only in the sums.
const ENTRIES: usize = 48 << 10;

/// Maximum number of distinct GEMMs, and of distinct operations, of one graph.
const DISTINCT: usize = 512;

/// Maximum number of communicators of one graph.
const COMMUNICATORS: usize = 64;

/// Number of directions of copies.
const COPIES: usize = Direction::PeerToPeer as usize + 1;

static HELD: AtomicUsize = AtomicUsize::new(0);
static UNLISTED: AtomicU64 = AtomicU64::new(0);

/// Number of entries that did not fit.
pub(super) fn unlisted() -> u64 {
    UNLISTED.load(Relaxed)
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    shapes: Vec<(GemmShape, u64)>,
    operations: Vec<(Operations, u64)>,
    shares: Vec<Share>,
    pub(crate) gemms: u64,
    /// Those of `gemms` that are not in the rate of GEMMs ([`xpu_wire::gemm::Routine::is_rated`]).
    unrated: u64,
    /// A whole number, because inexact sums in the program's thread may trap there.
    pub(crate) flops: u128,
    pub(crate) collectives: u64,
    pub(crate) point_to_point: u64,
    pub(crate) bus_bytes: u64,
    pub(crate) kernels: u64,
    /// Launches of kernels with requested names, by pattern.
    pub(crate) named: [u64; PATTERNS],
    /// Number and bytes of copies by direction, and of fills.
    pub(crate) copies: [(u64, u64); COPIES],
    pub(crate) sets: (u64, u64),
    /// Nodes with bodies that run as often as the GPU decides. What is in the bodies is not among the
    /// contents.
    pub(crate) conditionals: u64,
    /// Further nodes that were not captured, but added one by one: host functions, allocations.
    pub(crate) others: u64,
    /// All kernel nodes, also those of libraries.
    pub(super) kernel_nodes: u64,
    /// The graph's own nodes that were captured.
    pub(super) captured: Nodes,
    /// Whether the driver did not report the nodes.
    pub(super) has_unknown_nodes: bool,
    /// The optimizer that stepped during the graph capture, and its number of steps: every launch repeats
    /// them.
    optimizer: Option<(Optimizer, u32)>,
}

/// Equal NCCL operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operations {
    pub(crate) communicator: CommunicatorId,
    pub(crate) operation: Operation,
    pub(crate) datatype: DataType,
    pub(crate) bytes: u64,
}

/// One communicator's part of a graph: the increase of its numbers at every launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) communicator: u16,
    pub(super) id: CommunicatorId,
    pub(super) collectives: u64,
    pub(super) point_to_point: u64,
    /// The last collective and its bytes.
    pub(super) last: Option<(Operation, u64)>,
}

impl Contents {
    pub(crate) fn add_gemm(&mut self, shape: GemmShape, count: u64) {
        self.gemms += count;
        self.unrated += if shape.routine.is_rated() { 0 } else { count };
        self.flops = self.flops.saturating_add(shape.whole_flops().saturating_mul(count.into()));
        add_to(&mut self.shapes, shape, count);
    }

    /// Adds `count` messages of the same kind. Messages that were captured into a graph while observing was
    /// off get numbers but are not counted.
    pub(crate) fn add_messages(&mut self, message: &Message, id: CommunicatorId, count: u64) {
        let collective = message.operation.is_collective();
        self.add_share(Share {
            communicator: message.communicator,
            id,
            collectives: if collective { count } else { 0 },
            point_to_point: if collective { 0 } else { count },
            last: collective.then_some((message.operation, message.bytes)),
        });
        if !message.observed {
            return;
        }
        let total = if collective { &mut self.collectives } else { &mut self.point_to_point };
        *total += count;
        self.bus_bytes += message.bus_bytes * count;
        let alike = Operations {
            communicator: id,
            operation: message.operation,
            datatype: message.datatype,
            bytes: message.bytes,
        };
        add_to(&mut self.operations, alike, count);
    }

    fn add_share(&mut self, share: Share) {
        let same = |known: &&mut Share| (known.communicator, known.id) == (share.communicator, share.id);
        if let Some(known) = self.shares.iter_mut().find(same) {
            known.collectives += share.collectives;
            known.point_to_point += share.point_to_point;
            known.last = share.last.or(known.last);
        } else if self.shares.len() < COMMUNICATORS && reserve(&mut self.shares) {
            self.shares.push(share);
        }
    }

    /// Adds steps of an optimizer. If there are several optimizers, the first one counts.
    pub(crate) fn add_steps(&mut self, optimizer: &Optimizer, steps: u32) {
        match &mut self.optimizer {
            Some((known, count)) if known.is_same(optimizer) => *count = count.saturating_add(steps),
            Some(_) => {}
            None => self.optimizer = Some((optimizer.clone(), steps)),
        }
    }

    pub(super) fn optimizer(&self) -> Option<(&Optimizer, u32)> {
        self.optimizer.as_ref().map(|(optimizer, steps)| (optimizer, *steps))
    }

    /// Adds the contents of another, without its own captured nodes.
    pub(crate) fn merge(&mut self, other: &Self) {
        if let Some((optimizer, steps)) = other.optimizer() {
            self.add_steps(optimizer, steps);
        }
        other.shapes.iter().for_each(|&(shape, count)| add_to(&mut self.shapes, shape, count));
        other.operations.iter().for_each(|&(alike, count)| add_to(&mut self.operations, alike, count));
        other.shares.iter().for_each(|&share| self.add_share(share));
        self.gemms += other.gemms;
        self.unrated += other.unrated;
        self.flops = self.flops.saturating_add(other.flops);
        self.collectives += other.collectives;
        self.point_to_point += other.point_to_point;
        self.bus_bytes += other.bus_bytes;
        self.kernels += other.kernels;
        self.others += other.others;
        self.kernel_nodes += other.kernel_nodes;
        self.has_unknown_nodes |= other.has_unknown_nodes;
        self.conditionals += other.conditionals;
        self.add_work(&other.named, &other.copies, other.sets);
    }

    /// Adds nodes of a graph capture; `None` if they are unknown.
    pub(super) fn add_captured(&mut self, nodes: Option<Nodes>) {
        match nodes {
            Some(nodes) => {
                self.captured = self.captured.with(nodes);
                self.kernel_nodes += nodes.kernels;
            }
            None => self.has_unknown_nodes = true,
        }
    }

    /// Adds nodes that were added one by one. `work` is what they do, if that is known of these nodes alone.
    pub(super) fn add_nodes(&mut self, nodes: Nodes, work: Option<&Work>) {
        self.kernels += nodes.kernels;
        self.conditionals += nodes.conditionals;
        self.others += nodes.others;
        self.kernel_nodes += nodes.kernels;
        match work {
            Some(work) => {
                self.others += work.unsized_nodes;
                self.add_work(&work.named, &work.copies, work.sets);
            }
            None => self.others += nodes.copies + nodes.sets,
        }
    }

    fn add_work(&mut self, named: &[u64; PATTERNS], copies: &[(u64, u64); COPIES], sets: (u64, u64)) {
        self.named.iter_mut().zip(named).for_each(|(mine, more)| *mine = mine.saturating_add(*more));
        let mine = self.copies.iter_mut().chain([&mut self.sets]);
        for (mine, more) in mine.zip(copies.iter().chain([&sets])) {
            *mine = (mine.0.saturating_add(more.0), mine.1.saturating_add(more.1));
        }
    }

    /// Whether it contains GEMMs and nothing else, so that its time is theirs. A GEMM of several kernels
    /// counts as something else, because kernels of other libraries are not distinguished from its own.
    pub(crate) fn has_only_gemms(&self) -> bool {
        let Self { collectives, point_to_point, kernels, conditionals, others, .. } = *self;
        let copies = self.copies.iter().chain([&self.sets]).map(|&(count, _)| count).sum::<u64>();
        self.gemms > 0
            && self.unrated == 0
            && self.kernel_nodes == self.gemms
            && collectives + point_to_point + kernels + conditionals + others + copies == 0
            && !self.has_unknown_nodes
    }

    pub(crate) fn shapes(&self) -> &[(GemmShape, u64)] {
        &self.shapes
    }

    pub(crate) fn operations(&self) -> &[(Operations, u64)] {
        &self.operations
    }

    pub(super) fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// A hash of its contents without identities: equal on all ranks that do the same.
    pub(super) fn signature(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.shapes.hash(&mut hasher);
        for (alike, count) in &self.operations {
            (alike.operation as u8, alike.bytes, count).hash(&mut hasher);
        }
        (self.collectives, self.point_to_point, self.kernels, self.conditionals, self.others)
            .hash(&mut hasher);
        (self.copies, self.sets).hash(&mut hasher);
        hasher.finish() as u32
    }

    fn entries(&self) -> usize {
        self.shapes.len() + self.operations.len() + self.shares.len()
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        HELD.fetch_sub(self.entries(), Relaxed);
    }
}

fn add_to<K: PartialEq>(list: &mut Vec<(K, u64)>, key: K, count: u64) {
    // An entry most often repeats the last one.
    if let Some((_, known)) = list.iter_mut().rev().find(|(known, _)| *known == key) {
        *known += count;
    } else if list.len() < DISTINCT && reserve(list) {
        list.push((key, count));
    } else {
        UNLISTED.fetch_add(1, Relaxed);
    }
}

/// Reserves one more entry.
fn reserve<T>(list: &mut Vec<T>) -> bool {
    let fits = HELD.load(Relaxed) < ENTRIES && list.try_reserve(1).is_ok();
    if fits {
        HELD.fetch_add(1, Relaxed);
    }
    fits
}

#[cfg(test)]
mod tests {
    use xpu_wire::gemm::{ComputeType, Routine};

    use super::*;

    fn shape(m: u64) -> GemmShape {
        let (datatype, compute) = (DataType::Float32, ComputeType::Float32);
        GemmShape {
            m,
            n: 1,
            k: 1,
            batch: 1,
            datatype,
            compute,
            transposed: (false, false),
            routine: Routine::Gemm,
        }
    }

    #[test]
    fn equal_contents_are_kept_once_and_merging_adds() {
        let (mut first, mut second) = (Contents::default(), Contents::default());
        (0..6).for_each(|n| first.add_gemm(shape(n % 2), 1));
        second.add_gemm(shape(1), 4);
        second.kernels = 3;
        first.merge(&second);
        assert_eq!(first.shapes(), [(shape(0), 3), (shape(1), 7)]);
        assert_eq!((first.gemms, first.kernels, first.flops), (10, 3, 14));
    }

    #[test]
    fn signatures_distinguish_graphs() {
        let of = |sides: &[u64], kernels| {
            let mut contents = Contents::default();
            contents.kernels = kernels;
            for &m in sides {
                contents.add_gemm(shape(m), 1);
            }
            contents.signature()
        };
        assert_eq!(of(&[1, 2], 3), of(&[1, 2], 3));
        assert!(of(&[1, 2], 3) != of(&[1, 2], 4) && of(&[1, 2], 3) != of(&[1, 4], 3));
    }

    #[test]
    fn contents_beyond_the_limit_are_still_in_the_sums() {
        let mut contents = Contents::default();
        let before = unlisted();
        (0..DISTINCT as u64 + 5).for_each(|m| contents.add_gemm(shape(m), 1));
        assert_eq!((contents.shapes().len(), contents.gemms), (DISTINCT, DISTINCT as u64 + 5));
        assert!(unlisted() >= before + 5);
    }
}
