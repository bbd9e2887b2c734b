//! Suggests the name that the user probably meant.
#![forbid(unsafe_code)]

/// Least similarity of a suggested name; 1 means equal.
const ALIKE: f64 = 0.7;

/// The known name most similar to `word`, if any.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let begins = |name: &str| !word.is_empty() && name.starts_with(&word);
    let alike = names
        .into_iter()
        .map(|name| (if begins(name) { 0.99 } else { strsim::jaro_winkler(&word, name) }, name));
    alike.filter(|(alike, _)| *alike >= ALIKE).max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_suggests_the_nearest_name_and_nonsense_suggests_none() {
        let names = ["tflops", "power", "state", "step_ms"];
        assert_eq!(nearest("tflps", names), Some("tflops"));
        assert_eq!(nearest("POWR", names), Some("power"));
        assert_eq!(nearest("step", names), Some("step_ms"));
        assert_eq!(nearest("qqq", names), None);
        assert_eq!(nearest("", names), None);
    }
}
