//! Intervals of time: how long at least one of them lasted, and two kinds of them at once.

use crate::unit::{Moment, Nanoseconds};

/// Intervals that neither overlap nor touch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<(u64, u64)>);

/// Puts together what overlaps.
pub fn union(intervals: impl IntoIterator<Item = (Moment, Moment)>) -> Spans {
    let mut all: Vec<_> =
        intervals.into_iter().map(|(from, to)| (from.0, to.0)).filter(|(from, to)| from < to).collect();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in all {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    Spans(joined)
}

impl Spans {
    pub fn length(&self) -> Nanoseconds {
        Nanoseconds(self.0.iter().map(|(from, to)| to - from).sum())
    }

    /// How long both last.
    pub fn overlap(&self, other: &Self) -> Nanoseconds {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = 0;
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            both += a.1.min(b.1).saturating_sub(a.0.max(b.0));
            if a.1 <= b.1 {
                mine.next();
            } else {
                theirs.next();
            }
        }
        Nanoseconds(both)
    }

    /// Both together.
    pub fn and(&self, other: &Self) -> Self {
        union(self.0.iter().chain(&other.0).map(|&(from, to)| (Moment(from), Moment(to))))
    }
}
