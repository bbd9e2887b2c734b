//! `xpu-top config`: which settings file is read, and whether it is valid.

use std::process::ExitCode;

use xpu_tui::config;

use super::output::print;
use crate::args::ConfigArgs;

pub fn config(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    if args.print {
        print(&config::sample())?;
        return Ok(ExitCode::SUCCESS);
    }
    args.settings.read()?;
    match config::path(args.settings.config.as_deref()) {
        Some(path) if path.exists() => print(&format!("{}: valid\n", path.display()))?,
        Some(path) => {
            print(&format!("no settings at {}; `xpu-top config --print` lists all\n", path.display()))?;
        }
        None => print("no settings: there is no home directory\n")?,
    }
    Ok(ExitCode::SUCCESS)
}
