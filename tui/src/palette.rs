//! Every colour there is. No other file names one, so that the same colour always means the same thing.
//!
//! Colour never stands alone: beside each one there is a glyph or a word, and [`Depth::None`] must lose nothing.
#![forbid(unsafe_code)]

use ratatui::style::{Color, Modifier, Style};

use crate::widget::scale::STEPS;

/// How many colours the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// None, or the user wants none (<https://no-color.org>).
    None,
    Sixteen,
    Indexed,
    True,
}

impl Depth {
    /// From the environment: `NO_COLOR`, then `COLORTERM`, then `TERM`.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        if set("NO_COLOR").is_some() {
            return Self::None;
        }
        if matches!(set("COLORTERM").as_deref(), Some("truecolor" | "24bit")) {
            return Self::True;
        }
        match set("TERM").as_deref() {
            None | Some("dumb") => Self::None,
            Some(term) if term.ends_with("-direct") => Self::True,
            Some(term) if term.contains("256color") => Self::Indexed,
            Some(_) => Self::Sixteen,
        }
    }
}

/// What a piece of the screen is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Text,
    /// Figures and names that are looked for.
    Strong,
    /// Labels and units.
    Muted,
    /// Lines and what is not known.
    Faint,
    /// What the screen is about: the job, a title, a key.
    Accent,
    Good,
    Warning,
    Alarm,
    /// Frames of a stack, by their kind.
    Python,
    Torch,
    Native,
    /// What the kernel says of a process.
    System,
}

/// The colours of one terminal.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    depth: Depth,
}

/// One colour at each depth.
struct Shade {
    rgb: (u8, u8, u8),
    indexed: u8,
    basic: Color,
}

impl Shade {
    const fn new(rgb: (u8, u8, u8), indexed: u8, basic: Color) -> Self {
        Self { rgb, indexed, basic }
    }

    fn at(&self, depth: Depth) -> Color {
        match depth {
            Depth::None => Color::Reset,
            Depth::Sixteen => self.basic,
            Depth::Indexed => Color::Indexed(self.indexed),
            Depth::True => Color::Rgb(self.rgb.0, self.rgb.1, self.rgb.2),
        }
    }
}

const MUTED: Shade = Shade::new((0x8b, 0x94, 0x9e), 245, Color::DarkGray);
const FAINT: Shade = Shade::new((0x3d, 0x46, 0x51), 238, Color::DarkGray);
const ACCENT: Shade = Shade::new((0x79, 0xc0, 0xff), 117, Color::Cyan);
/// After Okabe and Ito, who chose these to be told apart by everybody, made lighter for dark screens.
const GOOD: Shade = Shade::new((0x35, 0xb7, 0x8f), 36, Color::Green);
const WARNING: Shade = Shade::new((0xf0, 0xad, 0x2b), 214, Color::Yellow);
const ALARM: Shade = Shade::new((0xff, 0x6f, 0x4d), 203, Color::LightRed);
const PYTHON: Shade = Shade::new((0x7c, 0xc7, 0xd3), 116, Color::Cyan);
const TORCH: Shade = Shade::new((0x8f, 0xc9, 0x63), 113, Color::Green);
const NATIVE: Shade = Shade::new((0xe3, 0x98, 0x68), 173, Color::Yellow);
const SYSTEM: Shade = Shade::new((0xc4, 0x9b, 0xd0), 176, Color::Magenta);
/// The row that is selected, and what is written on it.
const CHOSEN: Shade = Shade::new((0x22, 0x2f, 0x3f), 236, Color::Blue);
const ON_CHOSEN: Shade = Shade::new((0xf0, 0xf6, 0xfc), 255, Color::White);
/// A cell whose value is old, and what is written on it.
const STALE: Shade = Shade::new((0x2b, 0x31, 0x39), 236, Color::DarkGray);
const ON_STALE: Shade = Shade::new((0x76, 0x7f, 0x89), 243, Color::Gray);
const ON_DARK: Shade = Shade::new((0xf0, 0xf6, 0xfc), 255, Color::White);
const ON_LIGHT: Shade = Shade::new((0x05, 0x1a, 0x16), 16, Color::Black);

/// Viridis in eight steps: lightness rises evenly, so that it also reads in grey and for the colour-blind.
const HEAT: [Shade; STEPS] = [
    Shade::new((0x48, 0x1a, 0x6c), 54, Color::Magenta),
    Shade::new((0x47, 0x2f, 0x7d), 60, Color::Magenta),
    Shade::new((0x39, 0x56, 0x8c), 61, Color::Blue),
    Shade::new((0x2a, 0x76, 0x8e), 30, Color::Blue),
    Shade::new((0x1f, 0xa1, 0x87), 36, Color::Cyan),
    Shade::new((0x4a, 0xc1, 0x6d), 77, Color::Green),
    Shade::new((0xa0, 0xda, 0x39), 149, Color::LightGreen),
    Shade::new((0xfd, 0xe7, 0x25), 220, Color::Yellow),
];

/// From this step on a cell is so light that dark letters read better.
const LIGHT_FROM: usize = 4;

impl Palette {
    pub fn new(depth: Depth) -> Self {
        Self { depth }
    }

    pub fn depth(self) -> Depth {
        self.depth
    }

    pub fn has_colour(self) -> bool {
        self.depth != Depth::None
    }

    pub fn of(self, role: Role) -> Style {
        let plain = Style::new();
        let shade = match role {
            Role::Text => return plain,
            Role::Strong => return plain.add_modifier(Modifier::BOLD),
            Role::Muted => &MUTED,
            Role::Faint => &FAINT,
            Role::Accent => &ACCENT,
            Role::Good => &GOOD,
            Role::Warning => &WARNING,
            Role::Alarm => &ALARM,
            Role::Python => &PYTHON,
            Role::Torch => &TORCH,
            Role::Native => &NATIVE,
            Role::System => &SYSTEM,
        };
        match (self.depth, role) {
            (Depth::None, Role::Muted | Role::Faint) => plain.add_modifier(Modifier::DIM),
            // On a dim line, as a title is on a frame, it must not be dim itself.
            (Depth::None, Role::Accent | Role::Warning | Role::Alarm) => {
                plain.add_modifier(Modifier::BOLD).remove_modifier(Modifier::DIM)
            }
            (Depth::None, _) => plain.remove_modifier(Modifier::DIM),
            (depth, _) => plain.fg(shade.at(depth)),
        }
    }

    pub fn selected(self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::REVERSED),
            depth => Style::new().fg(ON_CHOSEN.at(depth)).bg(CHOSEN.at(depth)),
        }
    }

    /// A cell of a heatmap, with letters on it that can be read. Without colours it has none: draw a glyph.
    pub fn heat(self, step: usize) -> Style {
        let on = if step >= LIGHT_FROM { &ON_LIGHT } else { &ON_DARK };
        self.cell(&HEAT[step.min(STEPS - 1)], on)
    }

    /// A letter in the colour of a step.
    pub fn swatch(self, step: usize) -> Style {
        self.heat(step).bg.map_or_else(Style::new, |colour| Style::new().fg(colour))
    }

    /// A cell whose value is old.
    pub fn stale(self) -> Style {
        self.cell(&STALE, &ON_STALE)
    }

    fn cell(self, ground: &Shade, letters: &Shade) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            depth => Style::new().fg(letters.at(depth)).bg(ground.at(depth)),
        }
    }
}

/// The screen as a picture stands on its own ground, whatever the terminal's.
pub mod picture {
    use super::Color;

    pub const GROUND: &str = "#0d1117";
    pub const LETTERS: &str = "#d5dce4";

    /// xterm's own sixteen.
    const BASIC: [&str; 16] = [
        "#000000", "#cd3131", "#0dbc79", "#e5e510", "#2472c8", "#bc3fbc", "#11a8cd", "#e5e5e5", "#666666",
        "#f14c4c", "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff",
    ];

    /// The colour as SVG writes it, or what stands for the terminal's own.
    pub fn name(colour: Color, reset: &'static str) -> String {
        let basic = |index: usize| BASIC[index].to_owned();
        match colour {
            Color::Reset => reset.to_owned(),
            Color::Black => basic(0),
            Color::Red => basic(1),
            Color::Green => basic(2),
            Color::Yellow => basic(3),
            Color::Blue => basic(4),
            Color::Magenta => basic(5),
            Color::Cyan => basic(6),
            Color::Gray => basic(7),
            Color::DarkGray => basic(8),
            Color::LightRed => basic(9),
            Color::LightGreen => basic(10),
            Color::LightYellow => basic(11),
            Color::LightBlue => basic(12),
            Color::LightMagenta => basic(13),
            Color::LightCyan => basic(14),
            Color::White => basic(15),
            Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
            Color::Indexed(index @ 0..=15) => basic(usize::from(index)),
            Color::Indexed(index @ 16..=231) => {
                let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
                let cube = index - 16;
                format!("#{:02x}{:02x}{:02x}", level(cube / 36), level(cube / 6 % 6), level(cube % 6))
            }
            Color::Indexed(grey) => {
                let level = 8 + 10 * (grey - 232);
                format!("#{level:02x}{level:02x}{level:02x}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(variables: &[(&str, &str)]) -> Depth {
        Depth::detect(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn the_users_no_goes_before_what_the_terminal_can() {
        assert_eq!(detected(&[("NO_COLOR", "1"), ("COLORTERM", "truecolor")]), Depth::None);
        assert_eq!(detected(&[("NO_COLOR", ""), ("COLORTERM", "truecolor")]), Depth::True);
        assert_eq!(detected(&[("TERM", "xterm-256color")]), Depth::Indexed);
        assert_eq!(detected(&[("TERM", "linux")]), Depth::Sixteen);
        assert_eq!(detected(&[("TERM", "dumb")]), Depth::None);
        assert_eq!(detected(&[]), Depth::None);
    }

    #[test]
    fn without_colours_no_style_has_one() {
        let palette = Palette::new(Depth::None);
        let all = [palette.selected(), palette.stale(), palette.heat(0), palette.of(Role::Alarm)];
        assert!(all.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
    }
}
