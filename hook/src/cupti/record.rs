//! One record of CUPTI.
//!
//! Newer CUPTIs only add at the end of a record: kinds, times, streams and names lie at the same places from CUDA 11.8
//! to 13.5, as `offsetof` on the `cupti_activity.h` of 11.8.87, 12.1.105, 12.4.127, 12.8.90, 13.0.85 and 13.5.25 has shown
//! (`CUpti_ActivityKernel8` to `13`, `Memcpy5` to `7`, `Memset4` and `5`).

use std::ffi::c_char;

use xpu_shared::frame::Direction;

/// What `cuptiGetVersion` says in CUDA 11.8, and what it says in no CUDA whose records are known.
pub(super) const OLDEST: u32 = 18;
pub(super) const TOO_NEW: u32 = 140_000;

pub(super) const COPY: u32 = 1;
pub(super) const SET: u32 = 2;
pub(super) const KERNEL: u32 = 10;
/// As [`KERNEL`], where kernels never overlap.
const SERIAL_KERNEL: u32 = 3;

/// Work of the GPU. Times are CUPTI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) stream: u32,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Kernel(*const c_char),
    Copy { direction: Direction, bytes: u64 },
    Set { bytes: u64 },
}

/// # Safety
/// A whole record of a known CUPTI lies there.
pub(super) unsafe fn read(at: *const u8) -> Option<Record> {
    // SAFETY: as promised here; each place is within the record of that kind.
    let word = |offset: usize| unsafe { at.add(offset).cast::<u32>().read_unaligned() };
    // SAFETY: as above.
    let long = |offset: usize| unsafe { at.add(offset).cast::<u64>().read_unaligned() };
    let ran = |stream, what| Record { begin: long(16), end: long(24), stream: word(stream), what };
    // SAFETY: as above.
    let byte = |offset: usize| unsafe { at.add(offset).read() };
    match word(0) {
        KERNEL | SERIAL_KERNEL => {
            // SAFETY: as above.
            let name = unsafe { at.add(104).cast::<*const c_char>().read_unaligned() };
            Some(ran(48, What::Kernel(name)))
        }
        COPY => Some(ran(40, What::Copy { direction: direction(byte(4)), bytes: long(8) })),
        SET => Some(ran(40, What::Set { bytes: long(8) })),
        _ => None,
    }
}

/// `CUpti_ActivityMemcpyKind`; arrays lie on the device.
fn direction(kind: u8) -> Direction {
    match kind {
        1 | 3 => Direction::HostToDevice,
        2 | 4 => Direction::DeviceToHost,
        5..=8 => Direction::DeviceToDevice,
        9 => Direction::HostToHost,
        10 => Direction::PeerToPeer,
        _ => Direction::ByAddress,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of so many bytes with these words and longs, all else set.
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
        // SAFETY: the records made here are whole.
        unsafe { read(bytes.as_ptr()) }
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
            let what = What::Kernel(name);
            let expected = Record { begin: 1_000, end: 1_500, stream: 13, what };
            assert_eq!(read_of(&bytes), Some(expected), "{size}");
        }
    }

    #[test]
    fn copies_and_fills_are_read() {
        for size in [88, 96, 112] {
            let mut bytes = made(size, &[(0, COPY), (40, 7), (44, 9)], &[(8, 4096), (16, 50), (24, 60)]);
            bytes[4] = 2;
            let what = What::Copy { direction: Direction::DeviceToHost, bytes: 4096 };
            let expected = Record { begin: 50, end: 60, stream: 7, what };
            assert_eq!(read_of(&bytes), Some(expected));
            bytes[0..4].copy_from_slice(&SET.to_ne_bytes());
            let what = What::Set { bytes: 4096 };
            let expected = Record { begin: 50, end: 60, stream: 7, what };
            assert_eq!(read_of(&bytes), Some(expected));
        }
        assert_eq!(read_of(&made(64, &[(0, 17)], &[])), None, "overhead, of which nothing is kept");
    }
}
