//! The processor's time stamp counter as a clock. The hook's thread compares it with the monotonic clock, and calls
//! convert its ticks by the last comparison. So the error is that of one comparison, however long the process runs.

use std::{
    fs,
    sync::{
        OnceLock,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
            fence,
        },
    },
};

use super::monotonic;

/// Shortest time between two comparisons, in nanoseconds: over a shorter time, the rate is less exact.
const COMPARED_EVERY: u64 = 100_000_000;

/// Longest time, in nanoseconds, over which a comparison gives the rate, and for which it is used. The hook's
/// thread may have been stopped, and the machine suspended.
const VALID: u64 = 2_000_000_000;

/// Largest number of ticks between the two readings of the counter at a comparison, about a microsecond: more mean that
/// the thread was interrupted.
const TIGHT: u64 = 2_000;

/// Number of attempts at a comparison.
const ATTEMPTS: usize = 4;

/// Largest change of the rate between two comparisons, as a part of it. The kernel changes the rate of the monotonic
/// clock by at most 1/2000.
const STEADY: u64 = 1_000;

/// The clocksource with which the kernel itself reads time from the counter, so its CPUs agree about it.
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The last comparison. A reader that meets a write reads the clock instead.
static COMPARISON: Comparison = Comparison {
    version: AtomicU32::new(0),
    ticks: AtomicU64::new(0),
    at: AtomicU64::new(0),
    rate: AtomicU64::new(0),
};

#[derive(Debug)]
struct Comparison {
    /// An uneven number during a write.
    version: AtomicU32,
    ticks: AtomicU64,
    at: AtomicU64,
    /// Nanoseconds per tick, times 2^32; 0 if it is unknown.
    rate: AtomicU64,
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    at: u64,
}

/// Monotonic nanoseconds. `None` without a usable counter, and without a recent comparison.
#[inline]
pub(super) fn approximate() -> Option<u64> {
    let version = COMPARISON.version.load(Acquire);
    let (ticks, at, rate) =
        (COMPARISON.ticks.load(Relaxed), COMPARISON.at.load(Relaxed), COMPARISON.rate.load(Relaxed));
    fence(Acquire);
    if rate == 0 || version % 2 == 1 || COMPARISON.version.load(Relaxed) != version {
        return None;
    }
    let passed = nanoseconds(self::ticks().wrapping_sub(ticks), rate)?;
    Some(at + passed)
}

/// The duration of this many ticks, if it is shorter than [`VALID`]. A counter that was behind the comparison, as by a
/// few ticks on another CPU, has wrapped.
#[inline]
fn nanoseconds(ticks: u64, rate: u64) -> Option<u64> {
    let passed = (u128::from(ticks) * u128::from(rate)) >> 32;
    (passed < u128::from(VALID)).then_some(passed as u64)
}

/// Compares the clocks, if the last comparison is old enough. Only for the hook's thread, at every turn.
pub(crate) fn compare() {
    static IS_USABLE: OnceLock<bool> = OnceLock::new();
    let known = Reading { ticks: COMPARISON.ticks.load(Relaxed), at: COMPARISON.at.load(Relaxed) };
    if monotonic().saturating_sub(known.at) < COMPARED_EVERY || !*IS_USABLE.get_or_init(is_usable) {
        return;
    }
    let Some(now) = Reading::take() else { return };
    let rate = rate(known, now, COMPARISON.rate.load(Relaxed));
    COMPARISON.store(now, rate);
}

/// The rate between two readings; 0 if they do not show it, or if it has changed.
fn rate(known: Reading, now: Reading, last: u64) -> u64 {
    let (passed, ticks) = (now.at.saturating_sub(known.at), now.ticks.saturating_sub(known.ticks));
    if known.ticks == 0 || passed >= VALID || ticks == 0 {
        return 0;
    }
    let rate = u64::try_from((u128::from(passed) << 32) / u128::from(ticks)).unwrap_or(0);
    // After a change, the next comparison decides.
    if last != 0 && rate.abs_diff(last) > last / STEADY { 0 } else { rate }
}

impl Comparison {
    fn store(&self, reading: Reading, rate: u64) {
        // It is uneven already if the process was forked during a write.
        let writing = self.version.load(Relaxed) | 1;
        self.version.store(writing, Relaxed);
        fence(Release);
        self.ticks.store(reading.ticks, Relaxed);
        self.at.store(reading.at, Relaxed);
        self.rate.store(rate, Relaxed);
        self.version.store(writing.wrapping_add(1), Release);
    }
}

impl Reading {
    /// `None` if the thread was interrupted at each attempt.
    fn take() -> Option<Self> {
        (0..ATTEMPTS).find_map(|_| {
            let before = ticks();
            let at = monotonic();
            let took = ticks().wrapping_sub(before);
            (took < TIGHT).then_some(Self { ticks: before + took / 2, at })
        })
    }
}

fn is_usable() -> bool {
    runs_evenly() && fs::read(CLOCKSOURCE).is_ok_and(|name| name.trim_ascii() == b"tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has this instruction. A process that may not use it cannot read the time
    // either.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Whether the counter runs at one rate in all states of the processor ("invariant TSC").
#[cfg(target_arch = "x86_64")]
pub(crate) fn runs_evenly() -> bool {
    const ADVANCED_POWER_MANAGEMENT: u32 = 0x8000_0007;
    let cpuid = std::arch::x86_64::__cpuid;
    cpuid(0x8000_0000).eax >= ADVANCED_POWER_MANAGEMENT
        && cpuid(ADVANCED_POWER_MANAGEMENT).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn ticks() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn runs_evenly() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A reading of a counter with three ticks a nanosecond.
    fn at(ms: u64) -> Reading {
        Reading { ticks: 7 + 3 * ms * MS, at: ms * MS }
    }

    #[test]
    fn ticks_are_converted_by_the_rate_between_two_comparisons() {
        let third = rate(at(100), at(200), 0);
        assert!(third.abs_diff((1 << 32) / 3) <= 1, "{third}");
        assert_eq!(nanoseconds(3_000, third), Some(999));
        assert_eq!(nanoseconds(3 * VALID + 3, third), None, "the comparison is too old");
        assert_eq!(nanoseconds(0_u64.wrapping_sub(9), third), None, "before the comparison");
    }

    #[test]
    fn a_rate_is_unknown_at_first_after_a_pause_and_after_a_change() {
        assert_eq!(rate(Reading { ticks: 0, at: 0 }, at(100), 0), 0);
        assert_eq!(rate(at(100), at(100 + VALID / MS), 0), 0);
        assert_eq!(
            rate(at(200), Reading { ticks: at(100).ticks, ..at(300) }, 0),
            0,
            "the counter was set back"
        );
        let known = rate(at(100), at(200), 0);
        let jumped = Reading { ticks: at(300).ticks + MS, ..at(300) };
        assert_eq!(rate(at(200), jumped, known), 0);
        assert_eq!(rate(jumped, Reading { ticks: at(400).ticks + MS, ..at(400) }, 0), known);
    }

    /// The exact clock is read before and after, so a busy machine makes no difference.
    #[test]
    fn the_counter_and_the_clock_agree() {
        if !is_usable() {
            return;
        }
        let begin = monotonic();
        let mut read = 0;
        while monotonic() - begin < 600 * MS {
            super::compare();
            let before = monotonic();
            let found = approximate();
            let after = monotonic();
            if let Some(found) = found {
                read += 1;
                assert!((before - 20_000..=after + 20_000).contains(&found), "{before} {found} {after}");
            }
        }
        assert!(read > 0);
    }
}
