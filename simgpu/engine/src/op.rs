//! The operations of a stream.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::event::Mark;
use crate::trace::Task;

/// Work in the form that a graph keeps and replays.
#[derive(Clone, Debug)]
pub enum Node {
    Work(Duration, Task),
    Meet(Arc<Collective>),
}

impl Node {
    #[must_use]
    pub fn task(&self) -> Task {
        match self {
            Self::Work(_, task) => *task,
            Self::Meet(collective) => Task::Kernel(collective.0.name.addr()),
        }
    }
}

/// Work in the form that a stream queues.
#[derive(Debug)]
pub enum Op {
    Work(Duration),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
    Meet(Launched),
}

impl From<Node> for Op {
    fn from(node: Node) -> Self {
        match node {
            Node::Work(duration, _) => Self::Work(duration),
            Node::Meet(collective) => Self::Meet(collective.launch()),
        }
    }
}

impl Op {
    /// When the operation ends if it may start at `start`. Blocks if that depends on another rank or stream.
    #[must_use]
    pub fn run(self, start: Moment) -> Moment {
        match self {
            Self::Work(duration) => start.after(duration),
            Self::Record(mark) => {
                mark.resolve(start);
                start
            }
            Self::Wait(mark) => start.max(mark.wait_resolved()),
            Self::Meet(launched) => launched.resolve(start),
        }
    }

    /// Whether it takes time on the device.
    #[must_use]
    pub fn is_work(&self) -> bool {
        matches!(self, Self::Work(_) | Self::Meet(_))
    }

    /// Whether [`Op::run`] would return without blocking.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Work(_) | Self::Record(_) => true,
            Self::Wait(mark) => mark.resolved().is_some(),
            Self::Meet(_) => false,
        }
    }
}

/// An operation of `libnccl` that waits for other ranks. The struct and its five members are part of the
/// private C interface between the stand-ins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollectiveCalls {
    pub context: *mut c_void,
    /// The name of its kernel: a C string that is never freed.
    pub name: *const c_char,
    /// Called on the launching thread, once per launch. Takes the operation's place in the order of its
    /// communicator. The result is passed to exactly one `resolve`.
    pub launch: unsafe extern "C" fn(context: *mut c_void) -> *mut c_void,
    /// Called on the stream's thread with the moment (ns) at which the operation may start. Returns when it
    /// ends.
    pub resolve: unsafe extern "C" fn(context: *mut c_void, launched: *mut c_void, start: u64) -> u64,
    /// Called once, as the last call.
    pub release: unsafe extern "C" fn(context: *mut c_void),
}

#[derive(Debug)]
pub struct Collective(CollectiveCalls);

// SAFETY: the maker of the calls promises (`Collective::new`) that they may come from any thread.
unsafe impl Send for Collective {}
// SAFETY: as above; `launch` may overlap with `resolve` of an earlier launch, and the maker promises that too.
unsafe impl Sync for Collective {}

impl Collective {
    /// # Safety
    /// The calls must be valid from any thread, also at the same time, until `release` has been called.
    #[must_use]
    pub unsafe fn new(calls: CollectiveCalls) -> Self {
        Self(calls)
    }

    fn launch(self: Arc<Self>) -> Launched {
        // SAFETY: the maker's promise in `new`; `release` comes only from `drop`.
        let launched = unsafe { (self.0.launch)(self.0.context) };
        Launched { collective: self, launched }
    }
}

impl Drop for Collective {
    fn drop(&mut self) {
        // SAFETY: the maker's promise in `new`; this is the last call, because no other reference to `self`
        // is left.
        unsafe { (self.0.release)(self.0.context) };
    }
}

/// A launched collective: it has its place in the order, and waits for its turn on a stream.
#[derive(Debug)]
pub struct Launched {
    collective: Arc<Collective>,
    launched: *mut c_void,
}

// SAFETY: `launched` is only passed back to the maker, who promised (`Collective::new`) that any thread may
// do so.
unsafe impl Send for Launched {}

impl Launched {
    fn resolve(self, start: Moment) -> Moment {
        let calls = self.collective.0;
        // SAFETY: the maker's promise in `Collective::new`; `self` is consumed, so this launch resolves once.
        Moment::from_ns(unsafe { (calls.resolve)(calls.context, self.launched, start.ns()) })
    }
}
