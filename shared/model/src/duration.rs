//! Durations as people write them.

use std::{str::FromStr, time::Duration};

const DAY: u64 = 86_400;

/// `90`, `90s`, `10m`, `1h30m`, `250ms`.
pub fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |next| digits + next);
        let one = match &rest[digits..unit] {
            "ms" | " ms" => Duration::from_millis(1),
            "s" | "" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            "d" => Duration::from_secs(DAY),
            _ => return None,
        };
        total = total.checked_add(one.checked_mul(u32::try_from(number).ok()?)?)?;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(total)
}

/// Interval between a collector's estimates of what stragglers cost; 0 switches them off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WhatIfEvery(pub Option<Duration>);

impl WhatIfEvery {
    /// The variable that sets it.
    pub const VARIABLE: &str = "XPU_TOP_WHAT_IF_EVERY";
}

impl FromStr for WhatIfEvery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usual = Duration::from_secs(1)..=Duration::from_secs(DAY);
        match duration(text) {
            Some(Duration::ZERO) => Ok(Self(None)),
            Some(every) if usual.contains(&every) => Ok(Self(Some(every))),
            _ => Err("write a time like 90s, 5m or 1h, a day at most; 0: off".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_huge_ones_refused() {
        assert_eq!(duration("90"), Some(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        for wrong in ["", "m", "1x", "99999999999999999999s", "4294967296h", "1h-3m"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_interval_is_a_second_to_a_day_and_0_is_off() {
        let every = |text: &str| text.parse::<WhatIfEvery>().map(|WhatIfEvery(every)| every);
        assert_eq!(every("300"), Ok(Some(Duration::from_mins(5))));
        assert_eq!((every("0"), every("1d")), (Ok(None), Ok(Some(Duration::from_hours(24)))));
        for wrong in ["", "250ms", "25h", "often"] {
            assert!(every(wrong).is_err(), "{wrong}");
        }
    }
}
