//! The look of the screen: the user's settings, otherwise the look that the terminal supports.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::{
    letters::Letters,
    palette::{Depth, Palette, Theme},
};

/// How often the screen may change by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Motion {
    #[default]
    Full,
    /// The screen changes by itself at most once a second.
    Reduced,
}

impl Motion {
    /// The shortest time between two redraws for new data. The effect of a key is drawn at once.
    pub fn pace(self) -> Duration {
        match self {
            Self::Full => Duration::from_millis(100),
            Self::Reduced => Duration::from_secs(1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub depth: Depth,
    pub theme: Theme,
    pub letters: Letters,
    pub motion: Motion,
}

impl From<Depth> for Look {
    fn from(depth: Depth) -> Self {
        Self { depth, theme: Theme::default(), letters: Letters::default(), motion: Motion::default() }
    }
}

impl Look {
    pub fn palette(self) -> Palette {
        Palette::new(self.depth, self.theme).with_letters(self.letters)
    }
}

/// The requested look; `None` where nothing was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedLook {
    pub depth: Option<Depth>,
    pub theme: Option<Theme>,
    pub ascii: Option<bool>,
    pub reduced_motion: Option<bool>,
}

/// The variable with the theme, if the command line names none.
pub const THEME: &str = "XPU_TOP_THEME";

impl RequestedLook {
    /// Completes `self` with the settings of `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            depth: self.depth.or(others.depth),
            theme: self.theme.or(others.theme),
            ascii: self.ascii.or(others.ascii),
            reduced_motion: self.reduced_motion.or(others.reduced_motion),
        }
    }

    /// The final look. The environment decides where nothing was requested.
    pub fn look(self, variable: impl Fn(&str) -> Option<String>) -> Look {
        let letters = match self.ascii {
            Some(true) => Letters::Ascii,
            Some(false) => Letters::Unicode,
            None => Letters::detect(&variable),
        };
        Look {
            depth: self.depth.unwrap_or_else(|| Depth::detect(&variable)),
            theme: self.theme.unwrap_or_default(),
            letters,
            motion: if self.reduced_motion == Some(true) { Motion::Reduced } else { Motion::Full },
        }
    }
}
