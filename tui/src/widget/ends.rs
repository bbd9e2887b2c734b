//! A line with two ends: a left and a right text, without overlap.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use super::wrap::{cut, cut_words};

/// Draws both texts into the first line of `area`; the left one is cut if needed.
pub fn draw(left: &Line<'_>, right: &Line<'_>, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let needed = u16::try_from(right.width()).unwrap_or(u16::MAX).min(area.width);
    let gap = u16::from(needed > 0);
    buffer.set_line(area.x, area.y, left, area.width.saturating_sub(needed + gap));
    buffer.set_line(area.right() - needed, area.y, right, needed);
}

/// The texts on the upper edge of a frame; those that did not fit are empty.
#[derive(Debug)]
pub struct Title {
    pub name: String,
    pub about: String,
    /// The right-aligned text.
    pub right: String,
}

/// The text on the upper edge of a frame, in `width` columns: the name, its description, and the right-aligned
/// part. The description is cut first, then the right part, and they never touch.
pub fn title(name: &str, about: &str, right: &str, width: usize) -> Title {
    let padded = |text: String| if text.is_empty() { text } else { format!(" {text} ") };
    let name = padded(cut(name, width.saturating_sub(3)));
    // A piece of the edge is visible between them.
    let left = width.saturating_sub(name.width() + 1);
    let right = padded(cut_words(right, left.saturating_sub(2)));
    let kept = cut_words(about, left.saturating_sub(right.width() + 1));
    // Less than half of a sentence is left out.
    let about = if kept.width() * 2 < about.width() { String::new() } else { kept };
    let about = if about.is_empty() { about } else { format!("{about} ") };
    Title { name, about, right }
}

/// Draws a line from margin to margin.
pub fn rule(style: Style, area: Rect, buffer: &mut Buffer) {
    let line = Line::from(Span::styled("─".repeat(usize::from(area.width)), style));
    buffer.set_line(area.x, area.y, &line, area.width);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_give_way_at_a_word_and_never_touch() {
        let at = |width| {
            let Title { name, about, right } = title("Spread", "on all the timed", "5,120", width);
            assert!((name.clone() + &about + &right).width() < width.max(1), "{width}");
            format!("{name}{about}|{right}")
        };
        assert_eq!(at(33), " Spread on all the timed | 5,120 ");
        assert_eq!(at(32), " Spread on all the … | 5,120 ");
        assert_eq!(at(20), " Spread | 5,120 ");
        assert_eq!(at(15), " Spread |");
        assert_eq!(at(7), " Spr… |");
        for width in 0..40 {
            at(width);
        }
    }
}
