use super::*;

fn typed(text: &str) -> Prompt {
    let mut prompt = Prompt::new(Kind::Filter, "");
    for c in text.chars() {
        prompt.edit(&Edit::Type(c), &Lines::default());
    }
    prompt
}

fn edited(text: &str, edits: &[Edit]) -> (String, String) {
    let mut prompt = typed(text);
    for edit in edits {
        prompt.edit(edit, &Lines::default());
    }
    let (before, after) = prompt.halves();
    (before.to_owned(), after.to_owned())
}

#[test]
fn letters_are_inserted_and_erased_at_the_cursor() {
    let both = |before: &str, after: &str| (before.to_owned(), after.to_owned());
    assert_eq!(edited("host~日本", &[Edit::Erase]), both("host~日", ""));
    assert_eq!(edited("abc", &[Edit::Left, Edit::Type('é')]), both("abé", "c"));
    assert_eq!(edited("abc", &[Edit::Home, Edit::Erase, Edit::Left, Edit::Right]), both("a", "bc"));
    assert_eq!(edited("rank<64 & ", &[Edit::EraseWord]), both("rank<64 ", ""));
    assert_eq!(edited("rank<64", &[Edit::EraseWord, Edit::EraseWord]), both("rank", ""));
    assert_eq!(edited("rank<64", &[Edit::EraseLine, Edit::Erase, Edit::EraseWord, Edit::End]), both("", ""));
    assert_eq!(edited("a", &[Edit::Type('\u{1b}'), Edit::Right]), both("a", ""));
}

#[test]
fn lines_have_a_maximum_length() {
    assert_eq!(typed(&"日".repeat(LONGEST + 9)).text().chars().count(), LONGEST);
    assert_eq!(Prompt::new(Kind::Filter, &"x\n".repeat(LONGEST + 9)).text().len(), LONGEST);
}

#[test]
fn earlier_lines_and_the_typed_line_are_restored() {
    let mut lines = Lines::default();
    for line in ["one", "two", "one", " "] {
        lines.keep(Kind::Filter, line);
    }
    lines.keep(Kind::Time, "+10m");
    let mut prompt = typed("thr");
    let mut seen = Vec::new();
    for edit in [Edit::Earlier, Edit::Earlier, Edit::Earlier, Edit::Later, Edit::Later, Edit::Later] {
        prompt.edit(&edit, &lines);
        seen.push(prompt.text().to_owned());
    }
    assert_eq!(seen, ["one", "two", "two", "one", "thr", "thr"]);
    for n in 0..2 * REMEMBERED {
        lines.keep(Kind::Filter, &n.to_string());
    }
    assert_eq!(lines.of(Kind::Filter).count(), REMEMBERED);
}

#[test]
fn a_word_is_completed_and_turned_through() {
    let known = |_: &str| (0, vec!["p90".to_owned(), "p99".to_owned()]);
    let mut prompt = typed("p & x");
    for _ in 0..4 {
        prompt.edit(&Edit::Left, &Lines::default());
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        prompt.complete(known);
        seen.push(prompt.text().to_owned());
    }
    assert_eq!(seen, ["p90 & x", "p99 & x", "p90 & x"]);
    assert_eq!(prompt.choices().map(|(_, at)| at), Some(0));
    let mut nothing = typed("x");
    nothing.complete(|_| (0, Vec::new()));
    assert_eq!(nothing.text(), "x");
}
