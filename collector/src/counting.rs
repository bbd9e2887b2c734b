//! Frame numbers. Each stream of frames has its own count, so that readers notice gaps.

use std::collections::HashMap;

/// Streams counted separately: a digest and an event stream for each job, a detail stream for each watched
/// rank.
const STREAMS: usize = 16_384;

#[derive(Debug, Default)]
pub(crate) struct Counting {
    next: HashMap<String, u64>,
    lost: u64,
}

impl Counting {
    /// The number of the next frame of `stream`.
    pub(crate) fn next(&mut self, stream: &str) -> u64 {
        if let Some(next) = self.next.get_mut(stream) {
            *next += 1;
            return *next;
        }
        if self.next.len() >= STREAMS {
            // Numbers begin at 0 again. A reader takes that for a restart of the collector.
            self.next.clear();
        }
        self.next.insert(stream.to_owned(), 0);
        0
    }

    /// Counts a frame that could not be sent.
    pub(crate) fn sent<E>(&mut self, outcome: &Result<(), E>) {
        self.lost += u64::from(outcome.is_err());
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_counts_by_itself() {
        let mut counting = Counting::default();
        let numbers = ["a/o", "a/o", "b/o", "a/o"].map(|stream| counting.next(stream));
        assert_eq!(numbers, [0, 1, 0, 2]);
    }

    #[test]
    fn streams_are_bounded() {
        let mut counting = Counting::default();
        for n in 0..STREAMS * 2 {
            counting.next(&n.to_string());
        }
        assert!(counting.next.len() <= STREAMS);
    }
}
