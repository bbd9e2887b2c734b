//! Programs of a Python environment with PyTorch, for tests against the real thing.

use std::path::{Path, PathBuf};

use crate::skip::{Beyond, skipped_beyond_ci};

/// This program of the environment whose bin folder `XPU_TEST_TORCH` names. Without it, the test is skipped.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("XPU_TEST_TORCH").map(|folder| Path::new(&folder).join(name));
    let found = path.filter(|path| path.exists());
    if found.is_none() {
        let why = format!("no {name}: `make torch` installs it, or XPU_TEST_TORCH names a bin folder");
        skipped_beyond_ci(Beyond::PyTorch, &why);
    }
    found
}
