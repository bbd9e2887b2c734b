//! The look of the screen.

use clap::Args;
use xpu_tui::{
    look::{Look, RequestedLook, THEME},
    palette::{Depth, Theme},
    terminal,
};

use super::UsageError;

#[derive(Clone, Debug, Default, Args)]
pub struct LookArgs {
    /// Colours: dark, cividis, light, high-contrast or mono [default: `XPU_TOP_THEME`, else light on a
    /// terminal that reports a light background, else dark]
    #[arg(long, value_name = "NAME")]
    theme: Option<Theme>,
    /// Number of colours: true, 256, 16 or none [default: none with `NO_COLOR`, else what the terminal supports]
    #[arg(long, value_name = "COLOURS")]
    color: Option<Depth>,
    /// Plain ASCII [default: where the locale has no UTF-8]
    #[arg(long)]
    ascii: bool,
    /// Update the screen at most once a second
    #[arg(long)]
    reduced_motion: bool,
}

impl LookArgs {
    /// The look that the command line asks for, else the environment.
    pub fn requested(&self) -> Result<RequestedLook, UsageError> {
        let named = std::env::var(THEME).ok().filter(|name| !name.is_empty());
        let theme = named.map(|name| name.parse::<Theme>());
        let theme = theme.transpose().map_err(|unknown| UsageError::Value(format!("{THEME}: {unknown}")))?;
        Ok(RequestedLook {
            depth: self.color,
            theme: self.theme.or(theme),
            ascii: self.ascii.then_some(true),
            reduced_motion: self.reduced_motion.then_some(true),
        })
    }

    /// Completes the given settings from the settings file, then from the terminal.
    pub fn look(&self, settings: RequestedLook) -> Result<Look, UsageError> {
        let mut requested = self.requested()?.or(settings);
        let variable = |name: &str| std::env::var(name).ok();
        if requested.theme.is_none() && requested.look(variable).depth != Depth::None {
            requested.theme = terminal::theme();
        }
        Ok(requested.look(variable))
    }
}
