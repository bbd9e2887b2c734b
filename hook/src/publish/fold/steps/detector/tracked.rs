//! The known period, and how its steps are counted.

use super::super::period::Period;
use crate::observe::launches::Marker;

/// Periods of at least this many launches are not multiples of each other by chance.
const LONG: u32 = 64;

/// A period by which steps are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    pub launches: u32,
    pub names: u64,
    pub marker: Marker,
    pub by: By,
    /// The launch to count if the total also counts work outside of steps.
    pub instead: Option<Marker>,
    /// The number of steps by the GEMMs, and by the total, when the number by the GEMMs last increased.
    pub compared: Option<(u64, u64)>,
    /// Whether the total then showed too many steps.
    pub is_suspect: bool,
    /// Number of steps before the count.
    pub base: u64,
    /// Whether the program may have made more steps before.
    pub is_late: bool,
}

impl Tracked {
    /// Whether this period is the known one, or a multiple of it. A check may find a multiple that already
    /// has enough repetitions, while the known period, with exact sizes, has not.
    pub(super) fn is(&self, period: &Period, is_form: bool) -> bool {
        let times = period.launches / self.launches.max(1);
        let is_multiple = period.launches == times * self.launches;
        let is_alike = period.names == self.names.wrapping_mul(times.into())
            || (is_form != self.marker.is_form && self.launches >= LONG);
        is_multiple && is_alike
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By the total of an operation that other ranks share.
    Total,
    /// By launches since the period was found.
    Launches,
}
