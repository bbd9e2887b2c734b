//! The layout class of the screen, decided once from the size of the terminal.
#![forbid(unsafe_code)]

use ratatui::layout::Rect;

/// Below this size, only one line is drawn.
pub const LEAST: (u16, u16) = (60, 20);

/// The layout class, by which alone every view chooses its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breakpoint {
    /// Less than 60x20: one line.
    Cramped,
    /// From 60 columns: the fewest words.
    Narrow,
    /// From 80 columns.
    Medium,
    /// From 120 columns and 30 lines: figures as tiles.
    Wide,
}

impl Breakpoint {
    pub fn of(area: Rect) -> Self {
        match (area.width, area.height) {
            (width, height) if width < LEAST.0 || height < LEAST.1 => Self::Cramped,
            (width, height) if width >= 120 && height >= 30 => Self::Wide,
            (width, _) if width >= 80 => Self::Medium,
            _ => Self::Narrow,
        }
    }
}
