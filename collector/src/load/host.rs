//! Reads the counters of the whole host: CPU time, network devices, InfiniBand ports, disks.

use std::{fs, path::Path};

use xpu_wire::{
    frame::{HostUse, Traffic},
    unit::Nanoseconds,
};

use crate::metrics::machine;

/// `InfiniBand` ports count words of four bytes (sysfs-class-infiniband).
const WORD: u64 = 4;

/// Modes in which a core is idle.
const AT_REST: [&str; 2] = ["idle", "iowait"];

/// Totals since the host's start.
#[derive(Clone, Debug, Default)]
pub(super) struct HostCounts {
    cores: u32,
    cpu: Option<u64>,
    network: Traffic,
    rdma: Traffic,
    disk: Traffic,
}

impl HostCounts {
    pub(super) fn read() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let stat = read("/proc/stat");
        let is_disk = |name: &str| Path::new("/sys/block").join(name).exists();
        let disks = machine::disks(&read("/proc/diskstats"), is_disk);
        let bytes = |sectors: u64| sectors * machine::SECTOR as u64;
        Self {
            cores: stat.lines().filter(|line| is_core(line)).count() as u32,
            cpu: busy(&stat),
            network: network(&read("/proc/net/dev"), |name| {
                Path::new("/sys/class/net").join(name).join("device").exists()
            }),
            rdma: rdma(Path::new("/sys/class/infiniband")),
            // Disks that consist of other disks would count the same bytes again.
            disk: sum(disks
                .iter()
                .filter(|disk| !is_made_of_others(&disk.name))
                .map(|disk| (bytes(disk.read), bytes(disk.written)))),
        }
    }

    pub(super) fn since(&self, before: &Self) -> HostUse {
        let cpu = self.cpu.zip(before.cpu).map(|(now, before)| Nanoseconds(now.saturating_sub(before)));
        HostUse {
            cores: self.cores,
            cpu,
            network: self.network.since(before.network),
            rdma: self.rdma.since(before.rdma),
            disk: self.disk.since(before.disk),
        }
    }
}

fn is_core(line: &str) -> bool {
    line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// CPU time in nanoseconds, of all cores.
fn busy(stat: &str) -> Option<u64> {
    let modes = machine::cpu(stat);
    let at_work = modes.iter().filter(|(mode, _)| !AT_REST.contains(mode)).map(|(_, ticks)| ticks);
    (!modes.is_empty()).then(|| at_work.sum::<u64>()).and_then(super::process::nanoseconds)
}

/// The traffic of all hardware devices, or of all devices in a container, where none is hardware.
fn network(text: &str, is_hardware: impl Fn(&str) -> bool) -> Traffic {
    let devices = machine::network(text);
    let has_hardware = devices.iter().any(|device| is_hardware(&device.name));
    let counted = devices.iter().filter(|device| !has_hardware || is_hardware(&device.name));
    sum(counted.map(|device| (device.received, device.sent)))
}

/// The traffic of all `InfiniBand` ports; unknown if there is none.
fn rdma(devices: &Path) -> Traffic {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let ports = entries(devices).flat_map(|device| entries(&device.join("ports")).collect::<Vec<_>>());
    sum(ports.filter_map(|port| {
        let words = |name: &str| {
            fs::read_to_string(port.join("counters").join(name)).ok()?.trim().parse::<u64>().ok()
        };
        Some((words("port_rcv_data")? * WORD, words("port_xmit_data")? * WORD))
    }))
}

fn is_made_of_others(disk: &str) -> bool {
    disk.starts_with("dm-") || disk.starts_with("md")
}

fn sum(counts: impl Iterator<Item = (u64, u64)>) -> Traffic {
    let sum = counts.reduce(|all, one| (all.0 + one.0, all.1 + one.1));
    Traffic { received: sum.map(|sum| sum.0), sent: sum.map(|sum| sum.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_internal_network_devices_are_left_out_if_there_are_others() {
        let text = "a|b\nc|d\n lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n eth0: 100 2 0 0 0 0 0 0 300 4 0 0 0 0 0 0\n br0: 100 2 0 0 0 0 0 0 300 4 0 0 0 0 0 0\n";
        assert_eq!(network(text, |name| name == "eth0"), Traffic { received: Some(100), sent: Some(300) });
        assert_eq!(network(text, |_| false), Traffic { received: Some(200), sent: Some(600) });
        assert_eq!(network("", |_| true), Traffic::default());
    }

    #[test]
    fn port_counters_count_words_and_an_absent_one_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(rdma(folder.path()), Traffic::default());
        for (device, received) in [("mlx5_0", 10), ("mlx5_1", 20)] {
            let counters = folder.path().join(device).join("ports/1/counters");
            fs::create_dir_all(&counters).unwrap();
            fs::write(counters.join("port_rcv_data"), format!("{received}\n")).unwrap();
            fs::write(counters.join("port_xmit_data"), "1\n").unwrap();
        }
        assert_eq!(rdma(folder.path()), Traffic { received: Some(120), sent: Some(8) });
    }

    #[test]
    fn this_host_has_cores_that_work() {
        let counts = HostCounts::read();
        assert!(counts.cores > 0 && counts.cpu > Some(0), "{counts:?}");
        assert_eq!(busy("nothing"), None);
    }
}
