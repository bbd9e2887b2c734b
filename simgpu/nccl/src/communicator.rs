//! One rank's side of a communicator.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use simgpu_engine::driver::driver;
use simgpu_engine::handles::Handles;
use simgpu_engine::settings;

use crate::call::Failure;
use crate::greeting::Greeting;
use crate::key::Key;
use crate::profiler;
use crate::rendezvous::Rendezvous;

/// The object that a handle means: a communicator, or one that is still being made.
#[derive(Debug)]
pub(crate) struct Member {
    /// Whether calls return before their work is done.
    pub non_blocking: bool,
    pub aborted: Arc<AtomicBool>,
    made: OnceLock<Result<Arc<Communicator>, Failure>>,
    /// The number of children that a thread of the library is making from it.
    expecting: AtomicU32,
}

/// The identity of a rank in a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub key: Key,
    pub greeting: Greeting,
    pub rank: u32,
    pub device: c_int,
}

#[derive(Debug)]
pub(crate) struct Communicator {
    pub key: Key,
    pub greeting: Greeting,
    pub rank: u32,
    pub device: c_int,
    pub rendezvous: Rendezvous,
    pub aborted: Arc<AtomicBool>,
    pub profiler: profiler::Context,
    collectives: AtomicU64,
    children: AtomicU32,
    shrunk: AtomicU32,
    /// The number of transfers so far with each peer.
    sent: Box<[AtomicU64]>,
    received: Box<[AtomicU64]>,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

pub(crate) static COMMUNICATORS: Handles<Member> = Handles::new(0xcc10_0000);

/// Takes a communicator's memory on its device, or frees it.
#[allow(clippy::cast_possible_truncation, reason = "some thousand MiB")]
fn hold(device: Option<c_int>, times: i64) {
    let bytes = (settings::NCCL_MIB.read() as i64) << 20;
    if let Some((device, driver)) = device.zip(driver()).filter(|_| bytes > 0) {
        // SAFETY: found by `Driver::find`; it takes any numbers.
        unsafe { (driver.hold)(device, times * bytes) };
    }
}

impl Member {
    pub(crate) fn new(non_blocking: bool) -> Arc<Self> {
        let aborted = Arc::new(AtomicBool::new(false));
        Arc::new(Self { non_blocking, aborted, made: OnceLock::new(), expecting: AtomicU32::new(0) })
    }

    pub(crate) fn of(handle: usize) -> Result<Arc<Self>, Failure> {
        COMMUNICATORS.get(handle).ok_or(Failure::InvalidArgument)
    }

    pub(crate) fn is_made(&self, outcome: Result<Arc<Communicator>, Failure>) {
        let made = outcome.as_ref().ok().map(|made| made.device);
        // The result is set once, by the first that sets it.
        if self.made.set(outcome).is_ok() {
            hold(made, 1);
        }
    }

    /// The communicator is destroyed and frees its memory.
    pub(crate) fn is_gone(&self) {
        if let Some(Ok(made)) = self.made.get() {
            made.profiler.end();
            hold(Some(made.device), -1);
        }
    }

    pub(crate) fn expects(&self) {
        self.expecting.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn has_given_birth(&self) {
        self.expecting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits for children in creation. Call it only after an abort, when none of them waits for other ranks.
    pub(crate) fn wait_for_births(&self) {
        while self.expecting.load(Ordering::Acquire) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The state that `ncclCommGetAsyncError` returns.
    pub(crate) fn state(&self) -> Result<Arc<Communicator>, Failure> {
        match self.made.get() {
            Some(Err(failure)) => Err(*failure),
            Some(Ok(made)) if self.expecting.load(Ordering::Acquire) == 0 => Ok(Arc::clone(made)),
            _ => Err(Failure::InProgress),
        }
    }

    /// A communicator that is ready. As in NCCL, using one earlier is an error.
    pub(crate) fn ready(&self) -> Result<Arc<Communicator>, Failure> {
        self.state().map_err(|failure| match failure {
            Failure::InProgress => Failure::InvalidArgument,
            other => other,
        })
    }
}

impl Communicator {
    pub(crate) fn new(identity: Identity, aborted: Arc<AtomicBool>, rendezvous: Rendezvous) -> Self {
        let counters = || (0..rendezvous.ranks).map(|_| AtomicU64::new(0)).collect();
        let Identity { key, greeting, rank, device } = identity;
        let profiler = profiler::Context::default();
        profiler.begin(greeting.hash, rendezvous.ranks, rank);
        Self {
            key,
            greeting,
            rank,
            device,
            aborted,
            profiler,
            collectives: AtomicU64::new(0),
            children: AtomicU32::new(0),
            shrunk: AtomicU32::new(0),
            sent: counters(),
            received: counters(),
            rendezvous,
        }
    }

    pub(crate) fn of(handle: usize) -> Result<Arc<Self>, Failure> {
        Member::of(handle)?.ready()
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.rendezvous.ranks
    }

    /// Checks a rank's number in this communicator.
    pub(crate) fn member(&self, rank: c_int) -> Result<u32, Failure> {
        u32::try_from(rank).ok().filter(|rank| *rank < self.ranks()).ok_or(Failure::InvalidArgument)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    pub(crate) fn next_collective(&self) -> u64 {
        self.collectives.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of the next split or grown communicator; the first is 1.
    pub(crate) fn next_child(&self) -> u32 {
        self.children.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number that the next child will get.
    pub(crate) fn peek_next_child(&self) -> u32 {
        self.children.load(Ordering::Relaxed) + 1
    }

    pub(crate) fn next_shrunk(&self) -> u32 {
        self.shrunk.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn next_transfer(&self, direction: Direction, peer: u32) -> u64 {
        let counters = match direction {
            Direction::Send => &self.sent,
            Direction::Receive => &self.received,
        };
        counters[peer as usize].fetch_add(1, Ordering::Relaxed)
    }
}
