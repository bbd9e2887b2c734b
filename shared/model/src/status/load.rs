//! Load of a rank's processes, its GPU and its host.

use serde::{Deserialize, Serialize};
use xpu_wire::{
    frame::{GpuLoad, HostUse, RankLoad, Traffic},
    unit::Nanoseconds,
};

use crate::job::Load;

/// The load of the last second. Figures that the kernel or NVML does not report are `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadStatus {
    /// The rank's process and those that it started.
    pub processes: u32,
    /// CPU time of these processes over elapsed time: 2.0 is two cores.
    pub cpu_cores: Option<f64>,
    /// Traffic from and to storage.
    pub disk: TrafficStatus,
    /// The load of the whole GPU.
    pub gpu: Option<GpuLoadStatus>,
    /// The load of everything that runs on the host.
    pub host: HostLoadStatus,
}

/// Bytes a second. A disk's `received` counts the bytes read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficStatus {
    pub received_bytes_per_s: Option<u64>,
    pub sent_bytes_per_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuLoadStatus {
    /// Share of the time in which a multiprocessor had work, averaged over all multiprocessors.
    pub sm_pct: Option<f64>,
    /// Share of the memory's bandwidth.
    pub dram_pct: Option<f64>,
    pub pcie: TrafficStatus,
    /// All `NVLinks` together.
    pub nvlink: TrafficStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostLoadStatus {
    pub cores: u32,
    /// Share of all cores.
    pub cpu_pct: Option<f64>,
    /// Network devices that lead to other hosts.
    pub network: TrafficStatus,
    /// `InfiniBand` and `RoCE` ports.
    pub rdma: TrafficStatus,
    pub disk: TrafficStatus,
}

impl From<Traffic> for TrafficStatus {
    fn from(rate: Traffic) -> Self {
        Self { received_bytes_per_s: rate.received, sent_bytes_per_s: rate.sent }
    }
}

impl TrafficStatus {
    /// The rate of the direction that moves more.
    pub fn larger(self) -> Option<u64> {
        self.received_bytes_per_s.max(self.sent_bytes_per_s)
    }
}

impl From<GpuLoad> for GpuLoadStatus {
    fn from(load: GpuLoad) -> Self {
        let GpuLoad { sm, dram, pcie, nvlink } = load;
        let [sm_pct, dram_pct] = [sm, dram].map(|share| share.map(percent));
        Self { sm_pct, dram_pct, pcie: pcie.into(), nvlink: nvlink.into() }
    }
}

impl HostLoadStatus {
    pub fn of(host: HostUse, interval: Nanoseconds) -> Self {
        let rate = |amount: Traffic| amount.over(interval).into();
        Self {
            cores: host.cores,
            cpu_pct: host.busy(interval).map(percent),
            network: rate(host.network),
            rdma: rate(host.rdma),
            disk: rate(host.disk),
        }
    }

    /// The larger rate of both kinds of network.
    pub fn busiest_network(self) -> Option<u64> {
        self.network.larger().max(self.rdma.larger())
    }
}

impl From<&Load> for LoadStatus {
    fn from(load: &Load) -> Self {
        let Load { interval, host, rank, .. } = load;
        let RankLoad { processes, cpu, disk, gpu, .. } = rank;
        Self {
            processes: *processes,
            cpu_cores: cpu.map(|cpu| thousandths(cpu.seconds() / interval.seconds().max(1e-9))),
            disk: disk.over(*interval).into(),
            gpu: gpu.map(GpuLoadStatus::from),
            host: HostLoadStatus::of(*host, *interval),
        }
    }
}

fn percent(share: f64) -> f64 {
    thousandths(share * 100.0)
}

/// Rounds to three decimals, because more would mean nothing.
fn thousandths(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}
