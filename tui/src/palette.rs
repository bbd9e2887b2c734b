//! All colours. No other file names one, so a colour always has the same meaning.
//!
//! Colour is never the only sign: each has a glyph or a word next to it, so [`Depth::None`] loses no
//! information.
#![forbid(unsafe_code)]

pub mod picture;
mod theme;

use std::str::FromStr;

use ratatui::style::{Color, Modifier, Style};
use thiserror::Error;

use crate::letters::Letters;

/// Colours of a heatmap, from the worst to the best.
pub const STEPS: usize = 8;

pub use theme::{Theme, UnknownTheme};

/// The luminance on which black and white letters are equally readable.
const EITHER: f64 = 0.179;

/// The number of colours that the terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// No colours, or the user wants none (<https://no-color.org>).
    None,
    Sixteen,
    Indexed,
    True,
}

impl Depth {
    /// Detects the depth from the environment: `NO_COLOR`, then `COLORTERM`, then `TERM`.
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

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown colours {0:?}: write true, 256, 16 or none")]
pub struct UnknownDepth(String);

impl FromStr for Depth {
    type Err = UnknownDepth;

    fn from_str(name: &str) -> Result<Self, UnknownDepth> {
        match name {
            "true" => Ok(Self::True),
            "256" => Ok(Self::Indexed),
            "16" => Ok(Self::Sixteen),
            "none" => Ok(Self::None),
            other => Err(UnknownDepth(other.to_owned())),
        }
    }
}

/// The purpose of a part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Text,
    /// Figures and names of interest.
    Strong,
    /// Labels and units.
    Muted,
    /// Lines, and unknown values.
    Faint,
    /// Headings: the job, a title, a key.
    Accent,
    Good,
    Warning,
    Alarm,
    /// Frames of a stack, by their kind.
    Python,
    Torch,
    Native,
    /// The kernel's state of a process.
    System,
}

/// The colours of one terminal, in one theme.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    depth: Depth,
    theme: Theme,
    letters: Letters,
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

impl Palette {
    pub fn new(depth: Depth, theme: Theme) -> Self {
        Self { depth, theme, letters: Letters::Unicode }
    }

    /// The same palette with another theme.
    #[must_use]
    pub fn with_theme(self, theme: Theme) -> Self {
        Self::new(self.depth, theme).with_letters(self.letters)
    }

    #[must_use]
    pub fn with_letters(self, letters: Letters) -> Self {
        Self { letters, ..self }
    }

    pub fn depth(self) -> Depth {
        self.depth
    }

    pub fn theme(self) -> Theme {
        self.theme
    }

    pub fn letters(self) -> Letters {
        self.letters
    }

    pub fn has_colour(self) -> bool {
        self.depth != Depth::None
    }

    /// Whether a cell can show two halves in two colours.
    pub fn has_halves(self) -> bool {
        self.has_colour() && self.letters == Letters::Unicode
    }

    pub fn of(self, role: Role) -> Style {
        let plain = Style::new();
        let colours = self.theme.colours();
        let shade = match role {
            Role::Text => return plain,
            Role::Strong => return plain.add_modifier(Modifier::BOLD),
            Role::Muted => &colours.muted,
            Role::Faint => &colours.faint,
            Role::Accent => &colours.accent,
            Role::Good => &colours.good,
            Role::Warning => &colours.warning,
            Role::Alarm => &colours.alarm,
            Role::Python => &colours.python,
            Role::Torch => &colours.torch,
            Role::Native => &colours.native,
            Role::System => &colours.system,
        };
        match (self.depth, role) {
            (Depth::None, Role::Muted | Role::Faint) => plain.add_modifier(Modifier::DIM),
            // On a dim line, such as a title on a frame, this text must not be dim itself.
            (Depth::None, Role::Accent | Role::Warning | Role::Alarm) => {
                plain.add_modifier(Modifier::BOLD).remove_modifier(Modifier::DIM)
            }
            (Depth::None, _) => plain.remove_modifier(Modifier::DIM),
            (depth, _) => plain.fg(shade.at(depth)),
        }
    }

    pub fn selected(self) -> Style {
        let colours = self.theme.colours();
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::REVERSED),
            depth => Style::new().fg(colours.on_chosen.at(depth)).bg(colours.chosen.at(depth)),
        }
    }

    /// The style of a heatmap's cell, on which letters are readable. Without colours there is none, so a
    /// glyph is drawn instead.
    pub fn heat(self, step: usize) -> Style {
        let colours = self.theme.colours();
        let ground = &colours.heat[step.min(STEPS - 1)];
        let is_light = picture::luminance(picture::rgb(ground.at(self.depth))) > EITHER;
        self.cell(ground, if is_light { &colours.on_light } else { &colours.on_dark })
    }

    /// A letter in the colour of a step.
    pub fn swatch(self, step: usize) -> Style {
        self.heat(step).bg.map_or_else(Style::new, |colour| Style::new().fg(colour))
    }

    /// A cell whose value is old.
    pub fn stale(self) -> Style {
        let colours = self.theme.colours();
        self.cell(&colours.stale, &colours.on_stale)
    }

    fn cell(self, ground: &Shade, letters: &Shade) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            depth => Style::new().fg(letters.at(depth)).bg(ground.at(depth)),
        }
    }
}

#[cfg(test)]
mod tests;
