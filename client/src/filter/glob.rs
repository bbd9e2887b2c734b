//! Text search: a substring, or a pattern with `*` and `?` for the whole text. Case is ignored.

/// Whether `text` contains `wanted`, or matches it as a pattern.
pub(super) fn like(text: &str, wanted: &str) -> bool {
    let (text, wanted) = (text.to_lowercase(), wanted.to_lowercase());
    if wanted.contains(['*', '?']) { fits(&text, &wanted) } else { text.contains(&wanted) }
}

/// Matches the whole text: `=`.
pub(super) fn same(text: &str, wanted: &str) -> bool {
    fits(&text.to_lowercase(), &wanted.to_lowercase())
}

/// Goes back to the last star only, so a match takes at most the pattern's length times the text's length.
fn fits(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<_>, Vec<_>) = (text.chars().collect(), pattern.chars().collect());
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(of) {
            Some('*') => {
                star = Some((at, of));
                of += 1;
            }
            Some(&c) if c == '?' || c == text[at] => {
                at += 1;
                of += 1;
            }
            _ => {
                let Some((from, place)) = star else { return false };
                star = Some((from + 1, place));
                (at, of) = (from + 1, place + 1);
            }
        }
    }
    pattern[of..].iter().all(|&c| c == '*')
}
