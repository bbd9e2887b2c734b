//! Earlier losses, in segments. Older segments are longer.

use std::{collections::VecDeque, time::Duration};

use xpu_wire::unit::Moment;

use super::super::rank::push_bounded;

/// Segments of these lengths, by the host's clock, and the number kept of each: ten minutes, two hours, a
/// day. They are the same for all viewers, whenever they connected.
const SEGMENTS: [(Duration, usize); 3] =
    [(Duration::from_secs(15), 40), (Duration::from_mins(2), 60), (Duration::from_mins(15), 96)];

/// The segments of each length, oldest first.
#[derive(Debug, Default)]
pub(super) struct Losses([VecDeque<Segment>; SEGMENTS.len()]);

/// A moment and the loss from then on, both in seconds, so that a day of ten thousand ranks fits into memory.
/// The segment ends where the next one begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    from: u32,
    lost: f32,
}

impl Segment {
    /// Seconds lost from a moment on.
    pub(super) fn new(from: Moment, lost: f64) -> Self {
        Self { from: u32::try_from(from.0 / 1_000_000_000).unwrap_or(u32::MAX), lost: lost as f32 }
    }

    pub(super) fn began(self) -> Moment {
        Moment(u64::from(self.from) * 1_000_000_000)
    }

    /// Seconds.
    pub(super) fn lost(self) -> f64 {
        f64::from(self.lost)
    }
}

impl Losses {
    /// The loss from a moment on.
    pub(super) fn take(&mut self, segment: Segment) {
        let mut next = Some(segment);
        for (kept, (length, most)) in self.0.iter_mut().zip(SEGMENTS) {
            let Some(segment) = next.take() else { return };
            let number = |of: Segment| u64::from(of.from) / length.as_secs();
            if let Some(last) = kept.back_mut().filter(|last| number(**last) == number(segment)) {
                last.lost += segment.lost;
                continue;
            }
            next = if kept.len() == most { kept.pop_front() } else { None };
            push_bounded(kept, segment, most);
        }
    }

    /// The start and the seconds lost of each segment that is kept.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (Moment, f64)> {
        self.0.iter().flat_map(|kept| kept.iter().rev()).map(|segment| (segment.began(), segment.lost()))
    }
}
