//! The average of a delay that comes in single events, over the time since it began.

/// Number of parts over which it is averaged, if it began that long ago: two minutes, because a digest takes
/// a second or longer. They contain about a dozen pauses of several seconds.
pub(super) const MOST: usize = 120;

/// The loss of a digest, in seconds. Its start and end are relative to one moment.
pub(super) struct Part {
    pub(super) begin: f64,
    pub(super) end: f64,
    pub(super) lost: f64,
}

impl Part {
    pub(super) fn seconds(&self) -> f64 {
        self.end - self.begin
    }
}

/// The average loss since it began, if only few of the `recent` parts have a loss; `share` is the recent loss
/// as a share of the time. It covers `parts`, newest first, from the first part with a loss, which is not
/// counted, to the last one. `now`: the end of the newest part.
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
    // If the next loss is overdue, losses have become rarer.
    let usual = span / (last..first).filter(has_lost).count() as f64;
    Some(sum / (span + (now - parts[last].end - usual).max(0.0)))
}
