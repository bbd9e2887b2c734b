//! Completions of the text typed so far.

use super::{
    expression::Statistic,
    field::{FIELDS, Field, Kind},
};

/// The byte where the word being typed begins, and its completions.
pub fn complete(text: &str, hosts: &[&str]) -> (usize, Vec<String>) {
    let of_word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let at = text.len() - text.chars().rev().take_while(|&c| of_word(c)).map(char::len_utf8).sum::<usize>();
    let (before, word) = text.split_at(at);
    let before = before.trim_end();
    let statistics = || Statistic::ALL.iter().map(|(name, _)| *name).collect();
    let known: Vec<&str> = if before.ends_with('*') {
        statistics()
    } else if before.ends_with(['<', '>', '=', '~', ':', ',']) {
        let name = before.trim_end_matches(|c: char| "<>=~:!,".contains(c) || c.is_whitespace());
        let mut words = name.rsplit(|c: char| "&|!(<>=~:".contains(c) || c.is_whitespace());
        // After a comma, the last word is the previous value: its field is found before the list.
        match Field::named(words.next().unwrap_or_default()).map(|field| field.kind) {
            Some(Kind::Number { .. }) => statistics(),
            Some(Kind::Word { only: Some(only), .. }) => only.iter().map(|(name, _)| *name).collect(),
            Some(Kind::Word { only: None, .. }) => hosts.to_vec(),
            None => Vec::new(),
        }
    } else {
        FIELDS.iter().map(Field::name).collect()
    };
    let begins = |name: &&str| name.to_lowercase().starts_with(&word.to_lowercase());
    (at, known.into_iter().filter(begins).map(str::to_owned).collect())
}
