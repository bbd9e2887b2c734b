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
    let one =
        |rate: Option<u64>, word: &str| rate.map(|rate| format!("{} {word}", figure::bytes_per_second(rate)));
    joined([one(traffic.received_bytes_per_s, received), one(traffic.sent_bytes_per_s, sent)], ", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_figures_have_no_line_and_zero_has_one() {
        let none = TrafficStatus { received_bytes_per_s: None, sent_bytes_per_s: None };
        let half = TrafficStatus { received_bytes_per_s: Some(0), ..none };
        assert_eq!(traffic(none, ["in", "out"]), None);
        assert_eq!(traffic(half, ["in", "out"]).as_deref(), Some("0 B/s in"));
        let host = HostLoadStatus { cores: 96, cpu_pct: Some(25.4), network: none, rdma: half, disk: none };
        assert_eq!(network(host).as_deref(), Some("RDMA 0 B/s in"));
        assert_eq!(cpu(host).as_deref(), Some("25 % of 96 cores"));
    }
}
