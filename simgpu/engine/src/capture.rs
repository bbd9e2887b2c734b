//! Stream captures: work is recorded instead of done, and some calls invalidate the capture.
//!
//! Some calls might synchronise the GPU during a capture. Such a call fails and invalidates the capture, also
//! from another thread, unless that thread has relaxed its capture mode
//! (`cudaThreadExchangeStreamCaptureMode`). An observer must relax the mode before it queries its events, so
//! this stand-in is strict about it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::op::Node;
use crate::process::Thread;
use crate::stream::{Kind, Stream};

/// Which threads' unsafe calls invalidate a capture. Also the mode that a thread sets for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl Mode {
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed].into_iter().find(|mode| mode.code() == code)
    }

    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Global => 0,
            Self::ThreadLocal => 1,
            Self::Relaxed => 2,
        }
    }
}

/// A capture, begun on one stream. Other streams join it by waiting for one of its events.
#[derive(Debug)]
pub struct Capture {
    /// Unique among the captures of this process.
    pub id: u64,
    pub mode: Mode,
    pub origin: u64,
    /// The graph that the capture adds to; 0 if it makes a new graph.
    pub into: usize,
    owner: Thread,
    spoilt: AtomicBool,
    nodes: Mutex<Vec<Node>>,
    members: Mutex<Vec<Arc<Stream>>>,
}

impl Capture {
    /// Records the node.
    pub fn add(&self, node: Node) {
        lock(&self.nodes).push(node);
    }

    pub fn invalidate(&self) {
        self.spoilt.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn is_invalidated(&self) -> bool {
        self.spoilt.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn owner(&self) -> Thread {
        self.owner
    }

    pub fn join(self: &Arc<Self>, stream: &Arc<Stream>) {
        stream.set_capture(Some(Arc::clone(self)));
        lock(&self.members).push(Arc::clone(stream));
    }

    fn is_invalidated_by(&self, caller: Thread, caller_mode: Mode) -> bool {
        if self.owner == caller {
            self.mode != Mode::Relaxed && caller_mode != Mode::Relaxed
        } else {
            self.mode == Mode::Global && caller_mode == Mode::Global
        }
    }
}

/// The running captures of this process.
#[derive(Debug, Default)]
pub struct Captures {
    /// The length of `active`, so that a process without captures only reads one number.
    count: AtomicUsize,
    active: Mutex<Vec<Arc<Capture>>>,
    begun: AtomicU64,
}

impl Captures {
    /// `into` is the graph that the capture adds to; 0 makes a new one.
    pub fn begin(&self, stream: &Arc<Stream>, mode: Mode, owner: Thread, into: usize) {
        let capture = Arc::new(Capture {
            id: self.begun.fetch_add(1, Ordering::Relaxed) + 1,
            into,
            mode,
            origin: stream.id,
            owner,
            spoilt: AtomicBool::new(false),
            nodes: Mutex::default(),
            members: Mutex::default(),
        });
        capture.join(stream);
        let mut active = lock(&self.active);
        active.push(capture);
        self.count.store(active.len(), Ordering::Release);
    }

    /// Ends the capture of all its streams, and returns the recorded work, or `None` if the capture is
    /// invalid.
    pub fn end(&self, capture: &Arc<Capture>) -> Option<Vec<Node>> {
        for member in lock(&capture.members).drain(..) {
            member.set_capture(None);
        }
        let mut active = lock(&self.active);
        active.retain(|other| !Arc::ptr_eq(other, capture));
        self.count.store(active.len(), Ordering::Release);
        let nodes = std::mem::take(&mut *lock(&capture.nodes));
        (!capture.is_invalidated()).then_some(nodes)
    }

    #[must_use]
    pub fn is_active(&self, capture: &Arc<Capture>) -> bool {
        lock(&self.active).iter().any(|other| Arc::ptr_eq(other, capture))
    }

    /// Whether `caller` may make a call that could synchronise. If not, this invalidates the captures that
    /// forbid it.
    #[must_use]
    pub fn allow_unsafe(&self, caller: Thread, mode: Mode) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return true;
        }
        let active = lock(&self.active);
        let minding = active.iter().filter(|capture| capture.is_invalidated_by(caller, mode));
        minding.map(|capture| capture.invalidate()).count() == 0
    }

    /// Whether a stream that synchronises with the legacy stream is being captured; `invalidates`: then invalidates
    /// the capture.
    #[must_use]
    pub fn forbid_legacy(&self, invalidates: bool) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let active = lock(&self.active);
        let blocking = |capture: &&Arc<Capture>| {
            lock(&capture.members).iter().any(|member| member.kind != Kind::NonBlocking)
        };
        let hit: Vec<_> = active.iter().filter(blocking).collect();
        if invalidates {
            for capture in &hit {
                capture.invalidate();
            }
        }
        !hit.is_empty()
    }
}
