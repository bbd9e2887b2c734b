//! A call that waited for the GPU proves that collectives enqueued before it are done.

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::id::CommunicatorId;

use crate::{
    gpu::runtime::{self, DEFAULT_STREAMS, PER_THREAD},
    observe::{
        communicator::{Communicators, Slot},
        observer::Observer,
    },
};

/// Maximum number of communicators about which one call proves something. A rank of a job with five
/// dimensions of parallelism has about ten.
const MOST: usize = 16;

/// The collectives that were enqueued before the call, by slot, with the communicator that the slot had then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    claims: [(u16, u64, u64); MOST],
    count: usize,
}

impl Proof {
    const NONE: Self = Self { claims: [(0, 0, 0); MOST], count: 0 };

    pub(crate) fn of_stream(communicators: &Communicators, stream: cudaStream_t) -> Self {
        let handle = stream.addr() as u64;
        let done = |slot: &Slot| {
            slot.progress.proven_by(|last| last == handle).or_else(|| slot.progress.proven_by_waiting(handle))
        };
        if stream.addr() > DEFAULT_STREAMS {
            return Self::of(communicators, done);
        }
        // The handle of the default stream is the same on all devices. Each thread has a stream of its own
        // behind `cudaStreamPerThread`, so one thread's wait proves nothing about another's work.
        let is_known = stream.addr() != PER_THREAD && communicators.open().any(|slot| done(slot).is_some());
        if !is_known || !runtime::error_free() {
            return Self::NONE;
        }
        let Some(device) = runtime::current_device() else { return Self::NONE };
        Self::of(communicators, |slot| done(slot).filter(|_| slot.device() == Some(device)))
    }

    pub(crate) fn of_device(communicators: &Communicators) -> Self {
        // The program's unread error must not be mixed with the hook's.
        if communicators.open_slots().next().is_none() || !runtime::error_free() {
            return Self::NONE;
        }
        let Some(device) = runtime::current_device() else { return Self::NONE };
        Self::of(communicators, |slot| slot.progress.proven_by(|_| slot.device() == Some(device)))
    }

    fn of(communicators: &Communicators, proven: impl Fn(&Slot) -> Option<u64>) -> Self {
        let mut proof = Self::NONE;
        let open = communicators.open_slots();
        let all = open.filter_map(|(index, slot)| Some((index, slot.id().0, proven(slot)?)));
        for (claim, proven) in proof.claims.iter_mut().zip(all) {
            *claim = proven;
            proof.count += 1;
        }
        proof
    }

    /// Marks the proven collectives as done in the ledger. Called if the call has succeeded.
    pub(crate) fn holds(&self, observer: &Observer) {
        for &(index, id, enqueued) in &self.claims[..self.count] {
            let slot = observer.communicators.slot(index);
            // The communicator may have been closed meanwhile, and another may have its line.
            if let (Some(line), Some(last)) = (slot.line(observer.ledger()), enqueued.checked_sub(1)) {
                line.complete(CommunicatorId(id), last);
            }
        }
    }
}
