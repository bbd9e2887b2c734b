//! How far a communicator is, and where it got there.

use super::sync::{Acquire, AtomicU64, Relaxed, Release};

/// NCCL lets one thread at a time use a communicator; graphs that hold its operations may be launched by others meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Collectives and sends or receives so far.
    collectives: AtomicU64,
    point_to_point: AtomicU64,
    /// Where its last operation was put, one more than it is; 0 for not known.
    stream: AtomicU64,
}

impl Progress {
    pub(crate) fn begin(&self) {
        for word in [&self.collectives, &self.point_to_point, &self.stream] {
            word.store(0, Relaxed);
        }
    }

    /// So many collectives, and sends or receives, were put on this stream; `None` if they will be by a thread of NCCL's own,
    /// nobody knows when. Gives how many collectives there were before.
    pub(crate) fn advance(&self, stream: Option<u64>, collectives: u64, point_to_point: u64) -> u64 {
        self.stream.store(stream.map_or(0, |stream| stream + 1), Relaxed);
        if point_to_point > 0 {
            self.point_to_point.fetch_add(point_to_point, Relaxed);
        }
        // Whoever counts these also sees where they, or later ones, were put.
        self.collectives.fetch_add(collectives, Release)
    }

    /// The number the next collective, or the next send or receive, will have.
    pub(crate) fn next(&self, collective: bool) -> u64 {
        let counter = if collective { &self.collectives } else { &self.point_to_point };
        counter.load(Acquire)
    }

    /// Collectives that are done when what is now on the stream of the last one is done, if that is known and `is` it: NCCL
    /// runs the operations of one communicator one after another, whatever streams they were given.
    pub(crate) fn proven_by(&self, is: impl FnOnce(u64) -> bool) -> Option<u64> {
        // In this order: what comes in between may be on another stream, and is not among them.
        let collectives = self.collectives.load(Acquire);
        let stream = self.stream.load(Relaxed).checked_sub(1)?;
        is(stream).then_some(collectives)
    }

    /// The stream is to be destroyed: the next one may bear its handle.
    pub(crate) fn stream_ends(&self, stream: u64) {
        let _ = self.stream.compare_exchange(stream + 1, 0, Relaxed, Relaxed);
    }
}
