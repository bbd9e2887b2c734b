//! Texts from outside: host names, exception messages, functions. They are cleaned once, where they enter, so
//! that they cannot steer any screen, file or log that shows them.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// Whether a character does more than print: controls (terminals act on them), line ends, and marks that
/// change the writing direction.
pub fn is_steering(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The text as one line, with a blank for each steering character.
pub fn clean(text: &str) -> Cow<'_, str> {
    without(text, is_steering)
}

/// Same as [`clean`], but line ends are kept.
pub fn clean_lines(text: &str) -> Cow<'_, str> {
    without(text, steers_a_line)
}

fn steers_a_line(letter: char) -> bool {
    letter != '\n' && is_steering(letter)
}

fn without(text: &str, refused: fn(char) -> bool) -> Cow<'_, str> {
    if text.contains(refused) {
        Cow::Owned(text.chars().map(|letter| if refused(letter) { ' ' } else { letter }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// A decoded text with a blank for each refused character; copies nothing if it has none.
fn cleaned(text: String, refused: fn(char) -> bool) -> String {
    if text.contains(refused) { without(&text, refused).into_owned() } else { text }
}

/// For fields of frames: `#[serde(deserialize_with = "text::line")]`.
pub(crate) fn line<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(cleaned(String::deserialize(from)?, is_steering))
}

/// A text that may have several lines.
pub(crate) fn lines<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(cleaned(String::deserialize(from)?, steers_a_line))
}

pub(crate) fn letter<'de, D: Deserializer<'de>>(from: D) -> Result<char, D::Error> {
    Ok(Some(char::deserialize(from)?).filter(|&letter| !is_steering(letter)).unwrap_or(' '))
}

pub(crate) fn maybe_letter<'de, D: Deserializer<'de>>(from: D) -> Result<Option<char>, D::Error> {
    Ok(Option::<char>::deserialize(from)?.map(|letter| if is_steering(letter) { ' ' } else { letter }))
}

/// A text that is decoded as one line.
#[derive(Deserialize)]
pub(crate) struct Line(#[serde(deserialize_with = "line")] pub String);

pub(crate) fn maybe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Line>::deserialize(from)?.map(|line| line.0))
}

pub(crate) fn each<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Vec::<Line>::deserialize(from)?.into_iter().map(|line| line.0).collect())
}
