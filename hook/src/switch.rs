//! On, off, and broken: one word that every intercepted call reads first.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use xpu_shared::sampling::Rate;

/// Observing is on unless somebody turned it off.
static OFF: AtomicU8 = AtomicU8::new(0);

/// The program asked for silence (`xpu_top_set_enabled(0)`, a command, `XPU_TOP_DISABLE`).
const BY_REQUEST: u8 = 1;
/// The observer panicked, or could not be started; it stays off.
const BY_FAULT: u8 = 2;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// A pair of events on every GEMM costs up to 7 % of a step, on one in sixteen nothing that could be measured.
static GEMM_RATE: AtomicU8 = AtomicU8::new(4);
/// The same for collectives: on one in four, beside the products, 0.1 % to 0.4 % of a step could be measured.
static COLLECTIVE_RATE: AtomicU8 = AtomicU8::new(4);

#[inline]
pub(crate) fn is_on() -> bool {
    OFF.load(Relaxed) == 0
}

/// Off for good, not by request.
#[inline]
pub(crate) fn is_broken() -> bool {
    OFF.load(Relaxed) & BY_FAULT != 0
}

pub(crate) fn set(on: bool) {
    if on {
        OFF.fetch_and(!BY_REQUEST, Relaxed);
    } else {
        OFF.fetch_or(BY_REQUEST, Relaxed);
    }
}

/// Turns observing off for the rest of this process.
pub(crate) fn fail() {
    OFF.fetch_or(BY_FAULT, Relaxed);
}

/// Takes a fault back, for the next test.
#[cfg(test)]
pub(crate) fn mend() {
    OFF.store(0, Relaxed);
}

pub(crate) fn panicked() {
    PANICS.fetch_add(1, Relaxed);
    fail();
}

pub(crate) fn panics() -> u64 {
    PANICS.load(Relaxed)
}

#[inline]
pub(crate) fn gemm_rate() -> Rate {
    Rate(GEMM_RATE.load(Relaxed))
}

#[inline]
pub(crate) fn collective_rate() -> Rate {
    Rate(COLLECTIVE_RATE.load(Relaxed))
}

pub(crate) fn set_rates(gemm: Rate, collective: Rate) {
    GEMM_RATE.store(gemm.0, Relaxed);
    COLLECTIVE_RATE.store(collective.0, Relaxed);
}

/// Reads `gemm=16,collective=8`. A part that cannot be read changes nothing and is returned, to be shown.
pub(crate) fn set_rates_from(text: &str) -> Result<(), String> {
    let (mut gemm, mut collective) = (gemm_rate(), collective_rate());
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let wrong = || {
            format!("XPU_TOP_SAMPLE: '{part}' is not gemm=N or collective=N with N a power of two up to 2^20")
        };
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let rate = value.trim().parse().ok().and_then(Rate::one_in).ok_or_else(wrong)?;
        match name.trim() {
            "gemm" => gemm = rate,
            "collective" => collective = rate,
            _ => return Err(wrong()),
        }
    }
    set_rates(gemm, collective);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_or_refused_whole() {
        set_rates_from("gemm=1, collective=8").unwrap();
        assert_eq!((gemm_rate(), collective_rate()), (Rate(0), Rate(3)));
        assert!(set_rates_from("gemm=3").unwrap_err().contains("power of two"));
        assert!(set_rates_from("gemm=2,flops=2").is_err());
        assert_eq!(gemm_rate(), Rate(0));
    }

    #[test]
    fn a_fault_outlasts_a_request_to_turn_on() {
        fail();
        set(true);
        assert!(!is_on());
        mend();
    }
}
