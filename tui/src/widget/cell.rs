//! The content of one place of a heatmap, and its look.

use ratatui::{buffer::Buffer, layout::Position, style::Style};

use crate::{
    glyph::{ALARM, ASIDE, RAMP, UNKNOWN, WAITING},
    palette::{Palette, Role},
};

/// The content of a cell, ordered from harmless to worst. Of folded ranks, the worst is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// No rank belongs here.
    Absent,
    /// The filter leaves the rank out.
    Aside,
    /// The rank has not reported the value.
    Unknown,
    /// The rank has no current value, because it waits for another rank.
    Waits,
    Value {
        value: f64,
        step: usize,
        /// How much worse it is than the others.
        badness: f64,
        /// A sign drawn on the cell, if the value is bad enough.
        sign: Option<&'static str>,
    },
    /// The rank's report is old.
    Stale { value: Option<f64> },
    /// The job hangs because of it.
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

    /// Whether it has a problem, which must not be shown by colour alone.
    fn needs_emphasis(self) -> bool {
        matches!(self, Self::Value { sign: Some(_), .. } | Self::Stale { .. } | Self::Alarm)
    }

    /// The cell without its figure.
    pub(super) fn look(self, palette: Palette, width: usize) -> (String, Style) {
        let centred = |text: &str| format!("{text:^width$}");
        let ground = self.ground(palette);
        match self {
            Self::Absent => (" ".repeat(width), Style::new()),
            Self::Aside => (ASIDE.repeat(width), palette.of(Role::Faint)),
            Self::Unknown => (centred(UNKNOWN), palette.of(Role::Faint)),
            Self::Waits => (centred(WAITING), palette.of(Role::Muted)),
            Self::Alarm => (centred(ALARM), palette.stale().patch(palette.of(Role::Alarm))),
            Self::Stale { .. } => (centred(UNKNOWN), ground),
            Self::Value { sign: Some(sign), .. } => (centred(sign), ground),
            Self::Value { .. } => (self.blank(palette, width), ground),
        }
    }

    /// The cell without text; without colours, the glyph of its step.
    pub(super) fn blank(self, palette: Palette, width: usize) -> String {
        match self {
            Self::Value { step, .. } if !palette.has_colour() => String::from(RAMP[step]).repeat(width),
            _ => " ".repeat(width),
        }
    }
}

/// Draws two cells in a terminal line: the upper half has the colour of the letter, the lower half that of
/// the background. If one of them needs a sign, the worse one takes the whole place, with its sign.
pub(super) fn draw_halves(
    upper: Option<Cell>,
    lower: Option<Cell>,
    Position { x, y }: Position,
    palette: Palette,
    buffer: &mut Buffer,
) {
    let worst = [upper, lower].into_iter().flatten().reduce(Cell::worse);
    if let Some(worst) = worst.filter(|worst| worst.needs_emphasis()) {
        let (sign, style) = worst.look(palette, 1);
        buffer.set_string(x, y, sign, style);
        return;
    }
    let colour = |cell: Option<Cell>| cell?.ground(palette).bg;
    let either = |cell| upper == Some(cell) || lower == Some(cell);
    let (symbol, style) = match (colour(upper), colour(lower)) {
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

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;
    use crate::{
        glyph::LOW,
        palette::{Depth, Theme},
    };

    fn drawn(upper: Cell, lower: Cell) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 1, 1));
        let palette = Palette::new(Depth::True, Theme::default());
        draw_halves(Some(upper), Some(lower), Position::ORIGIN, palette, &mut buffer);
        buffer[(0, 0)].symbol().to_owned()
    }

    #[test]
    fn half_a_cell_that_is_bad_has_its_sign_too() {
        let value = |step, badness, sign| Cell::Value { value: 1.0, step, badness, sign };
        let (good, bad) = (value(4, 0.0, None), value(0, 9.0, Some(LOW)));
        assert_eq!(drawn(good, good), "▀");
        assert_eq!((drawn(good, bad), drawn(bad, good)), (LOW.to_owned(), LOW.to_owned()));
        assert_eq!(drawn(good, Cell::Stale { value: None }), UNKNOWN);
        assert_eq!(drawn(Cell::Alarm, bad), ALARM);
        assert_eq!(drawn(Cell::Waits, Cell::Waits), WAITING);
    }
}
