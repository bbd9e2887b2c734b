//! The places of a thread's frames, by version of Python. They are verified before use.

/// `ob_type` of any object.
pub(super) const TYPE: usize = 8;

/// The bits of a frame's reference to its code that are not part of the address. From 3.14 on, they say how
/// the reference is counted; before, they are 0.
pub(super) const TAGS: usize = 0b11;

/// Offsets in bytes on 64-bit machines, in a build without `Py_DEBUG` and with the global lock.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    /// From the thread's state to its innermost frame, if need be by one more pointer.
    pub(super) first: usize,
    pub(super) second: Option<usize>,
    /// In a frame.
    pub(super) previous: usize,
    pub(super) code: usize,
    pub(super) instruction: usize,
    /// The unit in bytes, if the position is not an address but a count.
    pub(super) index: Option<usize>,
    /// In a code object.
    pub(super) file: usize,
    pub(super) name: usize,
    pub(super) instructions: usize,
    /// The characters of an ASCII text.
    pub(super) letters: usize,
}

const OF_3_9: Layout = Layout {
    first: 24,
    second: None,
    previous: 24,
    code: 32,
    instruction: 104,
    index: Some(1),
    file: 104,
    name: 112,
    instructions: 0,
    letters: 48,
};
const OF_3_10: Layout = Layout { instruction: 96, index: Some(2), ..OF_3_9 };
const OF_3_11: Layout = Layout {
    first: 56,
    second: Some(8),
    previous: 48,
    code: 32,
    instruction: 56,
    index: None,
    file: 112,
    name: 128,
    instructions: 184,
    letters: 48,
};
const OF_3_12: Layout =
    Layout { second: Some(0), previous: 8, code: 0, instructions: 192, letters: 40, ..OF_3_11 };
const OF_3_13: Layout = Layout { first: 72, second: None, instructions: 200, ..OF_3_12 };
/// Also of 3.15.
const OF_3_14: Layout = Layout { instructions: 208, ..OF_3_13 };

impl Layout {
    /// The layout for a version, as Python reports it. `None` if it is unknown.
    pub(super) fn of(version: &str) -> Option<&'static Self> {
        let mut numbers = version.split(|letter: char| !letter.is_ascii_digit());
        if numbers.next()? != "3" || version.contains("free-threading") {
            return None;
        }
        match numbers.next()? {
            "9" => Some(&OF_3_9),
            "10" => Some(&OF_3_10),
            "11" => Some(&OF_3_11),
            "12" => Some(&OF_3_12),
            "13" => Some(&OF_3_13),
            "14" | "15" => Some(&OF_3_14),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_versions_are_read() {
        assert_eq!(Layout::of("3.11.7 (main, Dec  8 2023) [GCC 12.2.0]"), Some(&OF_3_11));
        assert_eq!(Layout::of("3.9.18 (default)"), Some(&OF_3_9));
        for other in ["3.8.18", "3.16.0a1", "3.13.0 experimental free-threading build", "2.7.18", ""] {
            assert_eq!(Layout::of(other), None, "{other}");
        }
    }
}
