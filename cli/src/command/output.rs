//! The result of a command on standard output.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

/// Prints a text. A reader that stops early (`| head`) is no failure.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Prints a document in JSON.
pub(super) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(document)? + "\n"))
}

/// Prints a document in JSON, or as a text.
pub(super) fn print_document(
    document: &impl Serialize,
    as_json: bool,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if as_json { print_json(document) } else { print(&text()) }
}

/// Width of a sentence, in columns, if standard output is no terminal, and the smallest width on a terminal.
const WIDTH: u16 = 110;
const NARROWEST: u16 = 40;

/// Columns for sentences on standard output.
pub(super) fn width() -> usize {
    let terminal = io::stdout().is_terminal().then(crossterm::terminal::size).and_then(Result::ok);
    usize::from(terminal.map_or(WIDTH, |(columns, _)| columns.max(NARROWEST)))
}

/// The text in lines of this width, each after two blanks. No word is divided, so that commands and paths can
/// be copied.
pub(super) fn indented(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), String::from(" "));
    for word in text.split_whitespace() {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > width {
            line.push('\n');
            lines += &std::mem::replace(&mut line, String::from(" "));
        }
        line += " ";
        line += word;
    }
    if line.len() > 1 { lines + &line + "\n" } else { lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_divided_between_words() {
        assert_eq!(indented("one two three", 9), "  one two\n  three\n");
        assert_eq!(indented("a /very/long/path b", 9), "  a\n  /very/long/path\n  b\n");
        assert_eq!(indented("", 9), "");
    }
}
