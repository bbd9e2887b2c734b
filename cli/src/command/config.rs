//! `xpu-top config`: which settings file is read, and whether it is valid.

use std::{path::Path, process::ExitCode};

use xpu_tui::config::{self, Config};

use super::output::print;
use crate::args::{ConfigArgs, UsageError};

pub fn config(args: &ConfigArgs, named: Option<&Path>) -> anyhow::Result<ExitCode> {
    if args.print {
        print(&config::sample())?;
        return Ok(ExitCode::SUCCESS);
    }
    Config::find(named).map_err(UsageError::from)?;
    match config::path(named) {
        Some(path) if path.exists() => print(&format!("{}: valid\n", path.display()))?,
        Some(path) => {
            print(&format!("no settings at {}; `xpu-top config --print` lists all\n", path.display()))?;
        }
        None => print("no settings: there is no home directory\n")?,
    }
    Ok(ExitCode::SUCCESS)
}
