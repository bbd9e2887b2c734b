//! The earlier run with which a job is compared.

use std::{
    convert::Infallible,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use xpu_model::baseline::{Baseline, Runs, folder};

use super::UsageError;

/// Largest file, in bytes: each rank of a host takes a few hundred.
const LARGEST: u64 = 4 << 20;

/// `last`, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PastRun {
    Last,
    File(PathBuf),
}

impl FromStr for PastRun {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "last" { Self::Last } else { Self::File(text.into()) })
    }
}

impl PastRun {
    /// All candidate runs; unreadable ones that the user did not name are left out.
    pub fn runs(&self) -> Result<Arc<Runs>, UsageError> {
        let runs = match self {
            Self::Last => {
                Runs::of(folder(|name| std::env::var_os(name)).map(|path| all(&path)).unwrap_or_default())
            }
            Self::File(path) => {
                let part = read(path).map_err(|error| {
                    UsageError::Value(format!(
                        "{}: {error}; a collector writes such files into ~/.local/state/xpu-top/runs",
                        path.display()
                    ))
                })?;
                let beside = path
                    .parent()
                    .map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
                Runs::of(beside.map(all).unwrap_or_default()).only(&part)
            }
        };
        Ok(Arc::new(runs))
    }
}

fn all(folder: &Path) -> Vec<Baseline> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = files.filter(|path| path.extension().is_some_and(|is| is == "json"));
    runs.filter_map(|path| read(&path).ok()).collect()
}

fn read(path: &Path) -> io::Result<Baseline> {
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
