//! A folder that only its owner can read, with the current capture; removed at the end.

use std::{env, fs, io, os::unix::fs::DirBuilderExt as _, path::PathBuf, process};

use anyhow::Context as _;
use xpu_wire::unit::Moment;

pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn make() -> anyhow::Result<Self> {
        let name = format!("xpu-top-what-if-{}-{}", process::id(), Moment::now().0);
        let path = env::temp_dir().join(name);
        // An existing folder may be another user's.
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make the folder {}: set TMPDIR", path.display()))?;
        Ok(Self(path))
    }

    /// The file for the next capture; removes the last one.
    pub(super) fn file(&self) -> PathBuf {
        let path = self.0.join("capture");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("xpu-top: cannot remove {}: {error}", path.display());
            }
            _ => {}
        }
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If the removal fails, the system clears the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}
