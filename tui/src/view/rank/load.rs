//! Load of the rank's GPU, its processes and its host.

use xpu_model::{
    figure,
    status::{GpuLoadStatus, HostLoadStatus, LoadStatus, TrafficStatus},
};

use super::device::Health;
use crate::palette::Role;

/// The load as lines; the GPU's figures come first.
pub(super) fn of(load: &LoadStatus) -> Vec<Health> {
    let known = |name, text: Option<String>| text.map(|text| Health { name, text, role: Role::Text });
    let gpu = |of: &dyn Fn(&GpuLoadStatus) -> Option<String>| load.gpu.as_ref().and_then(of);
    let activity = |gpu: &GpuLoadStatus| {
        let sm = gpu.sm_pct.map(|share| format!("SMs {share:.0} %"));
        let dram = gpu.dram_pct.map(|share| format!("DRAM {share:.0} % of its bandwidth"));
        joined([sm, dram], ", ")
    };
    let cores = load.cpu_cores.map(|cores| {
        format!("{cores:.1} cores, {}", figure::counted(load.processes as usize, "process", "processes"))
    });
    let all = [
        known("active", gpu(&activity)),
        known("PCIe", gpu(&|gpu| traffic(gpu.pcie, ["in", "out"]))),
        known("over NVLink", gpu(&|gpu| traffic(gpu.nvlink, ["in", "out"]))),
        known("rank's CPU", cores),
        known("rank's disk", traffic(load.disk, ["read", "written"])),
        known("host's CPU", cpu(load.host)),
        known("network", traffic(load.host.network, ["in", "out"])),
        known("RDMA", traffic(load.host.rdma, ["in", "out"])),
        known("disks", traffic(load.host.disk, ["read", "written"])),
    ];
    all.into_iter().flatten().collect()
}

pub(in crate::view) fn cpu(host: HostLoadStatus) -> Option<String> {
    host.cpu_pct
        .map(|share| format!("{share:.0} % of {}", figure::counted(host.cores as usize, "core", "cores")))
}

/// The traffic of each kind of network that the host has.
pub(in crate::view) fn network(host: HostLoadStatus) -> Option<String> {
    let rdma = traffic(host.rdma, ["in", "out"]).map(|rates| format!("RDMA {rates}"));
    joined([traffic(host.network, ["in", "out"]), rdma], "; ")
}

fn joined(texts: [Option<String>; 2], between: &str) -> Option<String> {
    let known: Vec<_> = texts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(between))
}

pub(in crate::view) fn traffic(traffic: TrafficStatus, [received, sent]: [&str; 2]) -> Option<String> {
    let one = |rate: Option<u64>, word: &str| rate.map(|rate| format!("{} {word}", rounded(rate)));
    joined([one(traffic.received_bytes_per_s, received), one(traffic.sent_bytes_per_s, sent)], ", ")
}

/// Bytes a second in powers of ten, as usual for networks.
pub(in crate::view) fn rounded(rate: u64) -> String {
    match rate {
        0..1_000 => format!("{rate} B/s"),
        1_000..1_000_000 => format!("{:.1} kB/s", rate as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB/s", rate as f64 / 1e6),
        _ => format!("{:.1} GB/s", rate as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_has_no_line_and_what_is_zero_has_one() {
        let none = TrafficStatus { received_bytes_per_s: None, sent_bytes_per_s: None };
        let half = TrafficStatus { received_bytes_per_s: Some(0), ..none };
        assert_eq!(traffic(none, ["in", "out"]), None);
        assert_eq!(traffic(half, ["in", "out"]).as_deref(), Some("0 B/s in"));
        let host = HostLoadStatus { cores: 96, cpu_pct: Some(25.4), network: none, rdma: half, disk: none };
        assert_eq!(network(host).as_deref(), Some("RDMA 0 B/s in"));
        assert_eq!(cpu(host).as_deref(), Some("25 % of 96 cores"));
    }

    #[test]
    fn rates_are_short() {
        let rates = [999, 1_500, 25_400_000, 63_000_000_000].map(rounded);
        assert_eq!(rates, ["999 B/s", "1.5 kB/s", "25.4 MB/s", "63.0 GB/s"]);
    }
}
