//! The state at the end of a screen, with which the next one begins.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{folder, read_small};

/// The choices, stored by name, so that another version reads the ones it knows.
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

    /// Reads the state. An unreadable state is ignored, because a screen can begin without it.
    pub fn load(path: &Path) -> Self {
        let text = read_small(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Writes the file completely or not at all, because another screen may end at the same moment.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&beside, serde_json::to_string_pretty(self)?)?;
        fs::rename(&beside, path)
    }
}
