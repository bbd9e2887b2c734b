//! Sends and receives, counted per pair: the n-th send to a rank meets the n-th receive from it.

use super::super::sync::{AtomicU64, Relaxed};
use crate::id::CommunicatorId;

/// Number of directions that are counted: enough for an all-to-all over two hundred ranks by sends and
/// receives. Calls in further directions have no number.
const PAIRS: usize = 512;

/// Number of slots that are probed.
const TRIES: usize = 8;

#[repr(C)]
#[derive(Debug)]
pub struct Pairs([[AtomicU64; 2]; PAIRS]);

impl Pairs {
    /// The number of the next send to `peer`, or receive from it, in a communicator as its rank `member`.
    /// `None` if the table is full.
    #[inline]
    pub fn next(&self, communicator: CommunicatorId, member: u32, peer: u32, sends: bool) -> Option<u64> {
        let way = u64::from(member) << 33 | u64::from(peer) << 1 | u64::from(sends);
        let key = mix(communicator.0 ^ mix(way)) | 1;
        for place in 0..TRIES {
            let [of, count] = &self.0[((key >> 32) as usize + place) & (PAIRS - 1)];
            let mut found = of.load(Relaxed);
            if found == 0 {
                found = of.compare_exchange(0, key, Relaxed, Relaxed).map_or_else(|other| other, |_| key);
            }
            if found == key {
                return Some(count.fetch_add(1, Relaxed));
            }
        }
        None
    }
}

/// The finaliser of `SplitMix64`.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_counts_for_itself_until_there_is_no_room() {
        // SAFETY: it consists of atomic words, for which zero is a valid value.
        let pairs = unsafe { Box::<Pairs>::new_zeroed().assume_init() };
        let next = |communicator, peer, sends| pairs.next(CommunicatorId(communicator), 0, peer, sends);
        assert_eq!([next(7, 1, true), next(7, 1, true), next(7, 1, false)], [Some(0), Some(1), Some(0)]);
        assert_eq!([next(8, 1, true), next(7, 2, true), next(7, 1, true)], [Some(0), Some(0), Some(2)]);
        let counted = (0..10_000).filter(|&peer| next(9, peer, true).is_some()).count();
        assert!((PAIRS / 2..=PAIRS).contains(&counted), "{counted}");
        assert_eq!(next(7, 1, true), Some(3));
    }
}
