//! NCCL's own hash of a communicator, `commHash`: its name in NCCL's logs, profiler plugins and RAS service.
//!
//! No NCCL call returns the hash, but it follows from the program's arguments: the unique id, or for a split
//! the parent's hash, the number of the split and the color.

use std::{ffi::c_int, io::Write as _};

/// The bytes of an `ncclUniqueId`.
pub(crate) type IdBytes = [u8; 128];

/// How a version of NCCL names communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Up to 2.23. The name of a split depends only on its parent and color, so a later split of the same
    /// color has the same name.
    Unnumbered,
    /// 2.24 and 2.25.
    Text,
    /// From 2.26 on.
    Mixed,
}

impl Scheme {
    pub(crate) fn of(version: c_int) -> Self {
        match version {
            ..22_400 => Self::Unnumbered,
            22_400..22_600 => Self::Text,
            _ => Self::Mixed,
        }
    }

    /// The name of a communicator that was created from one or several unique ids; `id` is the first.
    pub(crate) fn of_id(self, id: &IdBytes) -> u64 {
        match self {
            Self::Mixed => Mixer::new().update(id).digest(),
            Self::Text | Self::Unnumbered => times_33(id),
        }
    }

    /// The name of the `number`-th split of `parent` with this color. `None` if NCCL's name does not
    /// distinguish two such splits.
    pub(crate) fn of_split(self, parent: u64, number: u32, color: c_int) -> Option<u64> {
        match self {
            Self::Unnumbered => None,
            Self::Text => {
                let mut text: IdBytes = [0; 128];
                // The longest text has 39 bytes.
                let _ = write!(&mut text[..], "{parent:016x}-{}-{color}", number.cast_signed());
                Some(times_33(&text))
            }
            Self::Mixed => Some(
                Mixer::new()
                    .update(&parent.to_le_bytes())
                    .update(&number.to_le_bytes())
                    .update(&color.to_le_bytes())
                    .digest(),
            ),
        }
    }
}

/// Combines two numbers, as NCCL does when it grows a communicator: the magic number with the parent's count,
/// then the result with the new size.
pub(crate) fn combined(base: u64, value: u64) -> u64 {
    Mixer::new().update(&base.to_le_bytes()).update(&value.to_le_bytes()).digest()
}

/// Bernstein's hash with exclusive or, over signed bytes.
fn times_33(bytes: &[u8]) -> u64 {
    bytes.iter().fold(5381, |hash: u64, &byte| hash.wrapping_mul(33) ^ i64::from(byte as i8) as u64)
}

/// Two lanes, which are mixed before each word. The result depends on how the bytes are divided into chunks.
struct Mixer {
    first: u64,
    second: u64,
}

impl Mixer {
    fn new() -> Self {
        Self { first: 1, second: 1 }
    }

    fn update(mut self, bytes: &[u8]) -> Self {
        self.first ^= bytes.len() as u64;
        for chunk in bytes.chunks(8) {
            self.mix();
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.first = self.first.wrapping_add(u64::from_le_bytes(word));
        }
        self
    }

    fn mix(&mut self) {
        self.first = self.first.wrapping_add(self.second);
        self.second ^= self.first;
        self.first = folded(self.first, 31, 0x9de6_2bbc_8cef_3ce3);
        self.second = folded(self.second, 32, 0x485c_d631_1b59_9e79);
    }

    fn digest(self) -> u64 {
        let first = folded(self.first, 31, 0xbac3_bd56_2846_de6b);
        folded(first.wrapping_add(self.second), 32, 0x995a_187a_14e7_b445)
    }
}

/// Folds the upper bits over the lower ones, and multiplies by an odd number.
fn folded(word: u64, by: u32, times: u64) -> u64 {
    (word ^ word >> by).wrapping_mul(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> IdBytes {
        std::array::from_fn(|index| index as u8)
    }

    /// Compares with results of NCCL's own code.
    #[test]
    fn computed_names_equal_nccls() {
        assert_eq!(Scheme::Mixed.of_id(&[0; 128]), 0xcc97_6ec6_c24b_b53c);
        assert_eq!(Scheme::Mixed.of_id(&counted()), 0x6afe_1cc1_7717_e1f4);
        assert_eq!(Scheme::Mixed.of_split(0x6afe_1cc1_7717_e1f4, 1, 0), Some(0x7903_0d07_3b3c_579f));
        assert_eq!(Scheme::Text.of_id(&counted()), 0xbf47_c767_cbdf_3105);
    }

    #[test]
    fn the_older_hash_uses_signed_bytes() {
        assert_eq!(times_33(&[0x80]), (5381 * 33) ^ 0xffff_ffff_ffff_ff80);
    }

    #[test]
    fn a_split_is_named_after_its_number_where_nccl_has_one() {
        for scheme in [Scheme::Text, Scheme::Mixed] {
            let all = [(1, 0), (1, 1), (2, 0)].map(|(number, color)| scheme.of_split(7, number, color));
            assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
        }
        assert_eq!(Scheme::Unnumbered.of_split(7, 1, 3), None);
        let mut text = [0; 128];
        text[..20].copy_from_slice(b"000000000000002a-3-1");
        assert_eq!(Scheme::Text.of_split(42, 3, 1), Some(times_33(&text)));
    }

    #[test]
    fn each_version_computes_its_own_names() {
        let schemes = [2_708, 21_805, 22_304, 22_403, 22_602, 23_007].map(Scheme::of);
        let [old, text, new] = [Scheme::Unnumbered, Scheme::Text, Scheme::Mixed];
        assert_eq!(schemes, [old, old, old, text, new, new]);
    }
}
