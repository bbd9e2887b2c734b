//! CUDA graphs. The contents of a graph capture are kept, passed on to the graph and to the executable, and
//! counted at every launch.
//!
//! Graph captures and graphs are few and slow to create, so a lock protects them, which is held only briefly.
//! Executables are launched in the hot path, so they are found without a lock: see [`executable`].

mod contents;
mod executable;
mod launch;
mod nodes;

use std::{
    collections::HashMap,
    ffi::c_int,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use cudarc::runtime::sys::{cudaGraph_t, cudaGraphExec_t};

pub(crate) use contents::Contents;
use executable::Executables;
pub(crate) use launch::Launch;
use nodes::Nodes;

use crate::process::brief_lock::BriefLock;

/// Maximum number of graph captures in progress, and of graphs alive.
const GRAPH_CAPTURES: usize = 64;
const GRAPHS: usize = 4096;

/// The lower half of CUDA's number of a graph capture. CUDA never uses a number twice.
pub(crate) type GraphCaptureId = NonZeroU32;

#[derive(Debug)]
pub(crate) struct Graphs {
    known: BriefLock<Known>,
    executables: Executables,
    /// Number of entries lost for lack of space, or because another thread held the lock.
    lost: AtomicU64,
    /// Executables of graphs whose graph capture was not seen.
    unseen: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    graph_captures: Vec<GraphCapture>,
    graphs: HashMap<usize, Arc<Contents>>,
}

#[derive(Debug)]
struct GraphCapture {
    id: GraphCaptureId,
    contents: Contents,
    /// The graph that the graph capture adds to, and its nodes from before; 0 if it makes a new one.
    into: usize,
    before: Option<Nodes>,
}

impl Graphs {
    pub(crate) const MEMORY: usize = Executables::MEMORY;

    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            known: BriefLock::default(),
            executables: Executables::new()?,
            lost: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
        })
    }

    fn with<T>(&self, body: impl FnOnce(&mut Known) -> Option<T>) -> Option<T> {
        let done = self.known.lock().and_then(|mut known| body(&mut known));
        if done.is_none() {
            self.lost.fetch_add(1, Relaxed);
        }
        done
    }

    /// Adds to the contents of a graph capture.
    pub(crate) fn add(&self, graph_capture: GraphCaptureId, add: impl FnOnce(&mut Contents)) {
        self.with(|known| {
            add(&mut known.graph_capture(graph_capture)?.contents);
            Some(())
        });
    }

    /// Like [`Self::add`], but only for a known unfinished graph capture; `false` for any other.
    pub(crate) fn add_if_known(
        &self,
        graph_capture: GraphCaptureId,
        add: impl FnOnce(&mut Contents),
    ) -> bool {
        let Some(mut known) = self.known.lock() else { return false };
        let graph_capture = known.graph_captures.iter_mut().find(|known| known.id == graph_capture);
        graph_capture.map(|graph_capture| add(&mut graph_capture.contents)).is_some()
    }

    /// Notes the begin of a graph capture that adds to an existing graph.
    pub(crate) fn graph_capture_into(&self, graph_capture: GraphCaptureId, graph: cudaGraph_t) {
        let nodes = Nodes::of(graph);
        self.with(|known| {
            let graph_capture = known.graph_capture(graph_capture)?;
            (graph_capture.into, graph_capture.before) = (graph.addr(), nodes);
            Some(())
        });
    }

    /// Gives a graph the contents of its graph capture, even if there are none.
    pub(crate) fn finish(&self, graph_capture: GraphCaptureId, graph: cudaGraph_t) {
        let nodes = Nodes::of(graph);
        self.with(|known| {
            let (mut contents, mut captured) = (Contents::default(), nodes);
            if let Some(ended) = known.take(graph_capture) {
                contents = ended.contents;
                if ended.into == graph.addr() {
                    captured = nodes.zip(ended.before).map(|(nodes, before)| nodes.without(before));
                    if let Some(before) = known.graphs.get(&graph.addr()) {
                        contents.merge(before);
                        contents.captured = before.captured;
                    }
                }
            }
            contents.add_captured(captured);
            known.insert(graph.addr(), Arc::new(contents))
        });
    }

    /// Drops a discarded graph capture.
    pub(crate) fn discard(&self, graph_capture: GraphCaptureId) {
        self.with(|known| {
            known.take(graph_capture);
            Some(())
        });
    }

    pub(crate) fn cloned(&self, graph: cudaGraph_t, clone: cudaGraph_t) {
        self.with(|known| match known.graphs.get(&graph.addr()).map(Arc::clone) {
            Some(contents) => known.insert(clone.addr(), contents),
            None => Some(()),
        });
    }

    /// Adds the contents of `child`, which was made part of `graph`.
    pub(crate) fn nested(&self, graph: cudaGraph_t, child: cudaGraph_t) {
        let nodes = self.nodes(child);
        self.with(|known| {
            let mut contents = Contents::default();
            if let Some(before) = known.graphs.get(&graph.addr()) {
                contents.merge(before);
                contents.captured = before.captured;
            }
            if let Some(child) = known.whole(child, nodes.as_ref()) {
                contents.merge(&child);
            }
            known.insert(graph.addr(), Arc::new(contents))
        });
    }

    /// Forgets a graph. Called before it is destroyed, because its handle may be reused afterwards.
    pub(crate) fn forget(&self, graph: cudaGraph_t) {
        self.with(|known| {
            known.graphs.remove(&graph.addr());
            Some(())
        });
    }

    /// Adds an executable that was made from a graph. Returns whether the hook's thread should hurry because
    /// few places are left.
    pub(crate) fn instantiated(&self, executable: cudaGraphExec_t, graph: cudaGraph_t) -> bool {
        self.executables.end(executable.addr());
        self.make(executable, graph, self.executables.next_number())
    }

    /// Gives an updated executable this graph's contents. Returns the same as [`Self::instantiated`].
    pub(crate) fn updated(&self, executable: cudaGraphExec_t, graph: cudaGraph_t) -> bool {
        let number = self.executables.end(executable.addr());
        self.make(executable, graph, number.unwrap_or_else(|| self.executables.next_number()))
    }

    /// Ends an executable. Called before it is destroyed.
    pub(crate) fn ended(&self, executable: cudaGraphExec_t) {
        self.executables.end(executable.addr());
    }

    /// The nodes of a graph, and what they do. The latter is not used of a graph with captured nodes, and
    /// takes a call of the driver for each node.
    fn nodes(&self, graph: cudaGraph_t) -> Option<(Nodes, Option<nodes::Work>)> {
        let captured = self.known.lock().map(|known| known.captured(graph)).unwrap_or_default();
        if captured != Nodes::default() {
            return Some((Nodes::of(graph)?, None));
        }
        let (nodes, work) = Nodes::with_work(graph)?;
        Some((nodes, Some(work)))
    }

    fn make(&self, executable: cudaGraphExec_t, graph: cudaGraph_t, number: u32) -> bool {
        let nodes = self.nodes(graph);
        let contents = self.known.lock().and_then(|known| known.whole(graph, nodes.as_ref()));
        if contents.is_none() {
            self.unseen.fetch_add(1, Relaxed);
        }
        let added = self.executables.add(executable.addr(), number, contents);
        if added.is_none() {
            self.lost.fetch_add(1, Relaxed);
        }
        added.unwrap_or(true)
    }

    /// Calls `each` with the launches since the last call, and each graph's number and contents. Called by
    /// the hook's thread.
    pub(crate) fn take_launches(&self, each: impl FnMut(u32, Option<c_int>, Option<&Contents>, u64)) {
        self.executables.take_launches(each);
    }

    /// Number of entries lost, and of executables without known contents.
    pub(crate) fn missed(&self) -> (u64, u64) {
        (self.lost.load(Relaxed) + contents::unlisted(), self.unseen.load(Relaxed))
    }
}

impl Known {
    /// The graph capture of this number, created if it is new. An old unfinished one is dropped if there is
    /// no space.
    fn graph_capture(&mut self, id: GraphCaptureId) -> Option<&mut GraphCapture> {
        if let Some(place) = self.graph_captures.iter().position(|graph_capture| graph_capture.id == id) {
            return self.graph_captures.get_mut(place);
        }
        if self.graph_captures.len() >= GRAPH_CAPTURES {
            self.graph_captures.remove(0);
        }
        self.graph_captures.try_reserve(1).ok()?;
        self.graph_captures.push(GraphCapture { id, contents: Contents::default(), into: 0, before: None });
        self.graph_captures.last_mut()
    }

    fn captured(&self, graph: cudaGraph_t) -> Nodes {
        self.graphs.get(&graph.addr()).map(|known| known.captured).unwrap_or_default()
    }

    /// The contents of a graph with these nodes: of its captures, and the nodes that were added one by one.
    /// `None` if neither is known.
    fn whole(
        &self,
        graph: cudaGraph_t,
        nodes: Option<&(Nodes, Option<nodes::Work>)>,
    ) -> Option<Arc<Contents>> {
        let known = self.graphs.get(&graph.addr());
        let captured = self.captured(graph);
        let added = nodes.map(|(nodes, _)| nodes.without(captured));
        // Of captured nodes and others in one graph, it is unknown which is which.
        let work = nodes.and_then(|(_, work)| work.as_ref()).filter(|_| captured == Nodes::default());
        match (known, added) {
            (None, None) => None,
            (Some(known), Some(added)) if added == Nodes::default() => Some(Arc::clone(known)),
            (Some(known), None) if known.has_unknown_nodes => Some(Arc::clone(known)),
            (known, added) => {
                let mut contents = Contents::default();
                if let Some(known) = known {
                    contents.merge(known);
                }
                match added {
                    Some(added) => contents.add_nodes(added, work),
                    None => contents.has_unknown_nodes = true,
                }
                Some(Arc::new(contents))
            }
        }
    }

    fn take(&mut self, id: GraphCaptureId) -> Option<GraphCapture> {
        let place = self.graph_captures.iter().position(|graph_capture| graph_capture.id == id)?;
        Some(self.graph_captures.swap_remove(place))
    }

    fn insert(&mut self, graph: usize, contents: Arc<Contents>) -> Option<()> {
        if self.graphs.len() >= GRAPHS && !self.graphs.contains_key(&graph) {
            return None;
        }
        self.graphs.try_reserve(1).ok()?;
        self.graphs.insert(graph, contents);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn graph(at: usize) -> cudaGraph_t {
        ptr::without_provenance_mut(at)
    }

    fn executable(at: usize) -> cudaGraphExec_t {
        ptr::without_provenance_mut(at)
    }

    fn kernels(graphs: &Graphs) -> Vec<(u32, Option<u64>, u64)> {
        let mut all = Vec::new();
        graphs.take_launches(|number, _, contents, launches| {
            all.push((number, contents.map(|contents| contents.kernels), launches));
        });
        all
    }

    fn capture_kernels(graphs: &Graphs, id: u32, count: u64, into: cudaGraph_t) {
        let id = GraphCaptureId::new(id).unwrap();
        (0..count).for_each(|_| graphs.add(id, |contents| contents.kernels += 1));
        graphs.finish(id, into);
    }

    fn launch(graphs: &Graphs, handle: usize) {
        let pinned = graphs.executables.pin(handle);
        pinned.launched(None);
        pinned.unpin();
    }

    #[test]
    fn the_contents_of_a_graph_capture_count_at_launch() {
        let graphs = Graphs::new().unwrap();
        capture_kernels(&graphs, 1, 3, graph(64));
        graphs.instantiated(executable(640), graph(64));
        graphs.forget(graph(64));
        (0..5).for_each(|_| launch(&graphs, 640));
        assert_eq!(kernels(&graphs), [(1, Some(3), 5)]);
        assert_eq!(kernels(&graphs), [], "taken once");
        assert_eq!(graphs.missed(), (0, 0));
    }

    #[test]
    fn a_destroyed_executable_is_still_counted_and_its_handle_reusable() {
        let graphs = Graphs::new().unwrap();
        capture_kernels(&graphs, 1, 3, graph(64));
        graphs.instantiated(executable(640), graph(64));
        launch(&graphs, 640);
        graphs.ended(executable(640));
        graphs.forget(graph(64));
        capture_kernels(&graphs, 2, 7, graph(64));
        graphs.instantiated(executable(640), graph(64));
        launch(&graphs, 640);
        launch(&graphs, 640);
        assert_eq!(kernels(&graphs), [(1, Some(3), 1), (2, Some(7), 2)]);
        for _ in 0..3 * executable::PLACES {
            graphs.ended(executable(640));
            graphs.instantiated(executable(640), graph(64));
            kernels(&graphs);
        }
        assert_eq!(graphs.missed().0, 0, "places are used again");
    }

    #[test]
    fn updates_clones_and_children_carry_their_contents() {
        let graphs = Graphs::new().unwrap();
        capture_kernels(&graphs, 1, 3, graph(64));
        capture_kernels(&graphs, 2, 4, graph(128));
        graphs.instantiated(executable(640), graph(64));
        launch(&graphs, 640);
        graphs.cloned(graph(128), graph(192));
        graphs.forget(graph(128));
        graphs.updated(executable(640), graph(192));
        launch(&graphs, 640);
        let mut both = kernels(&graphs);
        both.sort_unstable();
        assert_eq!(both, [(1, Some(3), 1), (1, Some(4), 1)], "its number stays");
        graphs.nested(graph(64), graph(192));
        graphs.instantiated(executable(704), graph(64));
        launch(&graphs, 704);
        assert_eq!(kernels(&graphs), [(2, Some(7), 1)]);
        graphs.graph_capture_into(GraphCaptureId::new(9).unwrap(), graph(64));
        capture_kernels(&graphs, 9, 2, graph(64));
        graphs.instantiated(executable(768), graph(64));
        launch(&graphs, 768);
        assert_eq!(kernels(&graphs), [(3, Some(9), 1)]);
    }

    #[test]
    fn a_graph_of_an_unseen_capture_is_counted_as_unknown() {
        let graphs = Graphs::new().unwrap();
        launch(&graphs, 4096);
        graphs.instantiated(executable(640), graph(64));
        launch(&graphs, 640);
        assert_eq!(kernels(&graphs), [(0, None, 1), (1, None, 1)]);
        assert_eq!(graphs.missed(), (0, 1));
        (0..executable::PLACES + 9)
            .for_each(|n| _ = graphs.instantiated(executable(8192 + n * 64), graph(64)));
        assert!(graphs.missed().0 > 0);
    }
}
