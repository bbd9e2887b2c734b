//! The share of wall time that the hook may take: `XPU_TOP_BUDGET` in percent, or `off` for no limit.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use xpu_wire::sampling::Rate;

use crate::publish::rate;

/// 0.1 %.
const DEFAULT: u32 = 1_000;
const UNBOUNDED: u32 = u32::MAX;
const WHOLE: f64 = 1e6;

static PPM: AtomicU32 = AtomicU32::new(DEFAULT);

/// The budget in millionths of wall time; `None` without a limit.
pub(crate) fn ppm() -> Option<u32> {
    Some(PPM.load(Relaxed)).filter(|&ppm| ppm != UNBOUNDED)
}

/// Sets the budget in percent. A negative budget means no limit; with zero, nothing is timed. Overrides fixed
/// sampling rates. `false` if `percent` is not a number.
pub(crate) fn set(percent: f64) -> bool {
    if percent.is_nan() {
        return false;
    }
    let ppm = if percent < 0.0 { UNBOUNDED } else { (percent * 1e4).round().min(WHOLE) as u32 };
    PPM.store(ppm, Relaxed);
    rate::fix_all(match ppm {
        UNBOUNDED => Some(Rate::EVERY),
        0 => Some(Rate::NEVER),
        _ => None,
    });
    true
}

/// Parses `0.1` or `off`. Invalid text changes nothing, and is returned to be reported.
pub(crate) fn set_from(text: &str) -> Result<(), String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("off") {
        set(-1.0);
        return Ok(());
    }
    let percent = text.trim_end_matches('%').trim_end().parse().ok();
    let percent = percent.filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    set(percent.ok_or_else(|| format!("XPU_TOP_BUDGET: '{text}' is neither percent of wall time nor off"))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::rate::Class;

    #[test]
    fn a_budget_is_read_or_refused() {
        for (text, budget, gemms) in
            [("off", None, Rate::EVERY), (" 0 ", Some(0), Rate::NEVER), ("0.25%", Some(2_500), rate::FIRST)]
        {
            set_from(text).unwrap();
            assert_eq!((ppm(), rate::of(Class::Gemm)), (budget, gemms), "{text}");
        }
        for wrong in ["", "much", "-1", "nan", "inf"] {
            assert!(set_from(wrong).unwrap_err().contains("XPU_TOP_BUDGET"), "{wrong}");
        }
        assert!(!set(f64::NAN));
        assert_eq!(ppm(), Some(2_500));
        assert!(set(0.1));
        assert_eq!(ppm(), Some(DEFAULT));
    }
}
