//! What the last screen ended with, for the next one to begin with.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{folder, read_small};

/// By their names, so that another version reads what it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub page: String,
    pub metric: String,
    pub sort: String,
    pub filter: String,
    /// Lines that were typed, the newest last.
    pub filters: Vec<String>,
    pub commands: Vec<String>,
}

impl State {
    /// `~/.local/state/xpu-top/state.json`
    pub fn path() -> Option<PathBuf> {
        folder("XDG_STATE_HOME", ".local/state").map(|folder| folder.join("state.json"))
    }

    /// What cannot be read is as if there were none: nothing is lost but comfort.
    pub fn load(path: &Path) -> Self {
        let text = read_small(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Whole or not at all: another screen may end at the same moment.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&beside, serde_json::to_string_pretty(self)?)?;
        fs::rename(&beside, path)
    }
}
