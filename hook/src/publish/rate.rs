//! The sampling rate of each class of operations: set by the governor, or fixed by the user.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering::Relaxed};

use xpu_wire::sampling::Rate;

/// Operations with a common sampling rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Gemm,
    /// Collectives. Each communicator has its own rate; the rate of this class is the initial one, and later
    /// that of the busiest communicator.
    Collective,
    PointToPoint,
    Graph,
    /// Kernels with requested names.
    Kernel,
    /// Waits for communication by a stream of GEMMs.
    Wait,
}

impl Class {
    pub(crate) const ALL: [Self; 6] =
        [Self::Gemm, Self::Collective, Self::PointToPoint, Self::Graph, Self::Kernel, Self::Wait];
}

/// The initial rate. A pair of events for every GEMM costs up to 7 % of a step; for one GEMM in sixteen, the
/// cost was too small to measure.
pub(crate) const FIRST: Rate = Rate(4);

/// Marks a class without a fixed rate.
const GOVERNED: u8 = u8::MAX;

static RATES: [AtomicU8; Class::ALL.len()] = [const { AtomicU8::new(FIRST.0) }; Class::ALL.len()];
static FIXED: [AtomicU8; Class::ALL.len()] = [const { AtomicU8::new(GOVERNED) }; Class::ALL.len()];

/// The saved values of [`FIXED`], which are restored when a capture ends.
static SAVED: [AtomicU8; Class::ALL.len()] = [const { AtomicU8::new(GOVERNED) }; Class::ALL.len()];
static ALL_TIMED: AtomicBool = AtomicBool::new(false);

/// How many GEMMs may be timed because of their shape, although their number does not select them.
pub(crate) static SHAPES: Allowance = Allowance::new();

/// How many consecutive waits may be timed now. The last wait of a step may be the only long one, and
/// scattered samples would miss it.
pub(crate) static ROUND: Allowance = Allowance::new();

/// How many operations may be timed.
#[derive(Debug)]
pub(crate) struct Allowance(AtomicI64);

#[inline]
pub(crate) fn of(class: Class) -> Rate {
    at(class, &RATES[class as usize])
}

/// The rate in `governed`, unless the class has a fixed rate.
#[inline]
pub(crate) fn at(class: Class, governed: &AtomicU8) -> Rate {
    let fixed = FIXED[class as usize].load(Relaxed);
    Rate(if fixed == GOVERNED { governed.load(Relaxed) } else { fixed })
}

pub(crate) fn fixed(class: Class) -> Option<Rate> {
    Some(Rate(FIXED[class as usize].load(Relaxed))).filter(|rate| rate.0 != GOVERNED)
}

/// Sets the governor's rate.
pub(crate) fn govern(class: Class, rate: Rate) {
    RATES[class as usize].store(rate.0, Relaxed);
}

/// Sets a fixed rate; `None` leaves the class to the governor. Sends and receives get the rate of
/// collectives.
pub(crate) fn fix(class: Class, rate: Option<Rate>) {
    let rate = rate.map_or(GOVERNED, |rate| rate.0);
    let rates = if ALL_TIMED.load(Relaxed) { &SAVED } else { &FIXED };
    rates[class as usize].store(rate, Relaxed);
    if class == Class::Collective {
        rates[Class::PointToPoint as usize].store(rate, Relaxed);
    }
}

/// Times everything, or restores the rates. Launching threads need not read an additional word for this.
pub(crate) fn time_all(on: bool) {
    if ALL_TIMED.swap(on, Relaxed) == on {
        return;
    }
    for (fixed, saved) in FIXED.iter().zip(&SAVED) {
        if on {
            saved.store(fixed.swap(Rate(0).0, Relaxed), Relaxed);
        } else {
            fixed.store(saved.load(Relaxed), Relaxed);
        }
    }
}

pub(crate) fn fix_all(rate: Option<Rate>) {
    for class in Class::ALL {
        fix(class, rate);
    }
}

impl Allowance {
    pub(crate) const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Takes one from the allowance. `false` if none is left.
    #[cold]
    pub(crate) fn take(&self) -> bool {
        self.0.load(Relaxed) > 0 && self.0.fetch_sub(1, Relaxed) > 0
    }

    /// Allows `more`, up to `most` in total.
    pub(crate) fn add(&self, more: i64, most: i64) {
        let _ = self.0.fetch_update(Relaxed, Relaxed, |left| Some((left.max(0) + more).min(most)));
    }
}

/// Parses `gemm=16,collective=8`. An invalid part changes nothing, and is returned to be reported.
pub(crate) fn set_from(text: &str) -> Result<(), String> {
    let mut set = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let wrong = || {
            format!(
                "XPU_TOP_SAMPLE: '{part}' is not gemm=N, collective=N, graph=N, kernel=N or wait=N with N a power of two up to 2^20"
            )
        };
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let rate = value.trim().parse().ok().and_then(Rate::one_in).ok_or_else(wrong)?;
        let class = match name.trim() {
            "gemm" => Class::Gemm,
            "collective" => Class::Collective,
            "graph" => Class::Graph,
            "kernel" => Class::Kernel,
            "wait" => Class::Wait,
            _ => return Err(wrong()),
        };
        set.push((class, rate));
    }
    for (class, rate) in set {
        fix(class, Some(rate));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_or_refused_whole() {
        set_from("gemm=1, collective=8").unwrap();
        assert_eq!(
            [Class::Gemm, Class::Collective, Class::PointToPoint].map(of),
            [Rate(0), Rate(3), Rate(3)]
        );
        assert_eq!(fixed(Class::Graph), None);
        assert!(set_from("gemm=3").unwrap_err().contains("power of two"));
        assert!(set_from("gemm=2,flops=2").is_err());
        assert_eq!(of(Class::Gemm), Rate(0));
        fix_all(None);
        assert_eq!(of(Class::Gemm), FIRST);
    }

    #[test]
    fn timing_everything_restores_the_earlier_rates() {
        fix(Class::Gemm, Some(Rate(5)));
        time_all(true);
        assert_eq!(Class::ALL.map(of), [Rate(0); 6]);
        fix(Class::Collective, Some(Rate(2)));
        assert_eq!(of(Class::Collective), Rate(0));
        time_all(true);
        time_all(false);
        assert_eq!(
            [Class::Gemm, Class::Collective, Class::Graph].map(fixed),
            [Some(Rate(5)), Some(Rate(2)), None]
        );
        fix_all(None);
    }

    #[test]
    fn the_allowance_is_bounded_and_used_up() {
        SHAPES.add(5, 2);
        assert_eq!([(); 3].map(|()| SHAPES.take()), [true, true, false]);
        assert!(!SHAPES.take());
    }
}
