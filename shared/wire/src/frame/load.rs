//! The load of hosts, ranks' processes and GPUs, as their collector reads it once a second.

use serde::{Deserialize, Serialize};

use crate::{
    id::{JobName, Pid, Rank},
    unit::Nanoseconds,
};

/// One host of a job, and the job's ranks there. All amounts are those of `interval`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostLoad {
    pub job: JobName,
    /// The time covered.
    pub interval: Nanoseconds,
    pub host: HostUse,
    pub ranks: Vec<RankLoad>,
}

/// The load of the whole host, by any job. `None` where the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostUse {
    pub cores: u32,
    /// CPU time of all cores together.
    pub cpu: Option<Nanoseconds>,
    /// Bytes of its network devices, without virtual ones within the host (loopback, bridges, pairs).
    pub network: Traffic,
    /// Bytes of its `InfiniBand` and `RoCE` ports.
    pub rdma: Traffic,
    /// Bytes from (`received`) and to its disks.
    pub disk: Traffic,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    pub received: Option<u64>,
    pub sent: Option<u64>,
}

/// A rank's processes: its own, and those that it started (workers of data loaders).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankLoad {
    pub rank: Rank,
    pub pid: Pid,
    pub processes: u32,
    /// CPU time.
    pub cpu: Option<Nanoseconds>,
    /// Bytes from and to storage, as far as the kernel assigns them to processes.
    pub disk: Traffic,
    /// The load of the whole GPU that it runs on.
    pub gpu: Option<GpuLoad>,
}

/// What a GPU moves and computes, by NVML, over a second. `None` where NVML does not report it for this GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuLoad {
    /// Share of the time, from 0 to 1, in which a multiprocessor had work, averaged over all multiprocessors.
    pub sm: Option<f64>,
    /// Share of its memory's bandwidth that was used.
    pub dram: Option<f64>,
    /// Bytes a second over `PCIe` and over all `NVLink`s.
    pub pcie: Traffic,
    pub nvlink: Traffic,
}

impl Traffic {
    /// The difference of two counts.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Self { received: since(self.received, before.received), sent: since(self.sent, before.sent) }
    }

    pub fn is_known(self) -> bool {
        self.received.is_some() || self.sent.is_some()
    }

    /// Bytes a second.
    #[must_use]
    pub fn over(self, interval: Nanoseconds) -> Self {
        let rate =
            |bytes: Option<u64>| bytes.map(|bytes| (bytes as f64 / interval.seconds().max(1e-9)) as u64);
        Self { received: rate(self.received), sent: rate(self.sent) }
    }
}

impl HostUse {
    /// Share of all cores that was busy.
    pub fn busy(&self, interval: Nanoseconds) -> Option<f64> {
        let whole = interval.seconds() * f64::from(self.cores);
        self.cpu.filter(|_| whole > 0.0).map(|cpu| (cpu.seconds() / whole).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarted_counters_are_no_traffic_and_unknown_ones_stay_unknown() {
        let of = |received, sent| Traffic { received, sent };
        assert_eq!(of(Some(5), None).since(of(Some(2), Some(1))), of(Some(3), None));
        assert_eq!(of(Some(1), Some(9)).since(of(Some(2), Some(1))), of(Some(0), Some(8)));
        assert_eq!(of(Some(3), None).over(Nanoseconds(500_000_000)), of(Some(6), None));
    }

    #[test]
    fn a_host_is_busy_by_all_its_cores() {
        let load = crate::frame::example::host::load();
        assert_eq!(load.host.busy(load.interval), Some(0.25));
        assert_eq!(HostUse::default().busy(load.interval), None);
    }
}
