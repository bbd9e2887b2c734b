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
    /// The last event recorded there since, and the stream that waits for it, plus one; 0 if there is none.
    ended_by: AtomicU64,
    awaited_by: AtomicU64,
}

impl Progress {
    pub(crate) fn begin(&self) {
        let words = [&self.collectives, &self.point_to_point, &self.stream, &self.ended_by, &self.awaited_by];
        for word in words {
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
        self.ended_by.store(0, Relaxed);
        self.awaited_by.store(0, Relaxed);
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

    /// An event was recorded on this stream: behind all of its operations, if it is their stream.
    pub(crate) fn recorded(&self, event: u64, stream: u64) {
        if self.stream.load(Relaxed) == stream + 1 {
            self.ended_by.store(event, Relaxed);
        }
    }

    /// The stream waits for the event, and so for all operations if the event is behind them.
    pub(crate) fn awaited(&self, event: u64, stream: u64) {
        if self.ended_by.load(Relaxed) == event {
            self.awaited_by.store(stream + 1, Relaxed);
        }
    }

    /// Collectives that are done when this stream has no work left, because it waits for an event behind
    /// them.
    pub(crate) fn proven_by_waiting(&self, stream: u64) -> Option<u64> {
        let collectives = self.collectives.load(Acquire);
        (self.awaited_by.load(Relaxed) == stream + 1).then_some(collectives)
    }

    /// The stream is about to be destroyed: the next one may have its handle.
    pub(crate) fn stream_ends(&self, stream: u64) {
        for word in [&self.stream, &self.awaited_by] {
            let _ = word.compare_exchange(stream + 1, 0, Relaxed, Relaxed);
        }
    }
}
