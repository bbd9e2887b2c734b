//! The source of step ends (`XPU_TOP_STEPS`), and how many steps are timed on the GPU.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use xpu_wire::{frame::StepSource, sampling::Rate};

use crate::publish::budget;

/// The values of the setting. By default, the most reliable available source counts.
const ANY: u8 = 0;
const NOBODY: u8 = 1;
const MARKED: u8 = 2;
const OPTIMIZER: u8 = 3;
const DETECTED: u8 = 4;

static WANTED: AtomicU8 = AtomicU8::new(ANY);
static RATE: AtomicU8 = AtomicU8::new(Rate::EVERY.0);

/// Part of the budget spent on timing steps.
const SHARE: f64 = 0.25;

/// Parses `marked`, `optimizer`, `detected` or `off`. Invalid text changes nothing, and is returned to be
/// reported.
pub(crate) fn set_from(text: &str) -> Result<(), String> {
    let wanted = match text.trim() {
        "marked" => MARKED,
        "optimizer" => OPTIMIZER,
        "detected" => DETECTED,
        "off" => NOBODY,
        _ => return Err(format!("XPU_TOP_STEPS: '{text}' is not marked, optimizer, detected or off")),
    };
    WANTED.store(wanted, Relaxed);
    Ok(())
}

/// Whether this source's steps are counted.
pub(crate) fn counts(source: StepSource) -> bool {
    let own = match source {
        StepSource::Marked => MARKED,
        StepSource::Optimizer => OPTIMIZER,
        StepSource::Detected | StepSource::DetectedLate => DETECTED,
    };
    let wanted = WANTED.load(Relaxed);
    wanted == ANY || wanted == own
}

/// The rate at which steps are timed on the GPU.
pub(crate) fn rate() -> Rate {
    Rate(RATE.load(Relaxed))
}

/// Sets the rate: steps take `pace` nanoseconds, a pair of events costs `cost` nanoseconds, and the budget
/// limits the number of timed steps.
pub(crate) fn govern(pace: u64, cost: u64) {
    let rate = match budget::ppm() {
        None => Rate::EVERY,
        Some(0) => Rate::NEVER,
        Some(ppm) => within(pace as f64 * f64::from(ppm) / 1e6 * SHARE, cost as f64),
    };
    RATE.store(rate.0, Relaxed);
}

/// The finest rate at which timings of this cost take at most `allowed` per step.
fn within(allowed: f64, cost: f64) -> Rate {
    let one_in = if cost <= allowed { 1.0 } else { (cost / allowed.max(1.0)).min((1_u64 << 20) as f64) };
    Rate::one_in((one_in.ceil() as u64).next_power_of_two()).unwrap_or(Rate::EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_chosen_or_the_word_is_refused() {
        assert!(
            [StepSource::Marked, StepSource::Optimizer, StepSource::Detected]
                .map(counts)
                .iter()
                .all(|&on| on)
        );
        set_from(" optimizer ").unwrap();
        assert_eq!(
            [StepSource::Marked, StepSource::Optimizer, StepSource::Detected].map(counts),
            [false, true, false]
        );
        let said = set_from("never").unwrap_err();
        assert!(said.contains("XPU_TOP_STEPS") && said.contains("detected"), "{said}");
        assert!(counts(StepSource::Optimizer), "a wrong word changes nothing");
        set_from("off").unwrap();
        assert!(!counts(StepSource::Marked));
    }

    #[test]
    fn short_steps_are_timed_now_and_then() {
        assert_eq!(within(2_500.0, 2_000.0), Rate::EVERY);
        assert_eq!(Some(within(500.0, 2_000.0)), Rate::one_in(4));
        assert_eq!(Some(within(0.0, 2_000.0)), Rate::one_in(2048));
    }
}
