//! NCCL's ids of a communicator, as its ranks know them. A new rank gets a number that the remaining ranks
//! compute themselves.

use std::ffi::c_int;

use crate::about;

/// The ids of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// `commHash` in NCCL.
    pub hash: u64,
    /// `magic` in NCCL.
    pub magic: u64,
}

impl Greeting {
    pub(crate) fn of_id(id: &[u8; 128], magic: u64) -> Self {
        // NCCL's hash before 2.26: Bernstein's, over signed bytes.
        let old = || {
            id.iter()
                .fold(5381_u64, |hash, &byte| hash.wrapping_mul(33) ^ (i64::from(byte.cast_signed()) as u64))
        };
        Self { hash: if about::version() < 22_600 { old() } else { hash(&[id]) }, magic }
    }

    pub(crate) fn split(self, ordinal: u32, color: c_int) -> Self {
        let hash = hash(&[&self.hash.to_ne_bytes(), &ordinal.to_ne_bytes(), &color.to_ne_bytes()]);
        Self { hash, magic: hash }
    }

    /// The ids of a communicator that is made by growing another.
    pub(crate) fn grown(magic: u64, ranks: u32) -> Self {
        Self { hash: pair(magic, ranks.into()), magic }
    }

    /// The magic number of the `ordinal`-th child, if it is grown.
    pub(crate) fn grown_magic(self, ordinal: u32) -> u64 {
        pair(self.magic, ordinal.into())
    }
}

fn pair(one: u64, other: u64) -> u64 {
    hash(&[&one.to_ne_bytes(), &other.to_ne_bytes()])
}

/// NCCL's hash of its ids, since 2.26.
fn hash(parts: &[&[u8]]) -> u64 {
    let [mut a, mut b] = [1_u64; 2];
    for part in parts {
        a ^= part.len() as u64;
        for chunk in part.chunks(8) {
            a = a.wrapping_add(b);
            b ^= a;
            a = (a ^ (a >> 31)).wrapping_mul(0x9de6_2bbc_8cef_3ce3);
            b = (b ^ (b >> 32)).wrapping_mul(0x485c_d631_1b59_9e79);
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            a = a.wrapping_add(u64::from_ne_bytes(word));
        }
    }
    let mixed = (a ^ (a >> 31)).wrapping_mul(0xbac3_bd56_2846_de6b).wrapping_add(b);
    (mixed ^ (mixed >> 32)).wrapping_mul(0x995a_187a_14e7_b445)
}
