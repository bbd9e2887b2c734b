//! Converts a remote requester's moments to the clock here.

use xpu_wire::unit::Moment;

/// A smaller difference is mostly the message's travel time: both clocks have the same source.
const SAME_CLOCK: u64 = 500_000_000;

/// Time by which the clock here is ahead of the sender's, for a message that was stamped `theirs` and arrived
/// at `now`. Includes the message's travel time.
fn ahead(now: Moment, theirs: Moment) -> i64 {
    i64::try_from(i128::from(now.0) - i128::from(theirs.0)).unwrap_or_default()
}

/// When a request arrived, and the time by which the clock here is ahead of the requester's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTime {
    pub at: Moment,
    pub ahead: i64,
}

impl RequestTime {
    /// `theirs` is when the request was sent, by the requester's clock.
    pub(crate) fn new(at: Moment, theirs: Moment) -> Self {
        Self { at, ahead: ahead(at, theirs) }
    }

    /// A moment of the requester's clock, by the clock here.
    pub(crate) fn here(self, at: Moment) -> Moment {
        here(at, self.ahead)
    }
}

/// A moment of the requester's clock, by the clock here.
fn here(at: Moment, ahead: i64) -> Moment {
    if ahead.unsigned_abs() < SAME_CLOCK { at } else { Moment(at.0.saturating_add_signed(ahead)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_corrected() {
        let second = 1_000_000_000;
        for (now, theirs, at) in [(100, 100, 107), (100, 97, 110), (97, 100, 104)] {
            let ahead = ahead(Moment(now * second), Moment(theirs * second));
            assert_eq!(here(Moment(107 * second), ahead), Moment(at * second));
        }
        // A difference this small is travel time.
        assert_eq!(here(Moment(107), ahead(Moment(400_000_000), Moment(0))), Moment(107));
        assert_eq!(here(Moment(107), ahead(Moment(0), Moment(u64::MAX))), Moment(107));
    }
}
