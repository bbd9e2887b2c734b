//! The name that the program gave to a communicator.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// UTF-8 from the program, cut and perhaps invalid, padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name([u8; Name::LONGEST]);

impl Name {
    pub(crate) const LONGEST: usize = 64;

    pub(crate) fn of(bytes: impl Iterator<Item = u8>) -> Self {
        let mut name = Self::default();
        for (to, byte) in name.0.iter_mut().zip(bytes) {
            *to = byte;
        }
        name
    }
}

impl Default for Name {
    fn default() -> Self {
        Self([0; Self::LONGEST])
    }
}

/// Leaves out control characters, because terminals show the name.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(Self::LONGEST);
        // Leaves out a character that was cut in two.
        for chunk in self.0[..length].utf8_chunks() {
            for character in chunk.valid().chars().filter(|character| !character.is_control()) {
                fmt::Write::write_char(f, character)?;
            }
        }
        Ok(())
    }
}

/// A name that other threads read. A read during a change returns a mixture, which is acceptable because
/// names are only displayed.
#[derive(Debug, Default)]
pub(crate) struct SharedName([AtomicU64; Name::LONGEST / 8]);

impl SharedName {
    pub(crate) fn set(&self, name: &Name) {
        for (word, bytes) in self.0.iter().zip(name.0.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Name {
        Name::of(self.0.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_safe_on_a_terminal() {
        let shown = |text: &str| {
            let shared = SharedName::default();
            shared.set(&Name::of(text.bytes()));
            shared.get().to_string()
        };
        assert_eq!(shown("tensor_parallel"), "tensor_parallel");
        assert_eq!(shown("a\x1b[31mb\n"), "a[31mb");
        assert_eq!(shown(&"x".repeat(500)), "x".repeat(64));
        assert_eq!(shown(&"ü".repeat(500)), "ü".repeat(32));
        assert_eq!(shown(&format!("x{}", "ü".repeat(500))), format!("x{}", "ü".repeat(31)));
        assert_eq!(shown(""), "");
    }
}
