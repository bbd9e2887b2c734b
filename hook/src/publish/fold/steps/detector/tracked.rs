//! The known period, and how its steps are counted.

use super::super::period::Period;
use crate::observe::launches::Marker;

/// Two periods of this many launches are not multiples of each other by chance.
const LONG: u32 = 64;

/// A period by which steps are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    pub launches: u32,
    pub names: u64,
    pub marker: Marker,
    pub by: By,
    /// The launch to count if the total turns out to count more than steps.
    pub instead: Option<Marker>,
    /// Steps by the GEMMs, and by the total, when the GEMMs last showed one more.
    pub compared: Option<(u64, u64)>,
    /// Then the total showed too many.
    pub is_suspect: bool,
    /// Steps before the count.
    pub base: u64,
    /// There may have been more steps before.
    pub is_late: bool,
}

impl Tracked {
    /// Whether this period is the known one. A check may find twice the known period, if that already repeats
    /// often enough while the known one, with exact sizes, does not yet.
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
    /// The total of an operation that other ranks share.
    Total,
    /// Its launches since the period was found.
    Launches,
}
