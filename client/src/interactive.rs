//! Whether there is a user at the keyboard.

use std::io::{self, IsTerminal as _};

/// The words about a key that ends something. Empty without a terminal, as in a script or over HTTP.
pub fn key_that_ends(words: &'static str) -> &'static str {
    if io::stdin().is_terminal() { words } else { "" }
}
