//! The performance monitor (GPM) of a device, and its counters of `PCIe` bytes. All are computed from how
//! busy the device is.
//!
//! A file `no-gpm-<device>` in the machine's folder simulates a device before Hopper, which only has the
//! counters.

use std::ffi::{CStr, c_char, c_double, c_int, c_longlong, c_uint, c_ulonglong};
use std::ptr;

use simgpu_engine::clock::Moment;

use crate::call::{Error, Handle, call, on, put};
use crate::{fault, health};

/// MiB per second received and sent by a device that is always busy, as on real devices in training.
const PCIE: [f64; 2] = [2000.0, 500.0];
const NVLINK: [f64; 2] = [90_000.0, 80_000.0];

/// The share of the memory bandwidth that a busy device uses.
const DRAM: f64 = 0.5;

const MIB: f64 = 1_048_576.0;

/// `nvmlGpmSupport_t`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Support {
    version: c_uint,
    is_supported: c_uint,
}

/// The data of an `nvmlGpmSample_t`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    at: Moment,
    busy_ns: u64,
}

/// `nvmlGpmMetric_t`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Metric {
    id: c_uint,
    outcome: c_int,
    value: c_double,
    short: *const c_char,
    long: *const c_char,
    unit: *const c_char,
}

/// `nvmlGpmMetricsGet_t` up to its list, whose length is `count`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Metrics {
    version: c_uint,
    count: c_uint,
    earlier: *const Sample,
    later: *const Sample,
    list: [Metric; 0],
}

/// How many metrics NVML accepts at once.
const MOST: c_uint = 98;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmQueryDeviceSupport(handle: Handle, to: *mut Support) -> c_int {
    on(handle, |device| {
        let is_supported = c_uint::from(!fault::is_old(device));
        // SAFETY: NVML requires a writable struct.
        unsafe { put(to, Support { version: 1, is_supported }) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmSampleAlloc(to: *mut *mut Sample) -> c_int {
    call(|| {
        let sample = Box::into_raw(Box::<Sample>::default());
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(to, sample) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmSampleFree(sample: *mut Sample) -> c_int {
    call(|| {
        if sample.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: NVML requires a pointer from `nvmlGpmSampleAlloc`, passed once.
        drop(unsafe { Box::from_raw(sample) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmSampleGet(handle: Handle, sample: *mut Sample) -> c_int {
    on(handle, |device| {
        if fault::is_old(device) {
            return Err(Error::NOT_SUPPORTED);
        }
        // SAFETY: NVML requires a pointer from `nvmlGpmSampleAlloc`.
        unsafe { put(sample, Sample { at: Moment::now(), busy_ns: health::busy_ns(device) }) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut Metrics) -> c_int {
    call(|| {
        // SAFETY: NVML requires a struct with two samples of the caller.
        let (count, earlier, later) = unsafe {
            let asked = request.as_ref().ok_or(Error::INVALID_ARGUMENT)?;
            (asked.count, asked.earlier.as_ref(), asked.later.as_ref())
        };
        let (earlier, later) = earlier.zip(later).filter(|_| count <= MOST).ok_or(Error::INVALID_ARGUMENT)?;
        let passed = later.at.since(earlier.at).as_nanos() as f64;
        let share = (later.busy_ns.saturating_sub(earlier.busy_ns) as f64 / passed.max(1.0)).min(1.0);
        for place in 0..count as usize {
            // SAFETY: NVML requires a list of this length.
            let metric = unsafe { &mut *(&raw mut (*request).list).cast::<Metric>().add(place) };
            let (value, unit): (f64, &CStr) = match metric.id {
                2 => (100.0 * share, c"%"),
                10 => (100.0 * DRAM * share, c"%"),
                20 => (PCIE[1] * share, c"MiB/s"),
                21 => (PCIE[0] * share, c"MiB/s"),
                60 => (NVLINK[0] * share, c"MiB/s"),
                61 => (NVLINK[1] * share, c"MiB/s"),
                _ => {
                    metric.outcome = Error::NOT_SUPPORTED.0;
                    continue;
                }
            };
            (metric.outcome, metric.value) = (0, value);
            (metric.short, metric.long, metric.unit) = (ptr::null(), ptr::null(), unit.as_ptr());
        }
        Ok(())
    })
}

/// `nvmlFieldValue_t`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Field {
    id: c_uint,
    scope: c_uint,
    at: c_longlong,
    took: c_longlong,
    kind: c_uint,
    outcome: c_int,
    value: c_ulonglong,
}

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`
const UNSIGNED: c_uint = 3;

/// `NVML_FI_DEV_PCIE_COUNT_TX_BYTES` and `NVML_FI_DEV_PCIE_COUNT_RX_BYTES`
const SENT: c_uint = 197;
const RECEIVED: c_uint = 198;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetFieldValues(
    handle: Handle,
    count: c_int,
    fields: *mut Field,
) -> c_int {
    on(handle, |device| {
        if fields.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        let seconds = health::busy_ns(device) as f64 / 1e9;
        for place in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: NVML requires as many elements as the caller states.
            let field = unsafe { &mut *fields.add(place) };
            let rate = match field.id {
                SENT => PCIE[1],
                RECEIVED => PCIE[0],
                _ => {
                    field.outcome = Error::NOT_SUPPORTED.0;
                    continue;
                }
            };
            (field.kind, field.outcome, field.value) = (UNSIGNED, 0, (rate * MIB * seconds) as u64);
        }
        Ok(())
    })
}
