//! The work of each GPU of this process, if it uses several.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::c_int,
};

use xpu_wire::{
    frame::Launches,
    gemm::GemmShape,
    id::{DeviceIndex, DeviceUuid},
    unit::Nanoseconds,
};

use super::{Fold, GemmKey};
use crate::{
    gpu::gpus::Gpus,
    interpose::driver,
    observe::{lane::Lane, observer::Observer, record::Record},
};

/// The process counts as using a device after this many timed GEMMs on it; a stray one is not enough.
const ENOUGH: u32 = 8;

/// How long GEMMs on a further device are held back, and how many, until it counts as used or not: with one
/// thread for all devices, its communicators are first used after the GEMMs of a step.
const HELD_FOR: u64 = 1_000_000_000;
const HELD: usize = 4096;

/// A GEMM on a device that is not the first and does not count as used yet.
#[derive(Clone, Copy, Debug)]
struct Early {
    device: c_int,
    shape: GemmShape,
    /// Its duration, for one that was counted before.
    took: Option<Nanoseconds>,
}

#[derive(Debug, Default)]
pub(super) struct GpuTally {
    /// The device of the first GEMM.
    first: Option<c_int>,
    early: Vec<Early>,
    /// When the first of `early` was held back, and the time of the present gathering.
    early_since: u64,
    now: u64,
    /// Whether anything was held back for that long. Then nothing is any more.
    gave_up: bool,
    /// Number of timed GEMMs on each device, up to [`ENOUGH`].
    timed: HashMap<c_int, u32>,
    /// Launches by device; `None` if it is unknown.
    launches: BTreeMap<Option<c_int>, Launches>,
    /// CUDA's names of the GPUs in use.
    names: BTreeMap<DeviceIndex, (String, Option<DeviceUuid>)>,
}

impl GpuTally {
    /// Counts a timed GEMM.
    pub(super) fn timed(&mut self, gpus: &Gpus, device: Option<c_int>) {
        let Some(device) = device else { return };
        let timed = self.timed.entry(device).or_default();
        *timed = timed.saturating_add(1);
        if *timed == ENOUGH {
            gpus.uses(device);
        }
    }

    /// A gathering of records begins.
    pub(super) fn begin(&mut self, now: u64) {
        self.now = now;
    }

    /// Holds back a GEMM if its device may yet count as used.
    fn holds(&mut self, gpus: &Gpus, early: Option<Early>) -> bool {
        let Some(early) = early else { return false };
        let is_first = *self.first.get_or_insert(early.device) == early.device;
        if is_first || self.gave_up || gpus.is_used(early.device) || self.early.len() == HELD {
            return false;
        }
        if self.early.is_empty() {
            self.early_since = self.now;
        }
        self.early.push(early);
        true
    }

    /// Those whose devices count as used by now, and all after a while or with `all`.
    fn settled(&mut self, gpus: &Gpus, all: bool) -> Vec<Early> {
        if self.early.is_empty() {
            return Vec::new();
        }
        self.gave_up |= self.now - self.early_since > HELD_FOR;
        let is_due = |early: &mut Early| all || self.gave_up || gpus.is_used(early.device);
        self.early.extract_if(.., is_due).collect()
    }

    pub(super) fn count(&mut self, device: Option<c_int>, add: impl FnOnce(&mut Launches)) {
        add(self.launches.entry(device).or_default());
    }

    /// Launches on unknown devices, and on devices that the process hardly uses, are those of the first GPU
    /// (`None`). Launches from before a device counted as used are its own.
    fn on(&self, gpus: &Gpus, gpu: Option<DeviceIndex>) -> Launches {
        let here = self.launches.iter().filter(|(device, _)| gpus.beside_home(**device) == gpu);
        let here: Vec<_> = here.map(|(_, launches)| launches).collect();
        let of = |count: fn(&Launches) -> u64| here.iter().map(|launches| count(launches)).sum();
        Launches {
            kernels: 0,
            graphs: of(|launches| launches.graphs),
            gemms: of(|launches| launches.gemms),
            collectives: of(|launches| launches.collectives),
            point_to_point: of(|launches| launches.point_to_point),
            captured: of(|launches| launches.captured),
        }
    }
}

/// The device of a record, if the record has a timer or names the device.
pub(super) fn device_of(observer: &Observer, lane: &Lane, record: &Record) -> Option<c_int> {
    let said = match *record {
        Record::Gemm { device, .. } => device,
        Record::Collective { communicator, .. } | Record::Interval { communicator, .. } => {
            observer.communicators.slot(communicator).device()
        }
        _ => None,
    };
    said.or_else(|| lane.timers.device(record.timer()?))
}

impl Fold {
    /// Counts a GEMM, or adds its duration.
    pub(super) fn add_gemm(
        &mut self,
        gpus: &Gpus,
        device: Option<c_int>,
        shape: GemmShape,
        took: Option<Nanoseconds>,
    ) {
        let early = device.map(|device| Early { device, shape, took });
        if !self.gpus.holds(gpus, early) {
            self.put_gemm(GemmKey { gpu: gpus.beside_home(device), shape }, took);
        }
    }

    /// Adds the GEMMs that were held back until it was known whether their devices are used.
    pub(crate) fn settle_gemms(&mut self, gpus: &Gpus, all: bool) {
        for Early { device, shape, took } in self.gpus.settled(gpus, all) {
            self.put_gemm(GemmKey { gpu: gpus.beside_home(Some(device)), shape }, took);
        }
    }

    fn put_gemm(&mut self, key: GemmKey, took: Option<Nanoseconds>) {
        match took {
            None => self.gemms.count(key, 1),
            Some(took) => self.gemms.time(key, took),
        }
    }

    /// The launches of one GPU, without its kernels.
    pub(crate) fn launches_on(&self, gpus: &Gpus, gpu: Option<DeviceIndex>) -> Launches {
        self.gpus.on(gpus, gpu)
    }

    /// Queries CUDA's names of the GPUs in use, once. Called on the same thread as [`Fold::gather`].
    pub(super) fn name_gpus(&mut self, observer: &Observer) {
        for gpu in observer.gpus.several() {
            self.gpus.names.entry(gpu).or_insert_with(|| {
                let ordinal = gpu.0 as c_int;
                (driver::device_name(ordinal).unwrap_or_default(), driver::device_uuid(ordinal))
            });
        }
    }

    pub(crate) fn name_of_gpu(&self, gpu: DeviceIndex) -> (String, Option<DeviceUuid>) {
        self.gpus.names.get(&gpu).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        datatype::DataType,
        gemm::{ComputeType, Routine},
    };

    use super::*;

    #[test]
    fn a_stray_gemm_does_not_mark_its_device_as_used() {
        let (gpus, mut tally) = (Gpus::new(), GpuTally::default());
        (0..100).for_each(|_| tally.timed(&gpus, Some(1)));
        (1..ENOUGH).for_each(|_| tally.timed(&gpus, Some(0)));
        assert!(!gpus.are_several());
        tally.timed(&gpus, Some(0));
        assert_eq!(gpus.several(), [DeviceIndex(0), DeviceIndex(1)]);
    }

    /// One thread multiplies on two devices before anything shows that both are used.
    #[test]
    fn gemms_are_held_back_until_their_device_counts_as_used() {
        let (gpus, mut tally) = (Gpus::new(), GpuTally::default());
        let gemm = |device| {
            let shape = GemmShape {
                m: 8,
                n: 8,
                k: 8,
                batch: 1,
                datatype: DataType::Float32,
                compute: ComputeType::Float32,
                transposed: (false, false),
                routine: Routine::Gemm,
            };
            Some(Early { device, shape, took: None })
        };
        tally.begin(5);
        let held: Vec<_> = [0, 1, 0, 1].map(|device| tally.holds(&gpus, gemm(device))).into();
        assert_eq!(held, [false, true, false, true]);
        assert!(!tally.holds(&gpus, None) && tally.settled(&gpus, false).is_empty());
        gpus.uses(0);
        gpus.uses(1);
        assert_eq!(tally.settled(&gpus, false).len(), 2);
        assert!(!tally.holds(&gpus, gemm(1)) && tally.holds(&gpus, gemm(2)));
        assert_eq!(tally.settled(&gpus, true).len(), 1, "at the end of the process");
        assert!(tally.holds(&gpus, gemm(2)));
        tally.begin(6 + HELD_FOR);
        assert_eq!(tally.settled(&gpus, false).len(), 1);
        assert!(!tally.holds(&gpus, gemm(2)), "not used");
    }

    /// As with threads that multiply once before they create their communicators.
    #[test]
    fn gemms_from_before_a_device_is_used_are_its_own() {
        let (gpus, mut tally) = (Gpus::new(), GpuTally::default());
        let mut multiply = |device| tally.count(device, |launches| launches.gemms += 1);
        [Some(0), Some(1), None].into_iter().for_each(&mut multiply);
        gpus.uses(1);
        gpus.uses(0);
        [Some(0), Some(0)].into_iter().for_each(&mut multiply);
        let gemms = [None, Some(DeviceIndex(0))].map(|gpu| tally.on(&gpus, gpu).gemms);
        assert_eq!(gemms, [2, 3], "of the first GPU, which is 1, and of GPU 0");
    }
}
