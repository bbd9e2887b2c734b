//! The screen in plain ASCII. Every symbol has its own replacement. The finished picture is converted, so
//! views are independent of it.

use ratatui::{buffer::Buffer, layout::Rect};
use unicode_width::UnicodeWidthStr as _;

/// Replaces letters of names that ASCII lacks.
const FOREIGN: &str = "?";

/// The replacement of a symbol, one column wide; `None` for letters of names.
pub fn ascii(symbol: &str) -> Option<&'static str> {
    let mut letters = symbol.chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else { return None };
    Some(match letter {
        // States, all different.
        '●' => "*",
        '▲' => "!",
        '✖' => "X",
        '◌' => "o",
        '○' => "0",
        '◷' => "~",
        '▼' => "v",
        '▶' | '▷' | '›' => ">",
        '◀' | '◁' | '‹' => "<",
        '◆' => "@",
        '·' => ".",
        '…' => "~",
        '↑' => "^",
        '↓' => "v",
        '→' => ">",
        '←' => "<",
        // Bars, by how much of the cell they fill.
        '▁' => "_",
        '▂' => ".",
        '▃' => "-",
        '▄' => "=",
        '▅' => "+",
        '▆' => "*",
        '▇' => "%",
        '█' | '▰' | '■' => "#",
        '▉' | '▊' | '▋' => "=",
        '▍' | '▎' => "-",
        '▱' | '□' => ".",
        '░' => ":",
        '▒' => "+",
        '▓' => "%",
        '▌' | '▐' | '▏' => "|",
        '▀' => "\"",
        // Frames.
        '─' | '╌' | '┄' | '╴' | '╶' | '–' | '—' | '−' => "-",
        '━' | '═' => "=",
        '│' | '╎' | '┆' | '┃' | '║' => "|",
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' | '╭' | '╮' | '╰' | '╯' => {
            "+"
        }
        // Units.
        'µ' | 'μ' => "u",
        '°' => "'",
        '×' => "x",
        '±' | '≈' => "~",
        '≥' => ">",
        '≤' => "<",
        'σ' => "s",
        'Δ' => "d",
        '“' | '”' => "\"",
        '‘' | '’' => "'",
        _ => return None,
    })
}

/// Replaces everything by its ASCII form.
pub(crate) fn to_ascii(area: Rect, buffer: &mut Buffer) {
    for y in area.top()..area.bottom() {
        let mut x = area.left();
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            if symbol.is_ascii() {
                x += 1;
                continue;
            }
            let (form, width) = match ascii(symbol) {
                Some(form) => (form, 1),
                None => (FOREIGN, symbol.width().max(1) as u16),
            };
            for column in x..(x + width).min(area.right()) {
                buffer[(column, y)].set_symbol(form);
            }
            x += width;
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::glyph;

    #[test]
    fn a_wide_letter_takes_as_many_columns_as_before() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
        buffer.set_string(0, 0, "a日本▲é│b", Style::new());
        to_ascii(buffer.area, &mut buffer);
        let line: String = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        assert_eq!(line, "a????!?|b ");
    }

    #[test]
    fn states_are_distinguished() {
        let states = [glyph::GOOD, glyph::WARNING, glyph::ALARM, glyph::WAITING, glyph::ENDED, glyph::STALE];
        let mut forms: Vec<_> = states.iter().map(|state| ascii(state).unwrap()).collect();
        forms.sort_unstable();
        forms.dedup();
        assert_eq!(forms.len(), states.len());
        let bars: std::collections::BTreeSet<_> =
            glyph::BARS.iter().map(|bar| ascii(&bar.to_string()).unwrap()).collect();
        assert_eq!(bars.len(), glyph::BARS.len());
        assert!(
            glyph::RAMP.iter().all(|step| ascii(&step.to_string()).is_some_and(|form| form.width() == 1))
        );
    }
}
