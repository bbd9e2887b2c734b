//! The key of a call site: a hash of its innermost frames.
//!
//! Each step can be inverted, so sites that differ in one frame have different keys. Of all numbers,
//! multiples of the golden ratio stay farthest from whole numbers. So sites that differ in two adjacent
//! frames, for example in their order, also have different keys if the two words differ by less than 2^31.
//! Otherwise, two sites have the same key with a probability of about 2^-64.

/// 2^64 over the golden ratio, rounded to an uneven number.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key(u64);

impl Key {
    /// Adds a frame, given the word that identifies its instruction. This takes no longer than the load of
    /// the next frame's address, during which it is done.
    #[inline]
    pub(super) fn add(&mut self, word: usize) {
        self.0 = self.0.wrapping_add(word as u64).wrapping_mul(GOLDEN_RATIO);
    }

    /// 0 without frames. Tables use the lower bits, which up to here depend on nothing but lower bits.
    #[inline]
    pub(super) fn value(self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CODE: usize = 0x7f3a_91c4_2d70;

    /// The key of a site with these words, innermost first.
    fn key(words: &[usize]) -> u64 {
        let mut key = Key::default();
        for &word in words {
            key.add(word);
        }
        key.value()
    }

    /// All sites of up to five frames in three functions, which are next to each other in memory.
    #[test]
    fn sites_that_differ_in_a_frame_or_in_the_order_have_different_keys() {
        let words: Vec<_> =
            (0..3).flat_map(|code| (0..4).map(move |at| CODE + code * 416 + at * 2)).collect();
        let mut sites = vec![Vec::new()];
        let mut keys = BTreeSet::from([0]);
        let mut count = 1;
        for _ in 0..5 {
            let with = |site: &Vec<_>, &word: &usize| [site.as_slice(), &[word]].concat();
            sites = sites.iter().flat_map(|site| words.iter().map(|word| with(site, word))).collect();
            count += sites.len();
            keys.extend(sites.iter().map(|site| key(site)));
        }
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn the_lower_bits_of_keys_differ_like_random_ones() {
        for step in [2, 16, 416, 4096, 1 << 20] {
            let keys = (0..256).map(|n| key(&[CODE, 0x7f3a_8000_0000 + n * step]));
            let places: BTreeSet<_> = keys.map(|key| key % 256).collect();
            // Of 256 random places, about 162 differ.
            assert!(places.len() > 130, "{step}: {}", places.len());
        }
    }
}
