//! The denominator of figures: a step, or a second of the recorded period.

use serde::Serialize;

use super::Capture;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    Step,
    Second,
}

impl Per {
    pub fn word(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Second => "second",
        }
    }
}

impl Capture {
    pub fn per(&self) -> Per {
        if self.window.is_some() { Per::Second } else { Per::Step }
    }
}

/// A value of `length` nanoseconds, per second.
pub(super) fn per_second(value: f64, length: u64) -> f64 {
    value * 1e9 / length.max(1) as f64
}
