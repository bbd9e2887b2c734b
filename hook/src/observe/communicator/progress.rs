//! A communicator's progress, and its stream.

use xpu_wire::ledger::Writers;

use super::sync::{Acquire, AtomicU64, Relaxed, Release};

/// NCCL lets one thread at a time use a communicator; graphs that hold its operations may be launched by
/// others meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Collectives and sends or receives so far.
    collectives: AtomicU64,
    point_to_point: AtomicU64,
    /// The stream of its last operation, plus one; 0 if unknown.
    stream: AtomicU64,
}

impl Progress {
    pub(crate) fn begin(&self) {
        for word in [&self.collectives, &self.point_to_point, &self.stream] {
            word.store(0, Relaxed);
        }
    }

    /// Collectives, and sends or receives, were put on this stream; `None` if a thread of NCCL will do so, at
    /// an unknown time. Returns the number of collectives before.
    pub(crate) fn advance(
        &self,
        writers: Writers,
        stream: Option<u64>,
        collectives: u64,
        point_to_point: u64,
    ) -> u64 {
        self.stream.store(stream.map_or(0, |stream| stream + 1), Relaxed);
        // A reader that sees these counts also sees their stream, or that of later ones.
        match writers {
            Writers::One => {
                let before = self.point_to_point.load(Relaxed);
                self.point_to_point.store(before + point_to_point, Relaxed);
                let before = self.collectives.load(Relaxed);
                self.collectives.store(before + collectives, Release);
                before
            }
            Writers::Many => {
                if point_to_point > 0 {
                    self.point_to_point.fetch_add(point_to_point, Relaxed);
                }
                self.collectives.fetch_add(collectives, Release)
            }
        }
    }

    /// The number the next collective, or the next send or receive, will have.
    pub(crate) fn next(&self, collective: bool) -> u64 {
        let counter = if collective { &self.collectives } else { &self.point_to_point };
        counter.load(Acquire)
    }

    /// Collectives that are done when the stream of the last one has no work left, if that stream is known
    /// and satisfies `is`: NCCL runs the operations of one communicator one after another, whatever their
    /// streams.
    pub(crate) fn proven_by(&self, is: impl FnOnce(u64) -> bool) -> Option<u64> {
        // In this order, because collectives that come in between may be on another stream and are not
        // included.
        let collectives = self.collectives.load(Acquire);
        let stream = self.stream.load(Relaxed).checked_sub(1)?;
        is(stream).then_some(collectives)
    }

    /// The stream is about to be destroyed: the next one may have its handle.
    pub(crate) fn stream_ends(&self, stream: u64) {
        let _ = self.stream.compare_exchange(stream + 1, 0, Relaxed, Relaxed);
    }
}
