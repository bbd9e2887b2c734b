//! The possible continuations.

use xpu_client::filter;

use super::names;
use crate::{
    app::{Column, Metric},
    palette::Theme,
};

/// The names that can be completed.
#[derive(Clone, Debug, Default)]
pub struct Names<'a> {
    pub hosts: Vec<&'a str>,
    pub jobs: Vec<&'a str>,
}

/// The byte where the word being typed begins, and its completions.
pub fn complete(text: &str, there: &Names<'_>) -> (usize, Vec<String>) {
    let begin = text.len() - text.trim_start().len();
    let Some(end) = text[begin..].find(char::is_whitespace).map(|end| begin + end) else {
        return (begin, beginning(&text[begin..], &names()));
    };
    let from = text[end..].find(|c: char| !c.is_whitespace()).map_or(text.len(), |blanks| end + blanks);
    let (name, rest) = (&text[begin..end], &text[from..]);
    match name {
        "metric" => (from, beginning(rest, &Metric::ALL.map(Metric::word))),
        "theme" => (from, beginning(rest, &Theme::ALL.map(Theme::name))),
        // A blank may be a character of several bytes.
        "sort" => match rest.char_indices().rfind(|(_, letter)| letter.is_whitespace()) {
            None => (from, beginning(rest, &Column::ALL.map(Column::word))),
            Some((at, blank)) => {
                let word = at + blank.len_utf8();
                (from + word, beginning(&rest[word..], &["reversed"]))
            }
        },
        "job" => (from, beginning(rest, &there.jobs)),
        "filter" => {
            let (at, words) = filter::complete(rest, &there.hosts);
            (from + at, words)
        }
        _ => (text.len(), Vec::new()),
    }
}

fn beginning(word: &str, known: &[&str]) -> Vec<String> {
    known.iter().filter(|name| name.starts_with(word)).map(|name| (*name).to_owned()).collect()
}
