//! Fits sentences into narrow places.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::glyph::ELLIPSIS;

/// The text in at most `most` lines of `width` columns; a longer text ends in an ellipsis.
pub fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    if lines.len() > most {
        let rest = lines.split_off(most.saturating_sub(1)).join(" ");
        if most > 0 {
            lines.push(cut_at_word(&rest, width));
        }
    }
    lines.into_iter().map(|line| cut(&line, width)).collect()
}

/// Clauses (`a; b; c`) in at most `most` lines of `width` columns. Clauses at the end that do not fit are
/// left out completely; the first one is cut.
pub fn clauses(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut kept = text;
    while wrapped(kept, width, usize::MAX).len() > most
        && let Some((before, _)) = kept.rsplit_once("; ")
    {
        kept = before;
    }
    wrapped(kept, width, most)
}

/// The text in `width` columns, with an ellipsis at its end if it does not fit.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        let mut longer = kept.clone();
        longer.push(c);
        if longer.width() + 1 > width {
            break;
        }
        kept = longer;
    }
    if width > 0 {
        kept.truncate(kept.trim_end().len());
        kept.push(ELLIPSIS);
    }
    kept
}

/// The text in `width` columns, cut between words; empty if no word fits.
pub fn cut_words(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    // A number is not separated from its unit.
    let whole = text.match_indices(' ').map(|(end, _)| &text[..end]).filter(|kept| !ends_in_number(kept));
    let ends = whole.map(|kept| kept.trim_end_matches([' ', ',', ';', ':', '·']));
    let kept = ends.take_while(|kept| kept.width() + 2 <= width).last().unwrap_or_default();
    if kept.is_empty() { String::new() } else { format!("{kept} {ELLIPSIS}") }
}

/// Whether a text ends in a number. Names such as `bf16` and `gpu-017` do not count.
fn ends_in_number(text: &str) -> bool {
    let word = text.rsplit(' ').next().unwrap_or_default();
    word.ends_with(|end: char| end.is_ascii_digit()) && !word.contains(char::is_alphabetic)
}

/// The text in `width` columns, cut between words, or within the first word if that does not fit.
pub fn cut_at_word(text: &str, width: usize) -> String {
    let kept = cut_words(text, width);
    if kept.is_empty() { cut(text, width) } else { kept }
}

/// The end of the text in `width` columns, for names that differ at their ends.
pub fn cut_front(text: &str, width: usize) -> String {
    if text.width() <= width || width == 0 {
        return cut(text, width);
    }
    let begins = text.char_indices().map(|(begin, _)| &text[begin..]);
    let tail = begins.into_iter().find(|tail| tail.width() < width).unwrap_or_default();
    format!("{ELLIPSIS}{tail}")
}

/// The spans in `width` columns; the last visible one is cut.
pub fn cut_spans(spans: Vec<Span<'static>>, width: usize) -> Line<'static> {
    let mut line = Line::default();
    for span in spans {
        let space = width.saturating_sub(line.width());
        if span.width() > space {
            line.push_span(Span::styled(cut_span(&span.content, space), span.style));
            break;
        }
        line.push_span(span);
    }
    line
}

/// A span that is cut between words. A text next to a name is left out completely if none of its words fits.
fn cut_span(text: &str, space: usize) -> String {
    let words = text.trim_start();
    let air = text.width() - words.width();
    if words.starts_with(ELLIPSIS) {
        return if space > 0 { ELLIPSIS.to_string() } else { String::new() };
    }
    let kept = cut_words(words, space.saturating_sub(air));
    match (kept.is_empty(), air) {
        (false, _) => format!("{}{kept}", " ".repeat(air)),
        (true, 0) => cut(words, space),
        (true, _) if space > 1 => format!(" {ELLIPSIS}"),
        (true, _) => String::new(),
    }
}

/// Joins the first parts that fit into one line of `width` columns.
pub fn joined(mut parts: Vec<String>, width: usize) -> String {
    while parts.len() > 1 && parts.join(" · ").width() > width {
        parts.pop();
    }
    cut_at_word(&parts.join(" · "), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_to_the_next_line_and_the_rest_is_said_to_be_missing() {
        assert_eq!(wrapped("one two three four", 9, 3), ["one two", "three", "four"]);
        assert_eq!(wrapped("one two three four", 9, 2), ["one two", "three …"]);
        assert_eq!(wrapped("", 9, 2), Vec::<String>::new());
    }

    #[test]
    fn clauses_that_do_not_fit_are_left_out_whole() {
        let text = "last into all; the median of 64 ranks";
        assert_eq!(clauses(text, 40, 1), [text]);
        assert_eq!(clauses(text, 20, 2), ["last into all; the", "median of 64 ranks"]);
        assert_eq!(clauses(text, 20, 1), ["last into all"]);
        assert_eq!(clauses(text, 10, 1), ["last …"]);
        assert_eq!(clauses("", 10, 1), Vec::<String>::new());
    }

    #[test]
    fn the_end_of_a_name_is_kept() {
        assert_eq!(cut_front("gpu-日本-017", 8), "…本-017");
        assert_eq!(cut_front("gpu-017", 5), "…-017");
    }

    #[test]
    fn a_title_is_cut_between_words() {
        assert_eq!(cut_words("on all the 5,120 timed", 22), "on all the 5,120 timed");
        assert_eq!(cut_words("on all the 5,120 timed", 21), "on all the …");
        assert_eq!(cut_words("rank 3, gpu-1, 23 % slow", 17), "rank 3, gpu-1 …");
        assert_eq!(cut_words("rank 3, gpu-1, 23 % slow", 19), "rank 3, gpu-1 …");
        assert_eq!(cut_words("AllReduce bf16 9ca792c9", 20), "AllReduce bf16 …");
        assert_eq!(cut_words("two, one", 6), "two …");
        assert_eq!(cut_words("two, one", 4), "");
        assert_eq!(cut_words("gpu-000001", 6), "");
        assert_eq!(cut_at_word("gpu-000001", 6), "gpu-0…");
        assert_eq!(cut_at_word("rank 3: it is held down", 15), "rank 3: it is …");
    }

    #[test]
    fn nothing_is_wider_than_its_place() {
        assert_eq!(cut("gpu-000001", 6), "gpu-0…");
        assert_eq!(cut("ab", 2), "ab");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(wrapped("incomprehensibilities", 8, 1), ["incompr…"]);
    }

    #[test]
    fn no_word_of_a_line_is_cut_within() {
        for (text, space, expected) in [
            ("sleeping in futex, kernel 6.1", 24, "sleeping in futex …"),
            ("sleeping in futex", 17, "sleeping in futex"),
            ("  pin_memory.py:30", 18, "  pin_memory.py:30"),
            ("  pin_memory.py:30", 12, " …"),
            ("  pin_memory.py:30", 1, ""),
            ("… 2 lines › ", 2, "…"),
            ("… 2 lines › ", 8, "…"),
            ("… 2 lines › ", 0, ""),
            // A name is not divided into words.
            ("vectorized_elementwise_kernel", 12, "vectorized_…"),
        ] {
            assert_eq!(cut_span(text, space), expected, "{text} in {space}");
        }
    }
}
