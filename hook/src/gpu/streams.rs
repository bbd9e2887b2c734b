//! The last operation that was launched on each stream, and on the streams that the stream waits for. If a
//! stream does not reach a collective, this is the work that the collective waits for.
//!
//! A handle's slot is found without a lock. Two threads that launch on one stream at the same moment may mix
//! their words; the sum over the words then differs, and the words are not used.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};
use xpu_wire::{
    ledger::{Preceding, Work},
    unit::Moment,
};

use crate::{
    gpu::exposure::Notes,
    observe::{kernels, lane::Lane},
    process::{
        clock::{monotonic, time_of_day},
        memory,
    },
};

/// Maximum number of streams, and of events, that are known at once. Nothing is known about further ones.
const STREAMS: usize = 128;
const EVENTS: usize = 4096;

/// The longest distance of a slot from the index of its handle.
const FARTHEST: usize = 4;

#[derive(Debug)]
pub(crate) struct Streams {
    slots: &'static [Slot],
    /// The slot of the stream on which each event was last recorded, plus one.
    events: Notes,
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Slot {
    /// The handle plus one, because the default stream's handle is 0.
    handle: AtomicU64,
    own: Latest,
    /// The latest operation of a stream that this one waits for through an event.
    awaited: Latest,
}

/// Three words of the operation, its stream, the time stamp counter at its launch, and the sum of these
/// words.
#[derive(Debug)]
struct Latest([AtomicU64; 6]);

/// The words without the sum; no operation's words are all zero.
type Words = [u64; 5];

impl Streams {
    /// Bytes it holds.
    pub(crate) const MEMORY: usize = STREAMS * size_of::<Slot>() + Notes::memory(EVENTS);

    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: a slot of zeros has no stream.
        Some(Self { slots: unsafe { memory::zeros(STREAMS) }?, events: Notes::new(EVENTS)? })
    }

    /// Notes a launched operation. `ticks` is 0 if the time is unknown.
    #[inline]
    pub(crate) fn launched(&self, stream: cudaStream_t, [kind, one, other]: [u64; 3], ticks: u64) {
        if let Some((_, slot)) = self.find(stream, true) {
            slot.own.set([kind, one, other, stream.addr() as u64, ticks]);
        }
    }

    /// Notes that the event was recorded on this stream.
    #[inline]
    pub(crate) fn recorded(&self, event: cudaEvent_t, stream: cudaStream_t) {
        match self.find(stream, true) {
            Some((place, _)) => _ = self.events.note(event.addr(), place as u16 + 1),
            None => self.events.forget(event.addr()),
        }
    }

    /// Notes that the stream waits for this event, so its next work waits for the work before the event. The
    /// event was usually recorded just before.
    #[inline]
    pub(crate) fn waits(&self, stream: cudaStream_t, event: cudaEvent_t) {
        let Some(place) = usize::from(self.events.of(event.addr())).checked_sub(1) else { return };
        let Some((own, slot)) = self.find(stream, true).filter(|&(own, _)| own != place) else { return };
        debug_assert_ne!(own, place);
        if let Some(words) = self.slots.get(place).and_then(Slot::latest) {
            slot.awaited.set(words);
        }
    }

    /// Forgets a stream that is about to be destroyed, because its handle may be reused.
    pub(crate) fn stream_ends(&self, stream: cudaStream_t) {
        if let Some((_, slot)) = self.find(stream, false) {
            slot.own.set([0; 5]);
            slot.awaited.set([0; 5]);
        }
    }

    /// The known work that a launch on this stream would wait for.
    pub(crate) fn before(&self, lane: &Lane, stream: cudaStream_t) -> Option<Preceding> {
        let (_, slot) = self.find(stream, false)?;
        let [kind, one, other, stream, ticks] = slot.latest()?;
        let mut work = Work::unpack([kind, one, other])?;
        if let Work::Kernel { function, name } = &mut work {
            *name = kernels::known_name(*function as usize);
        }
        let at = lane
            .passed_since(ticks)
            .map_or(Moment(0), |passed| time_of_day(monotonic().saturating_sub(passed)));
        Some(Preceding { work, stream, at })
    }

    fn find(&self, stream: cudaStream_t, take: bool) -> Option<(usize, &Slot)> {
        let handle = stream.addr() as u64 + 1;
        let first = handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - STREAMS.ilog2());
        for next in 0..FARTHEST {
            let place = (first as usize + next) % STREAMS;
            let slot = self.slots.get(place)?;
            let found = slot.handle.load(Relaxed);
            if found == handle {
                return Some((place, slot));
            }
            if found == 0 {
                let taken = take && slot.handle.compare_exchange(0, handle, Acquire, Relaxed).is_ok();
                return taken.then_some((place, slot));
            }
        }
        None
    }
}

impl Slot {
    /// The later of the stream's own work and the work that it waits for.
    fn latest(&self) -> Option<Words> {
        let ticks = |words: &Words| words[4];
        match (self.own.get(), self.awaited.get()) {
            (Some(own), Some(awaited)) => Some(if ticks(&awaited) > ticks(&own) { awaited } else { own }),
            (own, awaited) => own.or(awaited),
        }
    }
}

impl Latest {
    #[inline]
    fn set(&self, words: Words) {
        for (place, word) in self.0.iter().zip(words) {
            place.store(word, Relaxed);
        }
        self.0[5].store(sum(words), Relaxed);
    }

    fn get(&self) -> Option<Words> {
        let words = std::array::from_fn(|place| self.0[place].load(Relaxed));
        (words[0] != 0 && self.0[5].load(Relaxed) == sum(words)).then_some(words)
    }
}

/// The sum of words, which depends on their order.
#[inline]
fn sum(words: Words) -> u64 {
    words.into_iter().fold(0, |sum, word| sum.rotate_left(9) ^ word)
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut as handle;

    use xpu_wire::{datatype::DataType, gemm::Routine};

    use super::*;

    fn gemm(m: u32) -> [u64; 3] {
        Work::Gemm { m, n: 2, k: 3, batch: 1, datatype: DataType::Bfloat16, routine: Routine::Gemm }.pack()
    }

    fn before(streams: &Streams, stream: usize) -> Option<Words> {
        streams.find(handle(stream), false)?.1.latest()
    }

    #[test]
    fn the_last_operation_of_a_stream_is_known() {
        let streams = Streams::new().unwrap();
        assert_eq!(before(&streams, 0), None);
        streams.launched(handle(0), gemm(1), 10);
        streams.launched(handle(0x5100), Work::Graph.pack(), 11);
        streams.launched(handle(0), gemm(2), 12);
        let [kind, one, other] = gemm(2);
        assert_eq!(before(&streams, 0), Some([kind, one, other, 0, 12]));
        assert_eq!(before(&streams, 0x5100).map(|words| words[4]), Some(11));
        streams.stream_ends(handle(0));
        assert_eq!(before(&streams, 0), None);
    }

    /// PyTorch does this for each collective: NCCL's stream waits for an event on the stream of the GEMMs.
    #[test]
    fn a_stream_that_waits_for_an_event_is_behind_what_was_launched_before_it() {
        let (compute, nccl, event) = (0, 0x5200, 0x9000);
        let streams = Streams::new().unwrap();
        streams.launched(handle(nccl), Work::Graph.pack(), 5);
        streams.launched(handle(compute), gemm(7), 10);
        streams.recorded(handle(event), handle(compute));
        streams.waits(handle(nccl), handle(event));
        assert_eq!(before(&streams, nccl), Some([gemm(7)[0], gemm(7)[1], gemm(7)[2], compute as u64, 10]));
        streams.launched(handle(compute), gemm(8), 20);
        assert_eq!(before(&streams, nccl).map(|words| words[4]), Some(10), "launched after the wait");
        streams.launched(handle(nccl), Work::Graph.pack(), 30);
        assert_eq!(before(&streams, nccl).map(|words| words[4]), Some(30), "its own is later");
        // Waits for an unknown event, and for an event of the same stream.
        streams.waits(handle(nccl), handle(0x9100));
        streams.recorded(handle(event), handle(nccl));
        streams.waits(handle(nccl), handle(event));
        assert_eq!(before(&streams, nccl).map(|words| words[4]), Some(30));
    }

    #[test]
    fn mixed_words_of_two_threads_are_not_read() {
        let latest = Latest([const { AtomicU64::new(0) }; 6]);
        latest.set([1, 2, 3, 4, 5]);
        latest.0[1].store(9, Relaxed);
        assert_eq!(latest.get(), None);
        latest.set([1, 9, 3, 4, 5]);
        assert_eq!(latest.get(), Some([1, 9, 3, 4, 5]));
    }

    #[test]
    fn streams_beyond_the_limit_are_unknown_not_wrong() {
        let streams = Streams::new().unwrap();
        for number in 0..10 * STREAMS {
            streams.launched(handle(0x5581_2340_0000 + number * 112), gemm(1), number as u64 + 1);
        }
        let known = (0..10 * STREAMS).filter_map(|number| {
            let words = before(&streams, 0x5581_2340_0000 + number * 112)?;
            Some((words[4], number as u64 + 1))
        });
        let known: Vec<_> = known.collect();
        assert!(known.len() > STREAMS / 2 && known.iter().all(|(found, set)| found == set));
    }
}
