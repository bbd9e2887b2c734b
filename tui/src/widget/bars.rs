//! Figures as columns side by side, in eighths of a cell.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use crate::glyph::EIGHTHS;

/// Draws each share, from 0 to 1, as a column of one cell's width, beginning at the left of the area. `body`
/// is the style of the column, `top` that of its uppermost cell. Any share above 0 is visible.
pub fn draw(shares: &[f64], body: Style, top: Style, area: Rect, buffer: &mut Buffer) {
    let eighths = EIGHTHS.len();
    let full = usize::from(area.height) * eighths;
    for (&share, x) in shares.iter().zip(area.x..area.right()) {
        if share.is_nan() || share <= 0.0 {
            continue;
        }
        let filled = ((share * full as f64).round() as usize).clamp(1, full.max(1));
        for row in 0..usize::from(area.height) {
            let here = filled.saturating_sub(row * eighths).min(eighths);
            if here > 0 {
                let y = area.bottom() - 1 - row as u16;
                let style = if filled <= (row + 1) * eighths { top } else { body };
                buffer.set_string(x, y, EIGHTHS[here - 1].to_string(), style);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shares: &[f64]) -> Vec<String> {
        let area = Rect::new(0, 0, shares.len() as u16, 2);
        let mut buffer = Buffer::empty(area);
        draw(shares, Style::new(), Style::new(), area, &mut buffer);
        area.rows().map(|row| row.positions().map(|position| buffer[position].symbol()).collect()).collect()
    }

    #[test]
    fn a_column_is_as_high_as_its_share_and_what_is_little_is_seen() {
        assert_eq!(drawn(&[1.0, 0.5, 0.0, 0.001, 0.75, f64::NAN, 7.0]), ["█   ▄ █", "██ ▁█ █"]);
    }
}
