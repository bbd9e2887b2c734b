//! The result of a command on standard output.

use std::io::{self, Write as _};

/// A reader that stops early (`| head`) is no failure.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
