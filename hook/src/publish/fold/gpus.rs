//! The work of each GPU of this process, if it uses several.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::c_int,
};

use xpu_wire::{
    frame::Launches,
    id::{DeviceIndex, DeviceUuid},
};

use super::Fold;
use crate::{
    gpu::gpus::Gpus,
    interpose::driver,
    observe::{lane::Lane, observer::Observer, record::Record},
};

/// The process counts as using a device after this many timed GEMMs on it; a stray one is not enough.
const ENOUGH: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct GpuTally {
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
