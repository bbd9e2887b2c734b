//! What one place of a heatmap shows, and how it looks.

use ratatui::{buffer::Buffer, style::Style};

use crate::{
    glyph::{ASIDE, RAMP, UNKNOWN, WAITING},
    palette::{Palette, Role},
};

/// From harmless to worst: folded, the greatest decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// No rank belongs here.
    Absent,
    /// Somebody looks for other ranks.
    Aside,
    /// The rank has not said it.
    Unknown,
    /// It says nothing of it, because it waits for another.
    Waits,
    Value {
        value: f64,
        step: usize,
        /// How much worse than its fellows.
        badness: f64,
        /// Drawn on it where it is bad enough.
        sign: Option<&'static str>,
    },
    /// What it said is old.
    Stale { value: Option<f64> },
    /// The job stands for it.
    Alarm,
}

impl Cell {
    fn severity(self) -> (u8, f64) {
        match self {
            Self::Absent => (0, 0.0),
            Self::Aside => (1, 0.0),
            Self::Unknown => (2, 0.0),
            Self::Waits => (3, 0.0),
            Self::Value { badness, .. } => (4, badness),
            Self::Stale { .. } => (5, 0.0),
            Self::Alarm => (6, 0.0),
        }
    }

    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        if other.severity() > self.severity() { other } else { self }
    }

    pub(super) fn ground(self, palette: Palette) -> Style {
        match self {
            Self::Value { step, .. } => palette.heat(step),
            Self::Stale { .. } => palette.stale(),
            Self::Alarm => Style::new().bg(palette.of(Role::Alarm).fg.unwrap_or_default()),
            Self::Absent | Self::Aside | Self::Unknown | Self::Waits => Style::new(),
        }
    }

    /// Nothing written on it; without colours what stands for its step.
    pub(super) fn blank(self, palette: Palette, width: usize) -> String {
        match self {
            Self::Value { step, .. } if !palette.has_colour() => String::from(RAMP[step]).repeat(width),
            _ => " ".repeat(width),
        }
    }
}

/// Two cells in a terminal line: the upper half is the letter's colour, the lower half its ground.
pub(super) fn draw_halves(
    halves: (Option<Cell>, Option<Cell>),
    (x, y): (u16, u16),
    palette: Palette,
    buffer: &mut Buffer,
) {
    let colour = |cell: Option<Cell>| cell?.ground(palette).bg;
    let either = |cell| halves.0 == Some(cell) || halves.1 == Some(cell);
    let (symbol, style) = match (colour(halves.0), colour(halves.1)) {
        (Some(upper), Some(lower)) => ("▀", Style::new().fg(upper).bg(lower)),
        (Some(upper), None) => ("▀", Style::new().fg(upper)),
        (None, Some(lower)) => ("▄", Style::new().fg(lower)),
        (None, None) if either(Cell::Waits) => (WAITING, palette.of(Role::Muted)),
        (None, None) if either(Cell::Unknown) => (UNKNOWN, palette.of(Role::Faint)),
        (None, None) if either(Cell::Aside) => (ASIDE, palette.of(Role::Faint)),
        (None, None) => return,
    };
    buffer.set_string(x, y, symbol, style);
}
