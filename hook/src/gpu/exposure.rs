//! Tracks the streams of GEMMs, the streams of communication, and the events after communication, to detect
//! when communication blocks a stream of GEMMs.
//!
//! Overlapped communication runs on separate streams. GEMMs run at the same time, until their stream waits
//! for an event that was recorded behind the communication (`cudaStreamWaitEvent`), as DDP's `work.wait()`
//! does. The event may also be on a third stream that has waited for the communication: older FSDP has such a
//! stream for all-gathers. Communication on the stream of the GEMMs blocks them as long as it runs.

mod notes;

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};

use crate::process::switch;
pub(crate) use notes::Notes;

/// Streams, and events behind communication, that are known at once. A program has dozens of such streams and
/// hundreds of such events.
const STREAMS: usize = 256;
const EVENTS: usize = 4096;

/// The lower bits of a stream's note. The bits from [`AGE`] on are the [`Exposure::age`] in which the stream
/// waited for communication; 0 if it never did.
const MULTIPLIES: u16 = 1;
const COMMUNICATES: u16 = 2;
const AGE: u16 = 2;

#[derive(Debug)]
pub(crate) struct Exposure {
    streams: Notes,
    /// Events last recorded behind communication, each with its age.
    events: Notes,
    multiplies: AtomicBool,
    communicates: AtomicBool,
    /// Streams found to run GEMMs.
    found: AtomicU16,
}

/// The work that a stream waits for through an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Nothing related to communication.
    Other,
    Communication,
    /// Communication, awaited by a stream of GEMMs: the wait blocks them.
    CommunicationWithGemms,
}

impl Exposure {
    pub(crate) const MEMORY: usize = Notes::memory(STREAMS) + Notes::memory(EVENTS);

    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            streams: Notes::new(STREAMS)?,
            events: Notes::new(EVENTS)?,
            multiplies: AtomicBool::new(false),
            communicates: AtomicBool::new(false),
            found: AtomicU16::new(0),
        })
    }

    /// Whether both GEMMs and communication were seen. Otherwise exposure is unknown.
    pub(crate) fn is_known(&self) -> bool {
        self.multiplies.load(Relaxed) && self.communicates.load(Relaxed)
    }

    /// Whether an NCCL operation was seen. If not, the work on streams need not be tracked.
    #[inline]
    pub(crate) fn has_communication(&self) -> bool {
        self.communicates.load(Relaxed)
    }

    /// Notes that a GEMM was launched on this stream.
    pub(crate) fn multiplies_on(&self, stream: cudaStream_t) {
        let known = self.streams.of(stream.addr());
        if known & MULTIPLIES == 0 && self.streams.note(stream.addr(), known | MULTIPLIES) {
            // Earlier events on this stream may have counted as communication.
            self.found.fetch_add(1, Relaxed);
            self.multiplies.store(true, Relaxed);
        }
    }

    /// Notes that an NCCL operation was launched on this stream. Returns whether it blocks GEMMs.
    pub(crate) fn communicates_on(&self, stream: cudaStream_t) -> bool {
        let known = self.streams.of(stream.addr());
        if known & COMMUNICATES == 0 && self.streams.note(stream.addr(), known | COMMUNICATES) {
            self.communicates.store(true, Relaxed);
        }
        known & MULTIPLIES != 0
    }

    /// Notes that an event was recorded on this stream; the event's earlier position no longer counts.
    /// Returns whether the event is behind communication.
    #[inline]
    pub(crate) fn recorded(&self, event: cudaEvent_t, stream: cudaStream_t) -> bool {
        if !self.communicates.load(Relaxed) {
            return false;
        }
        let is_communication = self.is_communication(self.streams.of(stream.addr()));
        if is_communication {
            self.events.note(event.addr(), self.age());
        } else {
            self.events.forget(event.addr());
        }
        is_communication
    }

    #[inline]
    pub(crate) fn event_ends(&self, event: cudaEvent_t) {
        if self.communicates.load(Relaxed) {
            self.events.forget(event.addr());
        }
    }

    /// Forgets a destroyed stream, because its handle may be reused.
    pub(crate) fn stream_ends(&self, stream: cudaStream_t) {
        self.streams.forget(stream.addr());
    }

    #[inline]
    pub(crate) fn waits_for(&self, event: cudaEvent_t, stream: cudaStream_t) -> WaitsFor {
        if !self.communicates.load(Relaxed) || self.events.of(event.addr()) != self.age() {
            WaitsFor::Other
        } else if self.streams.of(stream.addr()) & MULTIPLIES == 0 {
            WaitsFor::Communication
        } else {
            WaitsFor::CommunicationWithGemms
        }
    }

    /// Notes that a stream without GEMMs, and so everything launched on it later, waits for communication.
    pub(crate) fn follows(&self, stream: cudaStream_t) {
        let known = self.streams.of(stream.addr());
        let follows = known & (MULTIPLIES | COMMUNICATES) | self.age() << AGE;
        if known != follows {
            self.streams.note(stream.addr(), follows);
        }
    }

    fn is_communication(&self, known: u16) -> bool {
        known & MULTIPLIES == 0 && (known & COMMUNICATES != 0 || known >> AGE == self.age())
    }

    /// The current age, never 0. Notes of waits and of events count only within one age. An age ends when
    /// observing was off for a while, because events recorded in that time were not seen. It also ends when a
    /// stream is found to run GEMMs.
    fn age(&self) -> u16 {
        let ages = u16::MAX >> AGE;
        self.found.load(Relaxed).wrapping_add(switch::times_on()) % ages + 1
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut as handle;

    use super::*;

    const DEFAULT: usize = 0;
    const COMPUTE: usize = 0x5100_0000;
    const REDUCE: usize = 0x5200_0000;
    const COPY: usize = 0x5300_0000;

    struct Seen(Exposure);

    impl Seen {
        fn new() -> Self {
            Self(Exposure::new().unwrap())
        }

        fn multiplies(&self, stream: usize) {
            self.0.multiplies_on(handle(stream));
        }

        fn communicates(&self, stream: usize) -> bool {
            self.0.communicates_on(handle(stream))
        }

        fn records(&self, event: usize, stream: usize) {
            self.0.recorded(handle(event), handle(stream));
        }

        fn waits(&self, stream: usize, event: usize) -> WaitsFor {
            let what = self.0.waits_for(handle(event), handle(stream));
            if what == WaitsFor::Communication {
                self.0.follows(handle(stream));
            }
            what
        }
    }

    #[test]
    fn a_stream_of_gemms_waits_only_for_events_of_communication() {
        let seen = Seen::new();
        assert!(!seen.0.is_known());
        seen.multiplies(DEFAULT);
        assert!(!seen.communicates(REDUCE) && seen.0.is_known());
        seen.records(7, REDUCE);
        seen.records(8, COPY);
        seen.records(9, DEFAULT);
        let held = WaitsFor::CommunicationWithGemms;
        assert_eq!(
            [7, 8, 9].map(|event| seen.waits(DEFAULT, event)),
            [held, WaitsFor::Other, WaitsFor::Other]
        );
        assert_eq!(seen.waits(REDUCE, 9), WaitsFor::Other);
        assert!(seen.communicates(DEFAULT), "on the stream of the GEMMs themselves");
        seen.records(7, DEFAULT);
        assert_eq!(seen.waits(DEFAULT, 7), WaitsFor::Other, "what it held before was another thing");
    }

    #[test]
    fn a_stream_that_waited_for_communication_passes_it_on() {
        let seen = Seen::new();
        seen.multiplies(COMPUTE);
        seen.communicates(REDUCE);
        seen.records(7, REDUCE);
        assert_eq!(seen.waits(COPY, 7), WaitsFor::Communication);
        seen.records(8, COPY);
        assert_eq!(seen.waits(COMPUTE, 8), WaitsFor::CommunicationWithGemms);
        // The copy stream is gone, and another stream has its handle.
        seen.0.stream_ends(handle(COPY));
        seen.records(8, COPY);
        assert_eq!(seen.waits(COMPUTE, 8), WaitsFor::Other);
    }

    #[test]
    fn a_handle_that_is_used_again_is_another_event() {
        let seen = Seen::new();
        seen.multiplies(COMPUTE);
        seen.communicates(REDUCE);
        seen.records(7, REDUCE);
        seen.0.event_ends(handle(7));
        assert_eq!(seen.waits(COMPUTE, 7), WaitsFor::Other);
    }

    #[test]
    fn a_stream_taken_for_communication_is_corrected_once_it_multiplies() {
        let seen = Seen::new();
        // Parameters are broadcast on the stream of later GEMMs, and a copy stream waits for the broadcast.
        seen.communicates(DEFAULT);
        seen.records(7, DEFAULT);
        assert_eq!(seen.waits(COPY, 7), WaitsFor::Communication);
        seen.multiplies(DEFAULT);
        seen.records(8, COPY);
        assert_eq!(seen.waits(DEFAULT, 8), WaitsFor::Other);
    }

    #[test]
    fn an_age_is_never_zero() {
        let seen = Seen::new();
        for _ in 0..1 << 16 {
            seen.0.found.fetch_add(1, Relaxed);
            let age = seen.0.age();
            assert!(age > 0 && age <= u16::MAX >> AGE);
        }
    }
}
