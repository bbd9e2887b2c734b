//! One record of CUPTI.
//!
//! Newer CUPTI versions only append to a record: kinds, times, streams, correlations and names have the same
//! offsets from CUDA 11.8 to 13.5, as `offsetof` on the `cupti_activity.h` of 11.8.87, 12.1.105, 12.4.127,
//! 12.8.90, 13.0.85 and 13.5.25 shows (`CUpti_ActivityKernel8` to `13`).

use std::ffi::c_char;

/// The versions (`cuptiGetVersion`) of CUDA 11.8, and of the first CUPTI whose records are not known.
pub(super) const OLDEST: u32 = 18;
pub(super) const TOO_NEW: u32 = 140_000;

pub(super) const KERNEL: u32 = 10;
/// Like [`KERNEL`], in a mode in which kernels never overlap.
const SERIAL_KERNEL: u32 = 3;

/// A kernel that the GPU ran. Times are CUPTI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) stream: u32,
    /// CUPTI's number of the call that launched it, which counts up and wraps around.
    pub(super) correlation: u32,
    pub(super) name: *const c_char,
}

/// Bytes read of a record; the last field read is its name.
const READ: usize = 112;

/// # Safety
/// `bytes` bytes are readable there.
pub(super) unsafe fn read(at: *const u8, bytes: usize) -> Option<Record> {
    if bytes < READ {
        return None;
    }
    // SAFETY: as promised here; each place is within what is read.
    let word = |offset: usize| unsafe { at.add(offset).cast::<u32>().read_unaligned() };
    // SAFETY: as above.
    let long = |offset: usize| unsafe { at.add(offset).cast::<u64>().read_unaligned() };
    if !matches!(word(0), KERNEL | SERIAL_KERNEL) {
        return None;
    }
    // SAFETY: as above.
    let name = unsafe { at.add(104).cast::<*const c_char>().read_unaligned() };
    Some(Record { begin: long(16), end: long(24), stream: word(48), correlation: word(92), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of this many bytes with these words and longs; all other bits are set.
    fn made(size: usize, words: &[(usize, u32)], longs: &[(usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0xa5; size];
        for &(at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        for &(at, long) in longs {
            bytes[at..at + 8].copy_from_slice(&long.to_ne_bytes());
        }
        bytes
    }

    fn read_of(bytes: &[u8]) -> Option<Record> {
        // SAFETY: all of `bytes` is readable.
        unsafe { read(bytes.as_ptr(), bytes.len()) }
    }

    #[test]
    fn kernels_of_all_versions_are_read() {
        let name = c"_Z4gemmv".as_ptr();
        // CUDA 11.8, 12.x, 13.0, 13.5
        for size in [200, 208, 216, 248] {
            let bytes = made(
                size,
                &[(0, KERNEL), (40, 3), (48, 13), (92, 77)],
                &[(16, 1_000), (24, 1_500), (104, name.addr() as u64)],
            );
            let expected = Record { begin: 1_000, end: 1_500, stream: 13, correlation: 77, name };
            assert_eq!(read_of(&bytes), Some(expected), "{size}");
        }
        assert_eq!(read_of(&made(64, &[(0, 17)], &[])), None, "overhead, of which nothing is kept");
        assert_eq!(read_of(&made(READ - 1, &[(0, KERNEL)], &[])), None, "beyond the end of its buffer");
    }
}
