//! The content of a capture: steps, or a period.

use std::fmt;

use xpu_model::figure;
use xpu_wire::{
    frame::{CaptureOrder, CaptureWindow},
    id::Step,
    unit::Nanoseconds,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Steps { first: Step, last: Step },
    Time(Nanoseconds),
}

impl Extent {
    pub fn of(order: CaptureOrder, window: Option<CaptureWindow>) -> Self {
        match window {
            Some(window) => Self::Time(window.length),
            None => Self::Steps { first: order.first, last: order.last() },
        }
    }

    /// `steps 16,712 to 16,714`, `500 ms`
    pub fn on_screen(self) -> String {
        match self {
            Self::Steps { first, last } => {
                format!("steps {} to {}", figure::count(first.0), figure::count(last.0))
            }
            Self::Time(_) => self.to_string(),
        }
    }

    /// `16712-16714`, `500 ms`
    pub fn short(self) -> String {
        match self {
            Self::Steps { first, last } => format!("{first}-{last}"),
            Self::Time(_) => self.to_string(),
        }
    }
}

/// `steps 812 to 814`, `500 ms`
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps { first, last } => write!(f, "steps {first} to {last}"),
            Self::Time(length) => f.write_str(&figure::short_time(*length)),
        }
    }
}
