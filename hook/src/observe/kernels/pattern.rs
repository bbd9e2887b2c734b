//! The requested kernel names: `flash_fwd:attn*bwd`.

/// Maximum number of patterns, and maximum number of characters of one pattern.
pub(crate) const PATTERNS: usize = 16;
const LONGEST: usize = 64;

/// Parses patterns separated by `:`. Invalid text is an error.
pub(super) fn read(text: &str) -> Result<Vec<String>, String> {
    let parts = || text.split(':').map(str::trim).filter(|part| !part.is_empty());
    if parts().count() > PATTERNS {
        return Err(format!("XPU_TOP_KERNELS: more than {PATTERNS} patterns"));
    }
    if let Some(part) = parts().find(|part| part.len() > LONGEST || part.contains(char::is_control)) {
        return Err(format!(
            "XPU_TOP_KERNELS: '{part:.64}' has more than {LONGEST} characters, or control characters"
        ));
    }
    Ok(parts().map(str::to_owned).collect())
}

/// Whether some part of `name` matches the pattern: `*` is any characters, `?` is one. The pattern need not
/// match the whole name, because compilers put namespaces and argument types around a C++ kernel's name.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Where to continue after a mismatch: in the pattern after the last `*`, in the name at the next untried
    // position. The pattern has an implicit `*` in front.
    let (mut after_star, mut from) = (0, 0);
    let (mut place, mut at) = (0, 0);
    while place < pattern.len() {
        if pattern[place] == b'*' {
            place += 1;
            (after_star, from) = (place, at);
        } else if at == name.len() {
            return false;
        } else if pattern[place] == b'?' || pattern[place] == name[at] {
            (place, at) = (place + 1, at + 1);
        } else {
            from += 1;
            (place, at) = (after_star, from);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_any_part_of_a_name() {
        let mangled =
            "_ZN5flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128EEEEv16Flash_fwd_params";
        for (pattern, name, expected) in [
            ("flash_fwd", mangled, true),
            ("flash_fwd*", mangled, true),
            ("flash_fwd_kernel*Li128*params", mangled, true),
            ("flash_fwd*Li64", mangled, false),
            ("flash_bwd", mangled, false),
            ("*", "", true),
            ("?", "", false),
            ("a?c", "xxabcxx", true),
            ("a?c", "xxacxx", false),
            ("aab", "aaab", true),
            ("a*bc*d", "abcabxbcxd", true),
            ("a*bc*d", "abxc", false),
            ("abc", "ab", false),
            ("*ab*ab", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} in {name}");
        }
    }

    #[test]
    fn a_list_is_read_or_refused_whole() {
        assert_eq!(read("flash_fwd*: other ::"), Ok(vec!["flash_fwd*".to_owned(), "other".to_owned()]));
        assert_eq!(read(""), Ok(Vec::new()));
        assert_eq!(read(&"a:".repeat(PATTERNS)).map(|list| list.len()), Ok(PATTERNS));
        let wrong = [&"a:".repeat(PATTERNS + 1), &format!("ok:{}", "a".repeat(LONGEST + 1)), "ok:a\tb"];
        for text in wrong {
            assert!(read(text).unwrap_err().contains("XPU_TOP_KERNELS"), "{text}");
        }
    }
}
