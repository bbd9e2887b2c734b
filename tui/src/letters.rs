//! The letters that a terminal shows: all, or only ASCII.

/// The letters that a terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Letters {
    #[default]
    Unicode,
    Ascii,
}

impl Letters {
    /// Detects the letters from the locale. If no locale is set, as in most containers, the terminal is
    /// assumed to show all.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let Some(locale) = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")) else {
            return Self::Unicode;
        };
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { Self::Unicode } else { Self::Ascii }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(variables: &[(&str, &str)]) -> Letters {
        Letters::detect(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn a_locale_without_utf_8_has_ascii_alone() {
        assert_eq!(detected(&[("LANG", "de_DE.UTF-8")]), Letters::Unicode);
        assert_eq!(detected(&[("LANG", "C.utf8"), ("LC_ALL", "")]), Letters::Unicode);
        assert_eq!(detected(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]), Letters::Ascii);
        assert_eq!(detected(&[("LC_CTYPE", "POSIX")]), Letters::Ascii);
        assert_eq!(detected(&[("LANG", "en_US.ISO-8859-1")]), Letters::Ascii);
        assert_eq!(detected(&[]), Letters::Unicode);
    }
}
