//! The last NCCL calls of a process, over all communicators, in call order.
//!
//! Each call takes the next slot of a ring, with plain stores. A reader accepts a slot whose ticket is the
//! same before and after it read the rest.

mod native;
mod pairs;
mod preceding;
mod site;

pub(super) use native::NativeSites;
pub use native::{NATIVE_SITES, NativeText};
pub(super) use pairs::Pairs;
pub use preceding::{KERNEL_NAME, PRECEDED, Preceding, Work};
pub(super) use site::Sites;
pub use site::{SITES, SiteReading, SiteText};

use super::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release, fence};
use crate::{collective::Operation, datatype::DataType, id::CommunicatorId, unit::Moment};

/// Calls that are kept.
pub const CALLS: usize = 2048;

/// The ticket of a call that has no slot in the record.
pub const NO_TICKET: u64 = u64::MAX;

/// Lower bits of the first word: ticket plus one. A process makes fewer calls than that.
const TICKET: u64 = (1 << PEER_AT) - 1;

/// The value of an absent root or peer, in the upper bits of the first word.
const NOBODY: u64 = (1 << 24) - 1;
const PEER_AT: u32 = 40;

/// The value of an absent number, in 40 bits.
const NO_NUMBER: u64 = (1 << 40) - 1;

const ADDRESS: u64 = (1 << 48) - 1;

// What became of a call. Only the calling thread changes the first word, so this needs no locked instruction.
// Both words carry some bits of the ticket, so that a change of an older call has no effect.
const LAP_AT: u32 = 24;
const LAP: u32 = 0xff << LAP_AT;
// The first word: the call's group, and its state.
const GROUP_AT: u32 = 8;
const GROUP: u32 = (CALLS as u32 * 2 - 1) << GROUP_AT;
const ENQUEUED: u32 = 1;
const REFUSED: u32 = 2;
// The second word. `QUEUED`: an event precedes the call on its stream. `BEGUN`: the stream has reached that
// event.
const QUEUED: u32 = 1;
const BEGUN: u32 = 2;

const CAPTURED: u64 = 1;
const REPLAYED: u64 = 2;

/// A call as the hook notes it, before it is made.
#[derive(Clone, Copy, Debug)]
pub struct Calling {
    pub communicator: CommunicatorId,
    /// The rank in the communicator.
    pub member: u32,
    /// For a collective, its number in the communicator; for a send or receive, its number between the two
    /// ranks in this direction.
    pub number: Option<u64>,
    pub operation: Operation,
    /// NCCL's numbers; `reduction` is 0 if there is none.
    pub datatype: u8,
    pub reduction: u8,
    /// The root, or the peer; negative for none.
    pub peer: i64,
    pub bytes: u64,
    pub stream: u64,
    pub how: How,
    pub at: Moment,
    /// The return address; 0 if it is unknown.
    pub returns_to: usize,
    /// The number that [`Sites::known`] returns.
    pub site: u16,
}

/// How a call reaches the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Launched,
    /// Captured into a CUDA graph, and not launched now.
    Captured,
    /// A graph's launch, with this number of collectives of the communicator; no more is known of them.
    Replayed(u32),
}

#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// Number of calls so far, which is the next ticket.
    next: AtomicU64,
    /// When the events before calls were last queried.
    asked: AtomicU64,
    calls: [Line; CALLS],
    pub pairs: Pairs,
    pub sites: Sites,
    pub native_sites: NativeSites,
    preceding: [preceding::Line; PRECEDED],
}

/// One slot.
#[repr(C, align(64))]
#[derive(Debug)]
struct Line {
    /// Ticket plus one, and peer; communicator; number, operation, type and reduction; bytes; stream and
    /// member; return address and site; moment.
    words: [AtomicU64; 7],
    /// The group, and whether NCCL took the call; the calling thread changes it.
    launch: AtomicU32,
    /// The progress of its stream; the calling thread and the hook's thread change it.
    stream: AtomicU32,
}

/// Which of the calls that had the same slot it is, modulo 256.
fn lap(ticket: u64) -> u32 {
    ((ticket / CALLS as u64) as u32) << LAP_AT
}

impl Record {
    /// Notes a call that is about to be made; returns its ticket.
    #[inline]
    pub fn enter(&self, call: &Calling) -> u64 {
        let ticket = self.next.fetch_add(1, Relaxed);
        let line = &self.calls[ticket as usize % CALLS];
        let words = &line.words;
        words[0].store(0, Relaxed);
        // A reader that sees any of the following stores also sees that the slot's previous ticket is gone.
        fence(Release);
        let flags = match call.how {
            How::Launched => 0,
            How::Captured => CAPTURED,
            How::Replayed(_) => REPLAYED,
        };
        let amount = if let How::Replayed(count) = call.how { u64::from(count) } else { call.bytes };
        let number = call.number.unwrap_or(NO_NUMBER) & NO_NUMBER;
        let peer = if call.peer < 0 { NOBODY } else { call.peer as u64 & NOBODY };
        words[1].store(call.communicator.0, Relaxed);
        words[2].store(
            number << 24
                | (call.operation as u64) << 16
                | u64::from(call.datatype) << 8
                | u64::from(call.reduction & 0xf) << 4
                | flags,
            Relaxed,
        );
        words[3].store(amount, Relaxed);
        words[4].store((call.stream & ADDRESS) << 16 | u64::from(call.member.min(0xffff)), Relaxed);
        words[5].store((call.returns_to as u64 & ADDRESS) << 16 | u64::from(call.site), Relaxed);
        words[6].store(call.at.0, Relaxed);
        line.launch.store(lap(ticket), Relaxed);
        line.stream.store(lap(ticket), Relaxed);
        words[0].store(peer << PEER_AT | (ticket + 1) & TICKET, Release);
        ticket
    }

    /// Notes that the call went into the group whose first call is `first`. Called by the calling thread.
    #[inline]
    pub fn group(&self, ticket: u64, first: u64) {
        self.launched(ticket, ((first % CALLS as u64) as u32 + 1) << GROUP_AT);
    }

    /// Notes that NCCL took the call. Called by the calling thread.
    #[inline]
    pub fn enqueued(&self, ticket: u64) {
        self.launched(ticket, ENQUEUED);
    }

    /// Notes that NCCL refused the call. Called by the calling thread.
    pub fn refused(&self, ticket: u64) {
        self.launched(ticket, REFUSED);
    }

    /// Notes that an event precedes the call, or its group, on its stream.
    pub fn queued(&self, ticket: u64) {
        self.on_stream(ticket, |word| word | QUEUED);
    }

    /// Notes that the stream has reached that event.
    pub fn begun(&self, ticket: u64) {
        self.on_stream(ticket, |word| word | BEGUN);
    }

    /// Notes that all events before calls were queried at `now`.
    pub fn asked(&self, now: Moment) {
        self.asked.store(now.0, Relaxed);
    }

    pub fn asked_at(&self) -> Moment {
        Moment(self.asked.load(Relaxed))
    }

    /// Notes that the stream's progress will stay unknown.
    pub fn not_queued(&self, ticket: u64) {
        self.on_stream(ticket, |word| word & !QUEUED);
    }

    /// Whether the call may still wait: nothing shows that its stream has reached it.
    fn waits(&self, ticket: u64) -> bool {
        let line = &self.calls[ticket as usize % CALLS];
        let [launch, stream] = [&line.launch, &line.stream].map(|word| word.load(Relaxed));
        let is_it = (launch & LAP, stream & LAP) == (lap(ticket), lap(ticket));
        is_it && launch & REFUSED == 0 && stream & (QUEUED | BEGUN) == QUEUED
    }

    /// Adds these bits; does nothing if the slot now holds another call. If another thread takes the slot
    /// between the load and the store, that call counts as not yet enqueued.
    #[inline]
    fn launched(&self, ticket: u64, bits: u32) {
        if ticket == NO_TICKET {
            return;
        }
        let word = &self.calls[ticket as usize % CALLS].launch;
        let before = word.load(Relaxed);
        if before & LAP == lap(ticket) {
            word.store(before | bits, Relaxed);
        }
    }

    /// The same for the stream's word, which two threads may change at the same time.
    fn on_stream(&self, ticket: u64, to: impl Fn(u32) -> u32) {
        if ticket == NO_TICKET {
            return;
        }
        let word = &self.calls[ticket as usize % CALLS].stream;
        let ours = |word: u32| word & LAP == lap(ticket);
        let _ = word.fetch_update(Relaxed, Relaxed, |word| ours(word).then(|| to(word)));
    }

    /// The calls in the ring, oldest first, at most the last `most`; and the total number of calls.
    pub fn read(&self, most: usize) -> (Vec<CallReading>, u64) {
        let next = self.next.load(Acquire);
        let first = next.saturating_sub(most.min(CALLS) as u64);
        ((first..next).filter_map(|ticket| self.call(ticket)).collect(), next)
    }

    /// `None` if another call has taken its slot, or the slot is being written.
    fn call(&self, ticket: u64) -> Option<CallReading> {
        let line = &self.calls[ticket as usize % CALLS];
        let first = line.words[0].load(Acquire);
        if first & TICKET != (ticket + 1) & TICKET {
            return None;
        }
        let [communicator, what, bytes, stream, site, at] =
            std::array::from_fn(|place| line.words[place + 1].load(Relaxed));
        // A word of another call's gives no bits.
        let [launch, reached] = [&line.launch, &line.stream]
            .map(|word| Some(word.load(Relaxed)).filter(|word| word & LAP == lap(ticket)).unwrap_or(0));
        fence(Acquire);
        if line.words[0].load(Relaxed) != first {
            return None;
        }
        let peer = first >> PEER_AT;
        let group = u64::from((launch & GROUP) >> GROUP_AT);
        let replayed = what & REPLAYED != 0;
        Some(CallReading {
            ticket,
            communicator: CommunicatorId(communicator),
            member: stream as u32 & 0xffff,
            number: Some(what >> 24).filter(|&number| number != NO_NUMBER),
            operation: *Operation::ALL.get((what >> 16 & 0xff) as usize)?,
            datatype: DataType::from_nccl((what >> 8 & 0xff) as i32),
            reduction: (what >> 4 & 0xf) as u8,
            peer: (peer != NOBODY).then_some(peer as u32),
            bytes: if replayed { 0 } else { bytes },
            replays: if replayed { bytes as u32 } else { 0 },
            stream: stream >> 16,
            at: Moment(at),
            // The group's first call is one of the preceding calls, or this one.
            group: group.checked_sub(1).map(|first| ticket - (ticket.wrapping_sub(first) % CALLS as u64)),
            captured: what & CAPTURED != 0,
            enqueued: launch & ENQUEUED != 0,
            refused: launch & REFUSED != 0,
            queued: reached & QUEUED != 0,
            begun: reached & BEGUN != 0,
            returns_to: site >> 16,
            site: (site & 0xffff) as u16,
        })
    }
}

/// A call as read from the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReading {
    /// Counts up by one with each call of the process.
    pub ticket: u64,
    pub communicator: CommunicatorId,
    pub member: u32,
    pub number: Option<u64>,
    pub operation: Operation,
    pub datatype: DataType,
    pub reduction: u8,
    pub peer: Option<u32>,
    pub bytes: u64,
    /// Number of collectives in a graph's launch; 0 for a single call.
    pub replays: u32,
    pub stream: u64,
    pub at: Moment,
    /// The ticket of the first call of its group.
    pub group: Option<u64>,
    pub captured: bool,
    pub enqueued: bool,
    pub refused: bool,
    /// `queued`: an event precedes it, or its group, on its stream. `begun`: the stream has reached that
    /// event.
    pub queued: bool,
    pub begun: bool,
    pub returns_to: u64,
    pub site: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn record() -> Box<Record> {
        // SAFETY: it consists of atomic words, for which zero is a valid value.
        unsafe { Box::<Record>::new_zeroed().assume_init() }
    }

    pub(super) fn call(number: u64) -> Calling {
        Calling {
            communicator: CommunicatorId(u64::MAX - 1),
            member: 3,
            number: Some(number),
            operation: Operation::Broadcast,
            datatype: 7,
            reduction: 0,
            peer: 5,
            bytes: 1 << 33,
            stream: 0x7fff_1234_5670,
            how: How::Launched,
            at: Moment(77),
            returns_to: 0x7fff_0000_1111,
            site: 9,
        }
    }

    #[test]
    fn a_call_is_read_as_it_was_noted() {
        let record = record();
        let first = record.enter(&call(8));
        let second = record.enter(&Calling { peer: -1, number: None, how: How::Captured, ..call(0) });
        record.group(first, first);
        record.group(second, first);
        record.queued(first);
        record.enqueued(first);
        record.begun(first);
        record.queued(second);
        record.not_queued(second);
        record.refused(second);
        let (calls, all) = record.read(CALLS);
        assert_eq!((all, calls.len()), (2, 2));
        let one = &calls[0];
        assert_eq!((one.ticket, one.group, one.enqueued, one.refused), (0, Some(0), true, false));
        assert_eq!((one.queued, one.begun), (true, true));
        assert_eq!((one.communicator, one.member, one.number), (CommunicatorId(u64::MAX - 1), 3, Some(8)));
        assert_eq!((one.operation, one.datatype), (Operation::Broadcast, DataType::Float32));
        assert_eq!((one.peer, one.bytes, one.stream, one.at.0), (Some(5), 1 << 33, 0x7fff_1234_5670, 77));
        assert_eq!((one.returns_to, one.site, one.captured), (0x7fff_0000_1111, 9, false));
        let other = &calls[1];
        assert_eq!((other.peer, other.number, other.captured, other.enqueued), (None, None, true, false));
        assert_eq!((other.group, other.refused), (Some(0), true));
        assert_eq!((other.queued, other.begun), (false, false));
    }

    #[test]
    fn the_last_calls_are_kept_and_late_updates_of_older_ones_ignored() {
        let record = record();
        let old = record.enter(&call(0));
        for number in 1..=CALLS as u64 + 5 {
            record.enter(&call(number));
        }
        record.refused(old);
        let (calls, all) = record.read(usize::MAX);
        assert_eq!((all, calls.len()), (CALLS as u64 + 6, CALLS));
        assert_eq!((calls[0].number, calls[CALLS - 1].number), (Some(6), Some(CALLS as u64 + 5)));
        assert!(calls.iter().all(|call| !call.refused));
        assert_eq!(record.read(3).0.len(), 3);
        let launch = record.enter(&Calling { how: How::Replayed(12), ..call(9) });
        record.group(launch, launch - 1);
        let last = record.read(1).0.remove(0);
        assert_eq!((last.replays, last.bytes, last.group), (12, 0, Some(launch - 1)));
    }
}
