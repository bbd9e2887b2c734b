//! Every symbol with a meaning. A colour never means more than its glyph.
#![forbid(unsafe_code)]

mod ascii;

use xpu_model::{finding::Kind, stack::Class, status::RankState};

use crate::palette::Role;
pub use ascii::ascii;
pub(crate) use ascii::to_ascii;

pub const GOOD: &str = "●";
pub const WARNING: &str = "▲";
pub const ALARM: &str = "✖";
pub const WAITING: &str = "◌";
pub const ENDED: &str = "○";
pub const STALE: &str = "◷";
/// Not observed, because it was switched off.
pub const OFF: &str = "◌";
/// Useful information.
pub const HINT: &str = "›";
/// The part that has arrived, and the part that has not.
pub const FULL: &str = "▰";
pub const EMPTY: &str = "▱";
/// An unknown value.
pub const UNKNOWN: &str = "·";
/// Before a lower bound.
pub const AT_LEAST: &str = "≥";
/// A value well below the others.
pub const LOW: &str = "▼";
/// A value well above the others, where less is better.
pub const HIGH: &str = "▲";
pub const ELLIPSIS: char = '…';
pub const RISING: &str = "↑";
pub const FALLING: &str = "↓";
/// Marks the error in a line from below.
pub const CARET: &str = "^";
/// A rank that does not match the filter.
pub const ASIDE: &str = "╌";
/// Left of the row that is selected.
pub const CURSOR: &str = "▌";

/// A branch of the stacks that is open, and one that is closed.
pub const OPEN: &str = "▼";
pub const CLOSED: &str = "▶";

/// Heights of a sparkline, lowest first. The two highest are left out, because lines below each other must
/// not touch.
pub const BARS: [char; 6] = ['▁', '▂', '▃', '▄', '▅', '▆'];

/// Replaces bars that are all equal.
pub const LEVEL: &str = "─";

/// A cell of a plot, from an eighth of its height to all of it.
pub const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The line from the usual value up to the worst one.
pub const WHISKER: &str = "│";

/// Pieces of a bar: known time, time known to be lost, and unknown time.
pub const SOLID: &str = "█";
pub const SHADED: &str = "▒";
pub const UNCLEAR: &str = "░";

/// One cell of a bar.
pub const BAR: &str = "■";

/// One step of a scale that is drawn in its colour.
pub const SWATCH: char = '■';

/// A heatmap's steps without colours, lowest first.
pub const RAMP: [char; 8] = ['░', '░', '▒', '▒', '▓', '▓', '█', '█'];

/// A state: its glyph, its word, and its emphasis.
#[derive(Clone, Copy, Debug)]
pub struct Sign {
    pub glyph: &'static str,
    pub word: &'static str,
    pub role: Role,
}

pub fn state(state: RankState) -> Sign {
    match state {
        RankState::Ok => Sign { glyph: GOOD, word: "ok", role: Role::Good },
        RankState::Waiting => Sign { glyph: WAITING, word: "waits", role: Role::Muted },
        RankState::Slow => Sign { glyph: WARNING, word: "slow", role: Role::Warning },
        RankState::Hung => Sign { glyph: ALARM, word: "hung", role: Role::Alarm },
        RankState::Silent => Sign { glyph: STALE, word: "silent", role: Role::Warning },
        RankState::Exited => Sign { glyph: ALARM, word: "exited", role: Role::Alarm },
    }
}

/// The subject of a finding about a rank that otherwise works normally.
pub fn named(kind: Kind) -> &'static str {
    match kind {
        Kind::Device => "gpu",
        Kind::SlowLink => "link",
        Kind::SlowRank | Kind::Regression => "slow",
        Kind::Exited | Kind::Hang => "named",
    }
}

/// A frame's kind, in two letters and in colour.
pub fn frame(class: Class) -> (&'static str, Role) {
    match class {
        Class::State => ("os", Role::System),
        Class::Role => ("  ", Role::Strong),
        Class::Python => ("py", Role::Python),
        Class::Torch => ("pt", Role::Torch),
        Class::C => ("c ", Role::Native),
        Class::Cpp => ("c+", Role::Native),
    }
}

/// The meaning of the letters.
pub fn frame_means(class: Class) -> &'static str {
    match class {
        Class::State => "kernel",
        Class::Role => "thread",
        Class::Python => "Python",
        Class::Torch => "torch, NCCL, CUDA",
        Class::C => "C",
        Class::Cpp => "C++, Rust",
    }
}
