//! Moments by the clock of who asks, from elsewhere, as they are by the clock here.

use xpu_wire::unit::Moment;

/// Clocks that differ by less are set by the same source, and the way of the message is most of it.
const SAME_CLOCK: u64 = 500_000_000;

/// How much the clock here is ahead of theirs, who said at `theirs` what came `now`; the way of the message included.
pub(crate) fn ahead(now: Moment, theirs: Moment) -> i64 {
    i64::try_from(i128::from(now.0) - i128::from(theirs.0)).unwrap_or_default()
}

/// A moment of their clock, by the clock here.
pub(crate) fn here(at: Moment, ahead: i64) -> Moment {
    if ahead.unsigned_abs() < SAME_CLOCK { at } else { Moment(at.0.saturating_add_signed(ahead)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_made_up_for() {
        let second = 1_000_000_000;
        for (now, theirs, at) in [(100, 100, 107), (100, 97, 110), (97, 100, 104)] {
            let ahead = ahead(Moment(now * second), Moment(theirs * second));
            assert_eq!(here(Moment(107 * second), ahead), Moment(at * second));
        }
        // That much is the way of the message.
        assert_eq!(here(Moment(107), ahead(Moment(400_000_000), Moment(0))), Moment(107));
        assert_eq!(here(Moment(107), ahead(Moment(0), Moment(u64::MAX))), Moment(107));
    }
}
