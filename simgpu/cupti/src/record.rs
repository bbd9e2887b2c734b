//! Records in the layout of the simulated CUPTI version. Fields that are not simulated have all bits set, not
//! zero.

use simgpu_engine::trace::{Event, What};

use crate::call::timestamp;

pub(crate) const COPY: u32 = 1;
pub(crate) const SET: u32 = 2;
pub(crate) const DRIVER: u32 = 4;
pub(crate) const RUNTIME: u32 = 5;
pub(crate) const KERNEL: u32 = 10;
/// The number of kinds.
pub(crate) const KINDS: u32 = 60;

/// `CUpti_ActivityKernel8`, `9`, `10` and `13`; `Memcpy5`, `6` and `7`; `Memset4` and `5`; `API`
pub(crate) fn size(kind: u32, version: u32) -> Option<usize> {
    let newest = [21, 25, 129_999, 130_299].iter().filter(|&&last| version > last).count();
    let sizes = match kind {
        KERNEL => [200, 208, 208, 216, 248],
        COPY => [88, 88, 96, 96, 112],
        SET => [88, 88, 88, 88, 104],
        DRIVER | RUNTIME => [40; 5],
        _ => return None,
    };
    Some(sizes[newest])
}

pub(crate) fn kind(event: &Event) -> u32 {
    match event.what {
        What::DriverCall => DRIVER,
        What::RuntimeCall => RUNTIME,
        What::Kernel => KERNEL,
        What::Copy => COPY,
        What::Set => SET,
    }
}

/// `whole` is false while the work has not ended: the record then has no times, and no other field may be
/// relied on.
pub(crate) fn write(event: &Event, whole: bool, bytes: &mut [u8]) {
    bytes.fill(0xff);
    let mut word = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    let kind = kind(event);
    word(0, kind);
    let (begin, end) = if whole { (timestamp(event.begin), timestamp(event.end)) } else { (0, 0) };
    match event.what {
        What::DriverCall | What::RuntimeCall => {
            word(4, event.call);
            word(24, std::process::id());
            word(28, event.thread);
            word(32, event.correlation);
            word(36, 0);
        }
        What::Kernel => {
            word(40, event.device as u32);
            word(44, 1);
            word(48, event.stream);
            word(92, event.correlation);
        }
        What::Copy | What::Set => {
            word(32, event.device as u32);
            word(36, 1);
            word(40, event.stream);
            word(44, event.correlation);
        }
    }
    let mut long = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    let times = if matches!(kind, DRIVER | RUNTIME) { 8 } else { 16 };
    long(times, begin);
    long(times + 8, end);
    match event.what {
        What::Kernel if whole => long(104, event.name as u64),
        What::Kernel => {}
        What::Copy | What::Set => long(8, event.bytes),
        What::DriverCall | What::RuntimeCall => {}
    }
    if event.what == What::Copy {
        bytes[4] = copy_kind(event.kind);
    }
}

/// The `CUpti_ActivityMemcpyKind` of a `cudaMemcpyKind`. The kind of host memory is not simulated.
fn copy_kind(kind: i32) -> u8 {
    match kind {
        0 => 9,
        1 => 1,
        2 => 2,
        3 => 8,
        _ => 0,
    }
}
