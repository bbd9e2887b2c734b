//! The nodes of a graph, by kind, and what they do. The driver reports them, however they were added.

use std::ffi::c_int;

use cudarc::{driver::sys::CUgraphNode, runtime::sys::cudaGraph_t};
use xpu_wire::frame::Direction;

use crate::{
    interpose::driver,
    observe::kernels::{self, PATTERNS},
};

/// Maximum number of nodes that are read of a graph. Reading this many takes about a millisecond, and
/// instantiating them some hundred times as long.
const MOST: usize = 1 << 16;

/// Values of `CUgraphNodeType`.
const KERNEL: c_int = 0;
const COPY: c_int = 1;
const SET: c_int = 2;
const CONDITIONAL: c_int = 13;
/// Nodes without work of their own: child graphs, whose contents are known apart, empty nodes, and waiting
/// for and recording of events.
const IDLE: [c_int; 4] = [4, 5, 6, 7];

/// Values of `CUmemorytype`; with any other, the driver derives the place from the address.
const ON_HOST: c_int = 1;
const ON_DEVICE: c_int = 2;
const ARRAY: c_int = 3;

/// Nodes of a graph, without those of its child graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(super) kernels: u64,
    pub(super) copies: u64,
    pub(super) sets: u64,
    /// Nodes whose bodies run as often as the GPU decides.
    pub(super) conditionals: u64,
    /// Host functions, allocations.
    pub(super) others: u64,
}

/// What the nodes of a graph do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) named: [u64; PATTERNS],
    pub(super) copies: [(u64, u64); Direction::PeerToPeer as usize + 1],
    pub(super) sets: (u64, u64),
    /// Copies and fills whose sizes the driver did not report.
    pub(super) unsized_nodes: u64,
}

impl Nodes {
    /// `None` if the driver does not report them.
    pub(super) fn of(graph: cudaGraph_t) -> Option<Self> {
        let mut found = Self::default();
        each(graph, |_, kind| found.add(kind))?;
        Some(found)
    }

    /// The nodes, and what they do.
    pub(super) fn with_work(graph: cudaGraph_t) -> Option<(Self, Work)> {
        let (mut found, mut work) = (Self::default(), Work::default());
        each(graph, |node, kind| {
            found.add(kind);
            work.add(node, kind);
        })?;
        Some((found, work))
    }

    fn add(&mut self, kind: c_int) {
        match kind {
            KERNEL => self.kernels += 1,
            COPY => self.copies += 1,
            SET => self.sets += 1,
            CONDITIONAL => self.conditionals += 1,
            kind if IDLE.contains(&kind) => {}
            _ => self.others += 1,
        }
    }

    pub(super) fn without(self, other: Self) -> Self {
        self.combined(other, u64::saturating_sub)
    }

    pub(super) fn with(self, other: Self) -> Self {
        self.combined(other, u64::saturating_add)
    }

    fn combined(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            kernels: of(self.kernels, other.kernels),
            copies: of(self.copies, other.copies),
            sets: of(self.sets, other.sets),
            conditionals: of(self.conditionals, other.conditionals),
            others: of(self.others, other.others),
        }
    }
}

impl Work {
    fn add(&mut self, node: CUgraphNode, kind: c_int) {
        match kind {
            KERNEL if kernels::patterns() > 0 => {
                let pattern = driver::graph_kernel(node).and_then(kernels::pattern_of);
                if let Some(count) = pattern.and_then(|pattern| self.named.get_mut(usize::from(pattern))) {
                    *count += 1;
                }
            }
            COPY => match copied(node) {
                Some((direction, bytes)) => add_to(&mut self.copies[direction as usize], bytes),
                None => self.unsized_nodes += 1,
            },
            SET => match filled(node) {
                Some(bytes) => add_to(&mut self.sets, bytes),
                None => self.unsized_nodes += 1,
            },
            _ => {}
        }
    }
}

fn add_to(total: &mut (u64, u64), bytes: u64) {
    *total = (total.0 + 1, total.1.saturating_add(bytes));
}

/// Calls `each` with each node and its type.
fn each(graph: cudaGraph_t, mut each: impl FnMut(CUgraphNode, c_int)) -> Option<()> {
    let mut count = 0;
    driver::graph_nodes(graph.cast(), &mut [], &mut count)?;
    let mut nodes = Vec::new();
    nodes.try_reserve_exact(count).ok().filter(|()| count <= MOST)?;
    nodes.resize(count, std::ptr::null_mut());
    driver::graph_nodes(graph.cast(), &mut nodes, &mut count)?;
    for &node in nodes.iter().take(count) {
        each(node, driver::graph_node_type(node)?);
    }
    Some(())
}

/// The direction and the bytes of a copy.
fn copied(node: CUgraphNode) -> Option<(Direction, u64)> {
    let copy = driver::graph_copy(node)?;
    let [width, height, depth] = copy.sides;
    let on_host = |kind| match kind {
        ON_HOST => Some(true),
        ON_DEVICE | ARRAY => Some(false),
        _ => None,
    };
    let direction = match (on_host(copy.from.kind), on_host(copy.to.kind)) {
        (Some(true), Some(true)) => Direction::HostToHost,
        (Some(true), Some(false)) => Direction::HostToDevice,
        (Some(false), Some(true)) => Direction::DeviceToHost,
        (Some(false), Some(false)) => Direction::DeviceToDevice,
        _ => Direction::ByAddress,
    };
    let bytes = (width as u64).saturating_mul(height.max(1) as u64).saturating_mul(depth.max(1) as u64);
    Some((direction, bytes))
}

/// The bytes of a fill.
fn filled(node: CUgraphNode) -> Option<u64> {
    let fill = driver::graph_fill(node)?;
    let elements = (fill.width as u64).saturating_mul(fill.height.max(1) as u64);
    Some(elements.saturating_mul(fill.elementSize.into()))
}
