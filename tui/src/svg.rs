//! The screen as a picture, for `S` and for the golden screens.
//!
//! Blocks are drawn as rectangles and not as letters, so neighbours touch with any font.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use ratatui::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier},
};
use unicode_width::UnicodeWidthStr as _;

use crate::palette::{
    Theme,
    picture::{ground, letters as letters_of, name},
};

/// The size of one cell, in pixels. `DejaVu` Sans Mono at [`FONT`] is exactly as wide, and tall enough for
/// lines to join.
const CELL: (f64, f64) = (8.0, 16.0);
const FONT: f64 = 13.29;
/// From a cell's top to the baseline of its text.
const BASELINE: f64 = 12.5;
/// The margin around the screen.
const MARGIN: f64 = 12.0;

/// The screen on the background of its theme.
pub fn picture(buffer: &Buffer, theme: Theme) -> String {
    let mut svg = opening(buffer, theme);
    let buffer = &painted(buffer, theme);
    for line in 0..buffer.area.height {
        draw(buffer, line, &mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

fn opening(buffer: &Buffer, theme: Theme) -> String {
    let (columns, lines) = (f64::from(buffer.area.width), f64::from(buffer.area.height));
    let (width, height) = (columns * CELL.0 + 2.0 * MARGIN, lines * CELL.1 + 2.0 * MARGIN);
    let ground = name(ground(theme));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"'DejaVu Sans Mono', monospace\" font-size=\"{FONT}\" xml:space=\"preserve\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{ground}\"/>\n"
    )
}

/// Replaces the terminal's own text colour by that of the theme, and swaps the colours of reversed cells.
fn painted(buffer: &Buffer, theme: Theme) -> Buffer {
    let mut painted = buffer.clone();
    for cell in &mut painted.content {
        if cell.fg == Color::Reset {
            cell.fg = letters_of(theme);
        }
        if cell.modifier.contains(Modifier::REVERSED) {
            let behind = if cell.bg == Color::Reset { ground(theme) } else { cell.bg };
            (cell.fg, cell.bg) = (behind, cell.fg);
        }
    }
    painted
}

/// One line of cells.
fn draw(buffer: &Buffer, line: u16, svg: &mut String) {
    grounds(buffer, line, svg);
    letters(buffer, line, svg);
}

/// A cell's text colour, and its background.
fn colours(cell: &Cell) -> (String, Option<String>) {
    (name(cell.fg), (cell.bg != Color::Reset).then(|| name(cell.bg)))
}

fn cell(buffer: &Buffer, x: u16, line: u16) -> &Cell {
    &buffer[(buffer.area.x + x, buffer.area.y + line)]
}

fn place(x: u16, line: u16) -> (f64, f64) {
    (MARGIN + f64::from(x) * CELL.0, MARGIN + f64::from(line) * CELL.1)
}

fn rectangle(svg: &mut String, x: f64, y: f64, width: f64, height: f64, look: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill={look} shape-rendering=\"crispEdges\"/>"
    );
}

/// The colour of the text, dimmed if the cell is.
fn look(cell: &Cell) -> String {
    let dim = if cell.modifier.contains(Modifier::DIM) { " opacity=\"0.55\"" } else { "" };
    format!("\"{}\"{dim}", colours(cell).0)
}

/// Neighbouring cells with an equal property.
struct Run<T> {
    /// The first cell.
    x: u16,
    length: u16,
    value: T,
}

fn runs<T: PartialEq>(buffer: &Buffer, line: u16, of: impl Fn(&Cell) -> T) -> Vec<Run<T>> {
    let mut runs: Vec<Run<T>> = Vec::new();
    for x in 0..buffer.area.width {
        let value = of(cell(buffer, x, line));
        match runs.last_mut() {
            Some(run) if run.value == value => run.length += 1,
            _ => runs.push(Run { x, length: 1, value }),
        }
    }
    runs
}

fn grounds(buffer: &Buffer, line: u16, svg: &mut String) {
    for Run { x, length, value: ground } in runs(buffer, line, |cell| colours(cell).1) {
        if let Some(ground) = ground {
            let (x, y) = place(x, line);
            rectangle(svg, x, y, f64::from(length) * CELL.0, CELL.1, &format!("\"{ground}\""));
        }
    }
    // Neighbouring blocks of one kind and colour are drawn as one rectangle.
    for Run { x, length, value: block } in
        runs(buffer, line, |cell| Block::of(cell.symbol()).map(|block| (block, look(cell))))
    {
        if let Some((block, fill)) = block {
            let (left, top) = place(x, line);
            let (width, height) = (block.width * CELL.0, (block.bottom - block.top) * CELL.1);
            if block.width < 1.0 {
                for step in 0..length {
                    let left = left + f64::from(step) * CELL.0 + block.left * CELL.0;
                    rectangle(svg, left, top + block.top * CELL.1, width, height, &fill);
                }
            } else {
                rectangle(svg, left, top + block.top * CELL.1, width * f64::from(length), height, &fill);
            }
        }
    }
}

/// A block element, in shares of its cell.
#[derive(Clone, Copy, PartialEq)]
struct Block {
    left: f64,
    width: f64,
    top: f64,
    bottom: f64,
}

impl Block {
    fn of(symbol: &str) -> Option<Self> {
        let whole = Self { left: 0.0, width: 1.0, top: 0.0, bottom: 1.0 };
        Some(match symbol.chars().next()? {
            '▀' => Self { bottom: 0.5, ..whole },
            '▌' => Self { width: 0.5, ..whole },
            '▐' => Self { left: 0.5, width: 0.5, ..whole },
            '█' => whole,
            // ▁ to ▇: one to seven eighths from below.
            eighths @ '▁'..='▇' => {
                let share = f64::from(u32::from(eighths) - u32::from('▁') + 1) / 8.0;
                Self { top: 1.0 - share, ..whole }
            }
            _ => return None,
        })
    }
}

fn letters(buffer: &Buffer, line: u16, svg: &mut String) {
    let looks = |cell: &Cell| {
        let blank = cell.symbol().trim().is_empty() || Block::of(cell.symbol()).is_some();
        (!blank).then(|| (look(cell), cell.modifier.contains(Modifier::BOLD)))
    };
    let mut x = 0;
    while x < buffer.area.width {
        let Some(look) = looks(cell(buffer, x, line)) else {
            x += 1;
            continue;
        };
        let (first, mut text) = (x, String::new());
        // A single blank between two words of the same look does not end a run.
        while x < buffer.area.width {
            let symbol = cell(buffer, x, line).symbol();
            let goes_on = match looks(cell(buffer, x, line)) {
                Some(other) => other == look,
                None => {
                    symbol == " "
                        && x + 1 < buffer.area.width
                        && looks(cell(buffer, x + 1, line)) == Some(look.clone())
                }
            };
            if !goes_on {
                break;
            }
            text.push_str(symbol);
            x += symbol.width().max(1) as u16;
        }
        write_run(svg, first, line, &text, &look.0, look.1);
    }
}

fn write_run(svg: &mut String, x: u16, line: u16, text: &str, look: &str, bold: bool) {
    let (left, top) = place(x, line);
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let length = text_length(text);
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{}\"{length} fill={look}{weight}>{text}</text>",
        top + BASELINE
    );
}

/// Keeps a run within its cells if the viewer has no `DejaVu` Sans Mono.
fn text_length(text: &str) -> String {
    match text.width() {
        0 | 1 => String::new(),
        width => format!(" textLength=\"{}\"", width as f64 * CELL.0),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{layout::Rect, style::Style};

    use super::*;

    fn drawn(draw: impl FnOnce(&mut Buffer)) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        draw(&mut buffer);
        picture(&buffer, Theme::Dark)
    }

    #[test]
    fn neighbours_of_one_look_are_one_run() {
        let svg = drawn(|buffer| {
            buffer.set_string(0, 0, "one two", Style::new());
        });
        assert_eq!(svg.matches("<text").count(), 1);
        assert!(svg.contains(">one two</text>"));
    }

    #[test]
    fn a_half_block_is_two_rectangles_and_no_letter() {
        let svg = drawn(|buffer| {
            buffer.set_string(0, 0, "▀▀", Style::new().fg(Color::Rgb(1, 2, 3)).bg(Color::Rgb(4, 5, 6)));
        });
        assert_eq!((svg.matches("#010203").count(), svg.matches("#040506").count()), (1, 1));
        assert_eq!(svg.matches("<text").count(), 0);
    }

    #[test]
    fn characters_with_a_meaning_in_svg_are_escaped() {
        let svg = drawn(|buffer| {
            buffer.set_string(0, 0, "<a&b>", Style::new());
        });
        assert!(svg.contains("&lt;a&amp;b&gt;"));
    }
}
