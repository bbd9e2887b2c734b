//! The themes: the colours of each role, and the background of their pictures.

#![allow(clippy::unreadable_literal, reason = "colours are written so everywhere")]

use std::{fmt, str::FromStr};

use ratatui::style::Color;
use thiserror::Error;

use super::STEPS;
use super::Shade;

/// A set of colours, for a background and for kinds of vision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// For a dark terminal; the heatmaps are in viridis.
    #[default]
    Dark,
    /// The same with heatmaps in cividis, which looks the same with and without colour blindness.
    Cividis,
    /// For a light terminal.
    Light,
    /// For a black terminal, tired eyes and poor displays: nothing is faint.
    HighContrast,
    /// Only greys.
    Mono,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown theme {0:?}: write dark, cividis, light, high-contrast or mono")]
pub struct UnknownTheme(String);

impl Theme {
    pub const ALL: [Self; 5] = [Self::Dark, Self::Cividis, Self::Light, Self::HighContrast, Self::Mono];

    pub fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Cividis => "cividis",
            Self::Light => "light",
            Self::HighContrast => "high-contrast",
            Self::Mono => "mono",
        }
    }

    pub(super) fn colours(self) -> &'static Colours {
        match self {
            Self::Dark => &DARK,
            Self::Cividis => &CIVIDIS,
            Self::Light => &LIGHT,
            Self::HighContrast => &HIGH_CONTRAST,
            Self::Mono => &MONO,
        }
    }
}

impl fmt::Display for Theme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Theme {
    type Err = UnknownTheme;

    fn from_str(name: &str) -> Result<Self, UnknownTheme> {
        let same = |theme: &Self| theme.name().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(same).ok_or_else(|| UnknownTheme(name.to_owned()))
    }
}

/// All colours of one theme.
pub(super) struct Colours {
    pub muted: Shade,
    pub faint: Shade,
    pub accent: Shade,
    pub good: Shade,
    pub warning: Shade,
    pub alarm: Shade,
    pub python: Shade,
    pub torch: Shade,
    pub native: Shade,
    pub system: Shade,
    /// The selected row, and text on it.
    pub chosen: Shade,
    pub on_chosen: Shade,
    /// A cell with an old value, and text on it.
    pub stale: Shade,
    pub on_stale: Shade,
    /// The colours of a heatmap, darkest first, with evenly rising lightness, so that the map is readable in
    /// grey too.
    pub heat: [Shade; STEPS],
    /// Text on the dark steps, and on the light ones.
    pub on_dark: Shade,
    pub on_light: Shade,
    /// The background of a picture of the screen, and uncoloured text.
    pub ground: (u8, u8, u8),
    pub letters: (u8, u8, u8),
}

const fn shade(rgb: u32, indexed: u8, basic: Color) -> Shade {
    Shade::new(parts(rgb), indexed, basic)
}

const fn parts(rgb: u32) -> (u8, u8, u8) {
    ((rgb >> 16) as u8, (rgb >> 8) as u8, rgb as u8)
}

/// Status colours follow Okabe and Ito, whose colours everybody can distinguish.
const DARK: Colours = Colours {
    muted: shade(0x8b949e, 245, Color::DarkGray),
    faint: shade(0x3d4651, 238, Color::DarkGray),
    accent: shade(0x79c0ff, 117, Color::Cyan),
    good: shade(0x35b78f, 36, Color::Green),
    warning: shade(0xf0ad2b, 214, Color::Yellow),
    alarm: shade(0xff6f4d, 203, Color::LightRed),
    python: shade(0x7cc7d3, 116, Color::Cyan),
    torch: shade(0x8fc963, 113, Color::Green),
    native: shade(0xe39868, 173, Color::Yellow),
    system: shade(0xc49bd0, 176, Color::Magenta),
    chosen: shade(0x222f3f, 236, Color::Blue),
    on_chosen: shade(0xf0f6fc, 255, Color::White),
    stale: shade(0x2b3139, 236, Color::DarkGray),
    on_stale: shade(0x767f89, 243, Color::Gray),
    heat: VIRIDIS,
    on_dark: shade(0xf0f6fc, 255, Color::White),
    on_light: shade(0x051a16, 16, Color::Black),
    ground: parts(0x0d1117),
    letters: parts(0xd5dce4),
};

const CIVIDIS: Colours = Colours {
    heat: CIVIDIS_STEPS,
    on_dark: shade(0xffffff, 231, Color::White),
    on_light: shade(0x000000, 16, Color::Black),
    ..DARK
};

const LIGHT: Colours = Colours {
    muted: shade(0x59636e, 241, Color::DarkGray),
    faint: shade(0xafb8c1, 250, Color::Gray),
    accent: shade(0x0550ae, 25, Color::Blue),
    good: shade(0x007a5a, 29, Color::Green),
    warning: shade(0x8f5a00, 94, Color::Magenta),
    alarm: shade(0xc4290e, 160, Color::Red),
    python: shade(0x0b6a7f, 24, Color::Cyan),
    torch: shade(0x3f6d10, 22, Color::Green),
    native: shade(0x9c4a1a, 130, Color::Magenta),
    system: shade(0x7a3f93, 90, Color::Magenta),
    chosen: shade(0xd5e6fb, 153, Color::Cyan),
    on_chosen: shade(0x0a1f3c, 17, Color::Black),
    stale: shade(0xe3e6ea, 254, Color::Gray),
    on_stale: shade(0x656d76, 241, Color::DarkGray),
    heat: VIRIDIS,
    on_dark: shade(0xffffff, 231, Color::White),
    on_light: shade(0x000000, 16, Color::Black),
    ground: parts(0xffffff),
    letters: parts(0x1f2328),
};

const HIGH_CONTRAST: Colours = Colours {
    muted: shade(0xc8d1da, 252, Color::Gray),
    faint: shade(0x959fa9, 247, Color::Gray),
    accent: shade(0x9cdcff, 117, Color::LightCyan),
    good: shade(0x4af2b5, 86, Color::LightGreen),
    warning: shade(0xffd24a, 221, Color::LightYellow),
    alarm: shade(0xff8a70, 209, Color::LightRed),
    python: shade(0x8fe3f0, 123, Color::LightCyan),
    torch: shade(0xb5f07f, 156, Color::LightGreen),
    native: shade(0xffbf91, 216, Color::LightYellow),
    system: shade(0xe5c0f2, 183, Color::LightMagenta),
    chosen: shade(0xffffff, 231, Color::White),
    on_chosen: shade(0x000000, 16, Color::Black),
    stale: shade(0x444a52, 238, Color::DarkGray),
    on_stale: shade(0xffffff, 231, Color::White),
    heat: CIVIDIS_STEPS,
    on_dark: shade(0xffffff, 231, Color::White),
    on_light: shade(0x000000, 16, Color::Black),
    ground: parts(0x000000),
    letters: parts(0xffffff),
};

const MONO: Colours = Colours {
    muted: shade(0x8f969d, 246, Color::Gray),
    faint: shade(0x454b52, 239, Color::DarkGray),
    accent: shade(0xe6e9ec, 255, Color::White),
    good: shade(0xc3c8cd, 251, Color::Gray),
    warning: shade(0xdfe3e6, 254, Color::White),
    alarm: shade(0xffffff, 231, Color::White),
    python: shade(0xc3c8cd, 251, Color::Gray),
    torch: shade(0xc3c8cd, 251, Color::Gray),
    native: shade(0xa9afb5, 248, Color::Gray),
    system: shade(0xa9afb5, 248, Color::Gray),
    chosen: shade(0x32383f, 237, Color::Gray),
    on_chosen: shade(0xffffff, 231, Color::Black),
    stale: shade(0x2b3139, 236, Color::DarkGray),
    on_stale: shade(0x767f89, 243, Color::Gray),
    heat: GREYS,
    on_dark: shade(0xffffff, 231, Color::White),
    on_light: shade(0x000000, 16, Color::Black),
    ..DARK
};

const VIRIDIS: [Shade; STEPS] = [
    shade(0x481a6c, 54, Color::Magenta),
    shade(0x472f7d, 60, Color::Magenta),
    shade(0x39568c, 61, Color::Blue),
    shade(0x2a768e, 30, Color::Blue),
    shade(0x1fa187, 36, Color::Cyan),
    shade(0x4ac16d, 77, Color::Green),
    shade(0xa0da39, 149, Color::LightGreen),
    shade(0xfde725, 220, Color::Yellow),
];

const CIVIDIS_STEPS: [Shade; STEPS] = [
    shade(0x002a5f, 17, Color::Blue),
    shade(0x2b436c, 237, Color::Blue),
    shade(0x565b6d, 240, Color::DarkGray),
    shade(0x747574, 243, Color::DarkGray),
    shade(0x948f78, 101, Color::Gray),
    shade(0xb7ab70, 143, Color::Gray),
    shade(0xddca5f, 185, Color::Yellow),
    shade(0xffea46, 227, Color::LightYellow),
];

const GREYS: [Shade; STEPS] = [
    shade(0x353535, 237, Color::DarkGray),
    shade(0x4c4c4c, 239, Color::DarkGray),
    shade(0x656565, 241, Color::DarkGray),
    shade(0x7f7f7f, 244, Color::DarkGray),
    shade(0x9a9a9a, 247, Color::Gray),
    shade(0xb6b6b6, 250, Color::Gray),
    shade(0xd3d3d3, 252, Color::White),
    shade(0xf1f1f1, 255, Color::White),
];
