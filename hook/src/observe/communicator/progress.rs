//! A communicator's progress, and its stream.

use xpu_wire::ledger::Writers;

use super::sync::{Acquire, AtomicU64, Relaxed, Release};

/// Counts a communicator's operations. NCCL lets one thread at a time use a communicator, but other threads
/// may launch graphs with its operations meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Number of collectives, and number of sends and receives, so far.
    collectives: AtomicU64,
    point_to_point: AtomicU64,
    /// The stream of its last operation, plus one; 0 if unknown.
    stream: AtomicU64,
    /// The last event recorded on that stream since the last operation, and the stream that waits for the
    /// event, plus one; 0 if there is none.
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

    /// Counts collectives, and sends or receives, that were enqueued on this stream; `None` if a thread of
    /// NCCL will enqueue them at an unknown time. Returns the number of earlier collectives.
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
        // A reader that sees these counts also sees their stream, or the stream of later operations.
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

    /// The number that the next collective, or the next send or receive, will have.
    pub(crate) fn next(&self, collective: bool) -> u64 {
        let counter = if collective { &self.collectives } else { &self.point_to_point };
        counter.load(Acquire)
    }

    /// Number of collectives that are done once the last one's stream has no work left, if that stream is
    /// known and satisfies `is`. NCCL runs the operations of one communicator one after another, whatever
    /// their streams.
    pub(crate) fn proven_by(&self, is: impl FnOnce(u64) -> bool) -> Option<u64> {
        // The count is read before the stream: collectives launched in between may be on another stream, and
        // must not be included.
        let collectives = self.collectives.load(Acquire);
        let stream = self.stream.load(Relaxed).checked_sub(1)?;
        is(stream).then_some(collectives)
    }

    /// Notes that an event was recorded on this stream. If this is the operations' stream, the event is
    /// behind all of them.
    pub(crate) fn recorded(&self, event: u64, stream: u64) {
        if self.stream.load(Relaxed) == stream + 1 {
            self.ended_by.store(event, Relaxed);
        }
    }

    /// Notes that the stream waits for the event, and so for all operations that the event is behind.
    pub(crate) fn awaited(&self, event: u64, stream: u64) {
        if self.ended_by.load(Relaxed) == event {
            self.awaited_by.store(stream + 1, Relaxed);
        }
    }

    /// Number of collectives that are done once this stream has no work left, because it waits for an event
    /// behind them.
    pub(crate) fn proven_by_waiting(&self, stream: u64) -> Option<u64> {
        let collectives = self.collectives.load(Acquire);
        (self.awaited_by.load(Relaxed) == stream + 1).then_some(collectives)
    }

    /// Forgets a stream that is about to be destroyed; a later stream may have the same handle.
    pub(crate) fn stream_ends(&self, stream: u64) {
        for word in [&self.stream, &self.awaited_by] {
            let _ = word.compare_exchange(stream + 1, 0, Relaxed, Relaxed);
        }
    }
}
