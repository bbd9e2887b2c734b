//! One collective as all its ranks saw it, matched by sequence number. No clocks are compared.

use foldhash::HashMap;

use xpu_wire::{
    id::{CommunicatorId, Sequence},
    sampling::Rate,
    unit::Nanoseconds,
};

/// Number of collectives kept: half a minute of a job with thousands of communicators.
const REMEMBERED: usize = 1 << 16;

/// One collective.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    size: u32,
    reported: u32,
    /// The coarsest recent sampling rate of any of its ranks.
    rate: Rate,
    shortest: Nanoseconds,
    /// The second shortest duration.
    second: Nanoseconds,
    longest: Nanoseconds,
}

impl Join {
    /// The shortest duration: the last rank waited for no other, so its duration is the transfer.
    pub fn transfer(&self) -> Nanoseconds {
        self.shortest
    }

    /// The shortest wait of the others for the last rank: the time that would be saved if it entered together
    /// with the rank before it.
    pub fn gap(&self) -> Nanoseconds {
        if self.reported < 2 { Nanoseconds(0) } else { Nanoseconds(self.second.0 - self.shortest.0) }
    }

    /// The duration of the first rank, which waited for all.
    pub fn longest(&self) -> Nanoseconds {
        self.longest
    }

    /// Number of ranks that have reported, and of all ranks of the communicator.
    pub fn seen(&self) -> (u32, u32) {
        (self.reported, self.size)
    }

    /// The sampling rate common to all ranks.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether every rank of the communicator has reported.
    pub fn is_complete(&self) -> bool {
        self.reported >= self.size
    }
}

/// The latest timed collectives.
#[derive(Debug, Default)]
pub struct Joins {
    /// The index of each in the ring.
    places: HashMap<Key, u32>,
    /// Once it is full, the next collective replaces the oldest.
    ring: Vec<(Key, Join)>,
    oldest: usize,
}

type Key = (CommunicatorId, Sequence);

/// The position of a collective: it is found without a search, as long as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Joins {
    /// Adds one rank's duration, and its coarsest recent sampling rate. Returns the complete collective if
    /// this rank was the last to report. Each rank must report a collective once.
    pub fn report(
        &mut self,
        id: CommunicatorId,
        sequence: Sequence,
        size: u32,
        rate: Rate,
        duration: Nanoseconds,
    ) -> (Place, Option<Join>) {
        let key = (id, sequence);
        if let Some(&place) = self.places.get(&key) {
            let (_, join) = &mut self.ring[place as usize];
            join.reported += 1;
            join.rate = join.rate.max(rate);
            join.second = join.second.min(join.shortest.max(duration));
            join.shortest = join.shortest.min(duration);
            join.longest = join.longest.max(duration);
            return (Place(place), Some(*join).filter(Join::is_complete));
        }
        let second = Nanoseconds(u64::MAX);
        let join = Join { size, reported: 1, rate, shortest: duration, second, longest: duration };
        let at = if self.ring.len() < REMEMBERED {
            self.ring.push((key, join));
            self.ring.len() - 1
        } else {
            let at = self.oldest;
            self.oldest = (at + 1) % REMEMBERED;
            let (gone, _) = std::mem::replace(&mut self.ring[at], (key, join));
            self.places.remove(&gone);
            at
        };
        let place = at as u32;
        self.places.insert(key, place);
        (Place(place), None)
    }

    /// The collective at that position, if it is still kept.
    pub fn get(&self, place: Place, id: CommunicatorId, sequence: Sequence) -> Option<&Join> {
        let (key, join) = self.ring.get(place.0 as usize)?;
        (*key == (id, sequence)).then_some(join)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_between_the_last_two_arrivals() {
        let mut joins = Joins::default();
        let mut report =
            |ms: u64| joins.report(CommunicatorId(1), Sequence(0), 4, Rate::EVERY, Nanoseconds(ms)).1;
        assert_eq!([9, 2, 7].map(|ms| report(ms).is_some()), [false; 3]);
        let whole = report(5).unwrap();
        assert_eq!(
            (whole.gap(), whole.transfer(), whole.longest()),
            (Nanoseconds(3), Nanoseconds(2), Nanoseconds(9))
        );
    }

    #[test]
    fn a_reassigned_slot_is_empty() {
        let (mut joins, id) = (Joins::default(), CommunicatorId(1));
        let (first, whole) = joins.report(id, Sequence(0), 2, Rate::EVERY, Nanoseconds(5));
        assert!(whole.is_none());
        let (again, whole) = joins.report(id, Sequence(0), 2, Rate::EVERY, Nanoseconds(3));
        assert_eq!((again, whole.map(|join| join.transfer())), (first, Some(Nanoseconds(3))));
        for sequence in 1..=REMEMBERED as u64 {
            let still = joins.get(first, id, Sequence(0)).map(Join::longest);
            assert_eq!(still, Some(Nanoseconds(5)), "{sequence} others");
            joins.report(id, Sequence(sequence), 2, Rate::EVERY, Nanoseconds(1));
        }
        assert!(joins.get(first, id, Sequence(0)).is_none());
        assert!(joins.get(first, id, Sequence(REMEMBERED as u64)).is_some());
        // A repeated report starts a new collective.
        assert!(joins.report(id, Sequence(0), 1, Rate::EVERY, Nanoseconds(1)).1.is_none());
    }
}
