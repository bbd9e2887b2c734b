//! The average of a delay that comes in single events, over the time since it began.

/// Parts over which it is averaged, if it began as long ago: two minutes, as a digest is a second or longer. In them
/// pauses of several seconds are some dozen.
pub(super) const MOST: usize = 120;

/// The loss of a digest, seconds. Begin and end are relative to one moment.
pub(super) struct Part {
    pub(super) begin: f64,
    pub(super) end: f64,
    pub(super) lost: f64,
}

impl Part {
    fn seconds(&self) -> f64 {
        self.end - self.begin
    }
}

/// The loss of this share of the time over all `parts`, newest first, since it began, if it comes in few of the
/// `recent` ones: from the first part with a loss, which is not counted, to the last one. `now`: the end of the newest.
pub(super) fn average(parts: &[Part], recent: usize, share: f64, now: f64) -> Option<f64> {
    let has_lost = |at: &usize| parts[*at].lost > share * parts[*at].seconds() / 2.0;
    let few = (0..recent).filter(has_lost).count() * 2 < recent;
    let (mut excess, mut most, mut first) = (0.0, 0.0, 0);
    for (at, part) in parts.iter().enumerate() {
        excess += part.lost - share * part.seconds() / 2.0;
        if excess > most {
            (most, first) = (excess, at);
        }
    }
    let last = (0..parts.len()).find(has_lost).filter(|last| few && *last < first)?;
    let sum: f64 = parts[last..first].iter().map(|part| part.lost).sum();
    let span = parts[last].end - parts[first].end;
    // If the next one is late, it has become less.
    let usual = span / (last..first).filter(has_lost).count() as f64;
    Some(sum / (span + (now - parts[last].end - usual).max(0.0)))
}
