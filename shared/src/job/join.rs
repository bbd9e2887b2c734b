//! The same collective as its ranks saw it, joined by sequence number: no clock is compared.

use std::collections::{HashMap, VecDeque};

use crate::{
    id::{CommunicatorId, Sequence},
    unit::Nanoseconds,
};

/// Collectives remembered: half a minute of a job with thousands of communicators.
const REMEMBERED: usize = 1 << 16;

/// One collective.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    size: u32,
    reported: u32,
    shortest: Nanoseconds,
    longest: Nanoseconds,
}

impl Join {
    /// The shortest duration: the last rank to come waited for nobody, so this is what the transfer took.
    pub fn transfer(&self) -> Nanoseconds {
        self.shortest
    }

    /// The duration of the rank that came first, and waited for all.
    pub fn longest(&self) -> Nanoseconds {
        self.longest
    }

    /// Ranks that have reported, and those of the communicator.
    pub fn seen(&self) -> (u32, u32) {
        (self.reported, self.size)
    }

    /// Whether every rank of the communicator has reported.
    pub fn is_complete(&self) -> bool {
        self.reported >= self.size
    }
}

/// The latest collectives that were timed.
#[derive(Debug, Default)]
pub struct Joins {
    known: HashMap<(CommunicatorId, Sequence), Join>,
    order: VecDeque<(CommunicatorId, Sequence)>,
}

impl Joins {
    /// One rank's duration; the whole, where it was the last to tell. Each rank must report a collective once.
    pub fn report(
        &mut self,
        id: CommunicatorId,
        sequence: Sequence,
        size: u32,
        duration: Nanoseconds,
    ) -> Option<Join> {
        let key = (id, sequence);
        if let Some(join) = self.known.get_mut(&key) {
            join.reported += 1;
            join.shortest = join.shortest.min(duration);
            join.longest = join.longest.max(duration);
            return Some(*join).filter(Join::is_complete);
        }
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(key);
        self.known.insert(key, Join { size, reported: 1, shortest: duration, longest: duration });
        None
    }

    pub fn get(&self, id: CommunicatorId, sequence: Sequence) -> Option<&Join> {
        self.known.get(&(id, sequence))
    }
}
