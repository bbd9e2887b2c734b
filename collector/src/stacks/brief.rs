//! Shortens texts of foreign processes.

use xpu_wire::{frame::RankStacks, text};

/// A foreign process's text, shortened, and safe for a terminal.
pub(super) fn brief(text: &str) -> String {
    const MOST: usize = RankStacks::TEXT;
    let kept = match text.len() {
        0..=MOST => text,
        // The end of a path is more specific than its beginning.
        length if text.starts_with('/') => &text[text.ceil_char_boundary(length - MOST)..],
        _ => &text[..text.floor_char_boundary(MOST)],
    };
    text::clean(kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_fit_for_a_terminal() {
        assert_eq!(brief("a\x1b[31m\u{202e}\n"), "a [31m  ");
        let path = format!("/{}/train.py", "d".repeat(500));
        assert!(brief(&path).ends_with("/train.py") && brief(&path).len() == RankStacks::TEXT);
        assert_eq!(brief(&"f".repeat(500)).len(), RankStacks::TEXT);
        let snakes = "\u{1f40d}".repeat(500);
        assert!(
            brief(&snakes).len() <= RankStacks::TEXT && brief(&format!("/a{snakes}")).ends_with('\u{1f40d}')
        );
    }
}
