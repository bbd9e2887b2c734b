//! Time intervals: their union, and the overlap of two kinds.

use xpu_wire::unit::{Moment, Nanoseconds};

/// Intervals that neither overlap nor touch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<(u64, u64)>);

/// Merges overlapping intervals.
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
    pub fn iter(&self) -> impl Iterator<Item = (Moment, Moment)> {
        self.0.iter().map(|&(from, to)| (Moment(from), Moment(to)))
    }

    pub fn end(&self) -> Option<Moment> {
        self.0.last().map(|&(_, to)| Moment(to))
    }

    pub fn length(&self) -> Nanoseconds {
        Nanoseconds(self.0.iter().map(|(from, to)| to - from).sum())
    }

    /// Total time in both.
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

    /// The parts of the intervals between two moments.
    pub fn within(&self, from: Moment, to: Moment) -> Self {
        let first = self.0.partition_point(|&(_, end)| end <= from.0);
        let all = self.0.iter().skip(first).take_while(|&&(begin, _)| begin < to.0);
        Self(all.map(|&(begin, end)| (begin.max(from.0), end.min(to.0))).filter(|(a, b)| a < b).collect())
    }

    /// The intersection of both.
    pub fn and(&self, other: &Self) -> Self {
        union(self.0.iter().chain(&other.0).map(|&(from, to)| (Moment(from), Moment(to))))
    }
}
