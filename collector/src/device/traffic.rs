//! Reads the load of a GPU from its performance monitor (GPM, Hopper and newer), else from its counters of
//! `PCIe` bytes.
//!
//! `nvmlDeviceGetPcieThroughput` is not used: it blocks for 20 ms, and measures only these 20 ms.

use std::time::Instant;

use nvml_wrapper::{
    Device, GpmSample, Nvml, enums::device::SampleValue, enums::gpm::GpmMetricId, gpm::gpm_metrics_get,
    struct_wrappers::gpm::GpmMetricResult, structs::device::FieldId, sys_exports::field_id,
};
use xpu_wire::frame::{GpuLoad, Traffic};

const METRICS: [GpmMetricId; 6] = [
    GpmMetricId::SmUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::PcieTxPerSec,
    GpmMetricId::NvlinkTotalRxPerSec,
    GpmMetricId::NvlinkTotalTxPerSec,
];

/// Bytes received, and bytes sent.
const COUNTERS: [FieldId; 2] =
    [FieldId(field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES), FieldId(field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES)];

/// The previous reading, from which differences are computed.
pub(super) enum Meter<'nvml> {
    Unread,
    Monitor(GpmSample<'nvml>),
    Counters(Instant, [Option<u64>; 2]),
    /// The driver reports no load: the GPU is older, is a part of one (MIG), or reading is not permitted.
    Nothing,
}

impl<'nvml> Meter<'nvml> {
    /// The load since the previous reading.
    pub(super) fn read(
        &mut self,
        nvml: &'nvml Nvml,
        device: &Device<'nvml>,
        now: Instant,
    ) -> Option<GpuLoad> {
        match self {
            Self::Unread => {
                *self = match device.gpm_support().unwrap_or(false).then(|| device.gpm_sample()) {
                    Some(Ok(sample)) => Self::Monitor(sample),
                    _ => match counters(device) {
                        [None, None] => Self::Nothing,
                        counts => Self::Counters(now, counts),
                    },
                };
                None
            }
            Self::Monitor(before) => {
                let sample = device.gpm_sample().ok()?;
                let found = gpm_metrics_get(nvml, before, &sample, &METRICS).ok();
                *before = sample;
                let found: Vec<_> =
                    found?.into_iter().map(|metric| metric.ok().and_then(|one| value(&one))).collect();
                let [sm, dram, pcie_in, pcie_out, nvlink_in, nvlink_out] = found[..] else { return None };
                let traffic = |received: Option<f64>, sent: Option<f64>| Traffic {
                    received: received.map(|rate| rate as u64),
                    sent: sent.map(|rate| rate as u64),
                };
                Some(GpuLoad {
                    sm,
                    dram,
                    pcie: traffic(pcie_in, pcie_out),
                    nvlink: traffic(nvlink_in, nvlink_out),
                })
            }
            Self::Counters(at, before) => {
                let (counts, passed) = (counters(device), now.saturating_duration_since(*at));
                let [received, sent] = [0, 1].map(|which| Some((counts[which]?, before[which]?)));
                (*at, *before) = (now, counts);
                let rate = |pair: Option<(u64, u64)>| {
                    let (now, before) = pair.filter(|(now, before)| now >= before && !passed.is_zero())?;
                    Some(((now - before) as f64 / passed.as_secs_f64()) as u64)
                };
                let pcie = Traffic { received: rate(received), sent: rate(sent) };
                Some(GpuLoad { pcie, ..GpuLoad::default() }).filter(|_| pcie.is_known())
            }
            Self::Nothing => None,
        }
    }
}

/// A share from 0 to 1, or bytes a second, by the unit that the driver names.
fn value(metric: &GpmMetricResult) -> Option<f64> {
    in_unit(metric.value, &metric.metric_info.unit)
}

fn in_unit(value: f64, unit: &str) -> Option<f64> {
    let factor = match unit.replace("/sec", "/s").as_str() {
        "%" => 0.01,
        "B/s" => 1.0,
        "KiB/s" => 1024.0,
        "MiB/s" => f64::from(1 << 20),
        "GiB/s" => f64::from(1 << 30),
        "MB/s" => 1e6,
        "GB/s" => 1e9,
        _ => return None,
    };
    Some(value * factor).filter(|value| value.is_finite() && *value >= 0.0)
}

fn counters(device: &Device<'_>) -> [Option<u64>; 2] {
    let Ok(found) = device.field_values_for(&COUNTERS) else { return [None; 2] };
    let mut values = found.into_iter().map(|field| match field.ok()?.value.ok()? {
        SampleValue::U64(bytes) => Some(bytes),
        SampleValue::U32(bytes) => Some(bytes.into()),
        SampleValue::F64(_) | SampleValue::I64(_) => None,
    });
    [values.next().flatten(), values.next().flatten()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_as_the_driver_names_them_and_unknown_ones_are_no_figure() {
        for (unit, one) in [
            ("%", Some(0.01)),
            ("MiB/s", Some(1_048_576.0)),
            ("GB/s", Some(1e9)),
            ("MiB/sec", Some(1_048_576.0)),
            ("", None),
        ] {
            assert_eq!(in_unit(1.0, unit), one, "{unit}");
        }
        assert_eq!(in_unit(f64::NAN, "%"), None);
    }
}
