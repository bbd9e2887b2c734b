//! The nodes of a graph, by kind. The driver reports them, however they were added.

use std::ffi::c_int;

use cudarc::runtime::sys::cudaGraph_t;

use crate::interpose::driver;

/// Maximum number of nodes that are read of a graph. Reading this many takes about a millisecond, and instantiating
/// them some hundred times as long.
const MOST: usize = 1 << 16;

/// `CU_GRAPH_NODE_TYPE_KERNEL`, and the types of nodes without work of their own: child graphs, whose contents are
/// known apart, empty nodes, and waiting for and recording of events.
const KERNEL: c_int = 0;
const IDLE: [c_int; 4] = [4, 5, 6, 7];

/// Nodes of a graph, without those of its child graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(super) kernels: u64,
    /// Copies, fills, host functions, allocations, conditional nodes.
    pub(super) others: u64,
}

impl Nodes {
    /// `None` if the driver does not report them.
    pub(super) fn of(graph: cudaGraph_t) -> Option<Self> {
        let mut count = 0;
        driver::graph_nodes(graph.cast(), &mut [], &mut count)?;
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(count).ok().filter(|()| count <= MOST)?;
        nodes.resize(count, std::ptr::null_mut());
        driver::graph_nodes(graph.cast(), &mut nodes, &mut count)?;
        let mut found = Self::default();
        for &node in nodes.iter().take(count) {
            match driver::graph_node_type(node)? {
                KERNEL => found.kernels += 1,
                kind if IDLE.contains(&kind) => {}
                _ => found.others += 1,
            }
        }
        Some(found)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self {
            kernels: self.kernels.saturating_sub(other.kernels),
            others: self.others.saturating_sub(other.others),
        }
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self { kernels: self.kernels + other.kernels, others: self.others + other.others }
    }
}
