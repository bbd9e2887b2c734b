//! Colours for the screen as a picture: its own background, whatever the terminal's is, and the colours as
//! numbers.

use ratatui::style::Color;

use super::Theme;

type Rgb = (u8, u8, u8);

/// The sixteen colours of xterm.
const BASIC: [Rgb; 16] = [
    (0x00, 0x00, 0x00),
    (0xcd, 0x31, 0x31),
    (0x0d, 0xbc, 0x79),
    (0xe5, 0xe5, 0x10),
    (0x24, 0x72, 0xc8),
    (0xbc, 0x3f, 0xbc),
    (0x11, 0xa8, 0xcd),
    (0xe5, 0xe5, 0xe5),
    (0x66, 0x66, 0x66),
    (0xf1, 0x4c, 0x4c),
    (0x23, 0xd1, 0x8b),
    (0xf5, 0xf5, 0x43),
    (0x3b, 0x8e, 0xea),
    (0xd6, 0x70, 0xd6),
    (0x29, 0xb8, 0xdb),
    (0xff, 0xff, 0xff),
];

pub fn ground(theme: Theme) -> Color {
    let (r, g, b) = theme.colours().ground;
    Color::Rgb(r, g, b)
}

pub fn letters(theme: Theme) -> Color {
    let (r, g, b) = theme.colours().letters;
    Color::Rgb(r, g, b)
}

/// The colour as SVG writes it.
pub fn name(colour: Color) -> String {
    let (r, g, b) = rgb(colour);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The terminal's own colour is unknown and counts as black.
pub(super) fn rgb(colour: Color) -> Rgb {
    let index = match colour {
        Color::Rgb(r, g, b) => return (r, g, b),
        Color::Reset | Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
        Color::Indexed(index) => index,
    };
    match index {
        0..=15 => BASIC[usize::from(index)],
        16..=231 => {
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            let cube = index - 16;
            (level(cube / 36), level(cube / 6 % 6), level(cube % 6))
        }
        grey => {
            let level = 8 + 10 * (grey - 232);
            (level, level, level)
        }
    }
}

/// The perceived lightness of a colour, from 0 to 1 (WCAG 2).
pub(super) fn luminance((r, g, b): Rgb) -> f64 {
    let linear = |part: u8| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}
