//! Counts the GEMM shapes of a thread, so that every shape gets some samples, however rare it is.

use std::{
    hash::{Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use xpu_wire::{gemm::GemmShape, sampling};

/// Maximum number of shapes distinguished at once. Two shapes in one place displace each other and request
/// too many timings; the number of timings is limited elsewhere.
const PLACES: usize = 512;

/// The lower bits of a place are the count; the other bits identify the shape.
const COUNT: u64 = (1 << 24) - 1;

/// The position of a GEMM among those of its shape on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The first: the library may load its kernel now, between the two events. That took up to 100 ms.
    First,
    /// The second, fourth, eighth and so on.
    PowerOfTwo,
    Other,
}

/// The counts, with one writer.
#[derive(Debug)]
pub(crate) struct Shapes([AtomicU64; PLACES]);

impl Shapes {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PLACES])
    }

    /// Counts a GEMM.
    #[inline]
    pub(crate) fn ask(&self, shape: &GemmShape) -> Turn {
        let hash = hash(shape);
        let place = &self.0[hash as usize % PLACES];
        let before = place.load(Relaxed);
        if (before ^ hash) & !COUNT != 0 {
            place.store(hash & !COUNT | 1, Relaxed);
            // If another shape was counted here, the count of this shape is unknown.
            return if before == 0 { Turn::First } else { Turn::Other };
        }
        let count = ((before & COUNT) + 1).min(COUNT);
        place.store(hash & !COUNT | count, Relaxed);
        if count.is_power_of_two() { Turn::PowerOfTwo } else { Turn::Other }
    }
}

#[inline]
pub(crate) fn hash(what: &impl Hash) -> u64 {
    let mut mixer = Mixer(0);
    what.hash(&mut mixer);
    sampling::priority(mixer.0)
}

/// A fast hash: the standard library's takes as long as the rest of a launch.
struct Mixer(u64);

impl Hasher for Mixer {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u8(byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        datatype::DataType,
        gemm::{ComputeType, Routine},
    };

    use super::*;

    fn shape(m: u64, batch: u64) -> GemmShape {
        let (datatype, compute) = (DataType::Bfloat16, ComputeType::Float32);
        GemmShape {
            m,
            n: 64,
            k: 64,
            batch,
            datatype,
            compute,
            transposed: (false, false),
            routine: Routine::Gemm,
        }
    }

    #[test]
    fn a_shape_requests_timing_more_and_more_rarely() {
        let shapes = Shapes::new();
        assert_eq!(shapes.ask(&shape(64, 1)), Turn::First);
        let asked: Vec<_> = (2..=100).filter(|_| shapes.ask(&shape(64, 1)) == Turn::PowerOfTwo).collect();
        assert_eq!(asked, [2, 4, 8, 16, 32, 64]);
        assert_eq!([(); 3].map(|()| shapes.ask(&shape(64, 2))), [Turn::First, Turn::PowerOfTwo, Turn::Other]);
    }

    #[test]
    fn each_of_hundreds_of_shapes_requests_timing() {
        let shapes = Shapes::new();
        let asks = |m| (0..100).filter(|_| shapes.ask(&shape(m, 1)) == Turn::PowerOfTwo).count();
        assert!((1..300).all(|m| asks(m) == 6));
    }
}
