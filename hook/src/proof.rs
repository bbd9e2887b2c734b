//! What a call that waited for the GPU proves: collectives enqueued before it are done.

use cudarc::runtime::sys::cudaStream_t;
use xpu_shared::id::CommunicatorId;

use crate::{
    communicator::{Communicators, Slot},
    observer::Observer,
    runtime,
};

/// Communicators one call can prove something about; a rank of a job that is parallel in five ways has about ten.
const MOST: usize = 16;

/// The default streams' handles name different streams on different devices and threads.
const DEFAULT_STREAMS: usize = 2;

/// Collectives enqueued before the call, by slot and by what the slot stood for then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    claims: [(u16, u64, u64); MOST],
    count: usize,
}

impl Proof {
    /// NCCL runs the operations of one communicator one after another, whatever streams they were given: when the last
    /// stream is done, all of them are.
    pub(crate) fn of_stream(communicators: &Communicators, stream: cudaStream_t) -> Self {
        if stream.addr() <= DEFAULT_STREAMS {
            return Self::of(communicators, |_| false);
        }
        Self::of(communicators, |slot| slot.last_stream() == Some(stream.addr()))
    }

    pub(crate) fn of_device(communicators: &Communicators) -> Self {
        if communicators.open_slots().next().is_none() {
            return Self::of(communicators, |_| false);
        }
        let device = runtime::current_device();
        Self::of(communicators, |slot| {
            slot.last_stream().is_some() && device.is_some() && slot.device() == device
        })
    }

    fn of(communicators: &Communicators, includes: impl Fn(&Slot) -> bool) -> Self {
        let mut proof = Self { claims: [(0, 0, 0); MOST], count: 0 };
        let open = communicators.open_slots().filter(|(_, slot)| includes(slot));
        for (claim, (index, slot)) in proof.claims.iter_mut().zip(open) {
            *claim = (index, slot.id().0, slot.next(true));
            proof.count += 1;
        }
        proof
    }

    /// The call has succeeded.
    pub(crate) fn holds(&self, observer: &Observer) {
        for &(index, id, enqueued) in &self.claims[..self.count] {
            let slot = observer.communicators.slot(index);
            // It may have been closed meanwhile, and its line be another's.
            if let (Some(line), Some(last)) = (slot.line(observer.ledger()), enqueued.checked_sub(1)) {
                line.complete(CommunicatorId(id), last);
            }
        }
    }
}
