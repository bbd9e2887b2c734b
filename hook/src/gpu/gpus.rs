//! The GPUs that this process uses. If there are several, the collector shows each as a rank.

use std::{
    ffi::c_int,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{AcqRel, Relaxed},
    },
};

use xpu_wire::id::{DeviceIndex, Rank};

use crate::gpu::runtime;

/// Number of a thread's first GEMMs whose device is queried in any case: more than it launches until [`Gpus::uses`]
/// has been called for each device, also if one thread launches on all of them.
const FIRST: u64 = 1 << 14;

/// The process has not used any device.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Gpus {
    /// A bit for each device that is used.
    used: AtomicU64,
    /// The first used device. Work whose device is unknown counts for it.
    home: AtomicU32,
}

impl Gpus {
    pub(crate) const fn new() -> Self {
        Self { used: AtomicU64::new(0), home: AtomicU32::new(NONE) }
    }

    /// Notes that the process uses this device: it has a communicator there, or has launched several GEMMs
    /// there.
    pub(crate) fn uses(&self, device: c_int) {
        if let Some(device) = u32::try_from(device).ok().filter(|&device| device < Rank::GPUS) {
            self.used.fetch_or(1 << device, Relaxed);
            let _ = self.home.compare_exchange(NONE, device, AcqRel, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        let used = self.used.load(Relaxed);
        used & used.wrapping_sub(1) != 0
    }

    /// The device that this thread launches on; queried only if the process uses several.
    #[inline]
    pub(crate) fn of_launch(&self) -> Option<c_int> {
        if self.are_several() { launching() } else { None }
    }

    /// Same as [`Self::of_launch`], for a thread's GEMM of this number. Also queried for the first ones: the
    /// process may use further devices by the time they are counted.
    #[inline]
    pub(crate) fn of_gemm(&self, number: u64) -> Option<c_int> {
        if self.are_several() || number < FIRST { launching() } else { None }
    }

    /// Whether the process is known to use this device.
    pub(crate) fn is_used(&self, device: c_int) -> bool {
        u32::try_from(device)
            .is_ok_and(|device| device < Rank::GPUS && self.used.load(Relaxed) >> device & 1 == 1)
    }

    /// This device, if its work counts separately from that of the first device.
    pub(crate) fn beside_home(&self, device: Option<c_int>) -> Option<DeviceIndex> {
        let device = u32::try_from(device?).ok().filter(|&device| device < Rank::GPUS)?;
        let is_used = self.used.load(Relaxed) >> device & 1 == 1;
        (is_used && device != self.home.load(Relaxed)).then_some(DeviceIndex(device))
    }

    /// All used devices, in order, if there are several.
    pub(crate) fn several(&self) -> Vec<DeviceIndex> {
        if !self.are_several() {
            return Vec::new();
        }
        let used = self.used.load(Relaxed);
        (0..Rank::GPUS).filter(|&device| used >> device & 1 == 1).map(DeviceIndex).collect()
    }
}

#[cold]
fn launching() -> Option<c_int> {
    runtime::error_free().then(runtime::current_device).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_with_the_first_until_others_are_used() {
        let gpus = Gpus::new();
        assert_eq!((gpus.are_several(), gpus.beside_home(Some(3))), (false, None));
        gpus.uses(2);
        gpus.uses(2);
        assert_eq!((gpus.are_several(), gpus.several()), (false, Vec::new()));
        gpus.uses(5);
        gpus.uses(0);
        assert!(gpus.are_several());
        assert_eq!(gpus.several(), [0, 2, 5].map(DeviceIndex));
        assert_eq!(
            [Some(2), Some(5), Some(7), Some(-1), None].map(|device| gpus.beside_home(device)),
            [None, Some(DeviceIndex(5)), None, None, None]
        );
        gpus.uses(64);
        assert_eq!(gpus.several().len(), 3, "beyond the last");
    }
}
