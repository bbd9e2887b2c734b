//! Converts CUPTI's clock to the hook's: both clocks are read twice, when recording begins and when it ends.
//!
//! By default CUPTI uses `CLOCK_REALTIME`, but an earlier user may have set a clock with other units:
//! torch.profiler sets the processor's. So the rate is measured too.

use super::{SUCCESS, cuptiGetTimestamp};
use crate::process::clock::monotonic;

/// Attempts; the one with the smallest error is used.
const TRIES: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) theirs: u64,
    /// Monotonic nanoseconds.
    pub(super) ours: u64,
    error: u64,
}

pub(super) fn read() -> Option<Reading> {
    (0..TRIES).filter_map(|_| read_once()).min_by_key(|reading| reading.error)
}

fn read_once() -> Option<Reading> {
    let mut theirs = 0;
    let before = monotonic();
    // SAFETY: `theirs` outlives the call.
    let rc = unsafe { cuptiGetTimestamp(&raw mut theirs) };
    let after = monotonic();
    let error = (after - before).div_ceil(2);
    (rc == Some(SUCCESS)).then_some(Reading { theirs, ours: before + error, error })
}

/// Converts CUPTI's times to the hook's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    first: Reading,
    last: Reading,
}

impl Scale {
    /// `None` if CUPTI's clock did not advance.
    pub(super) fn new(first: Reading, last: Option<Reading>) -> Option<Self> {
        let Some(last) = last else {
            // The default: nanoseconds.
            let second = 1_000_000_000;
            let last = Reading { theirs: first.theirs + second, ours: first.ours + second, ..first };
            return Some(Self { first, last });
        };
        (last.theirs > first.theirs && last.ours > first.ours).then_some(Self { first, last })
    }

    pub(crate) fn ours(&self, theirs: u64) -> i64 {
        let since = i128::from(theirs) - i128::from(self.first.theirs);
        (i128::from(self.first.ours) + self.scaled(since)) as i64
    }

    /// The length of a CUPTI duration in nanoseconds.
    pub(crate) fn nanoseconds(&self, theirs: u64) -> u64 {
        self.scaled(theirs.into()) as u64
    }

    fn scaled(&self, theirs: i128) -> i128 {
        let pace =
            (u128::from(self.last.ours - self.first.ours), u128::from(self.last.theirs - self.first.theirs));
        theirs * pace.0 as i128 / pace.1 as i128
    }

    pub(crate) fn error(&self) -> u64 {
        self.first.error.max(self.last.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_another_rate_is_converted() {
        let first = Reading { theirs: 5_000_000, ours: 1_000, error: 30 };
        let last = Reading { theirs: 5_000_000 + 2_500_000, ours: 1_000 + 1_000_000, error: 50 };
        let scale = Scale::new(first, Some(last)).unwrap();
        assert_eq!((scale.ours(5_000_250), scale.ours(4_999_750)), (1_100, 900));
        assert_eq!((scale.nanoseconds(25), scale.error()), (10, 50));
        assert!(Scale::new(last, Some(first)).is_none());
        assert_eq!(Scale::new(first, None).unwrap().ours(5_000_100), 1_100);
    }
}
