//! The machine of this collector, from the kernel's own counters: CPU, network, disks, memory. They are read
//! when the page is read, so the reader's interval determines the resolution of rates.

use std::fs;

use super::{Exposition, catalogue as all, label};

/// Largest number of network devices, and of disks, of one host.
const DEVICES: usize = 64;

/// Bytes of a sector in `/proc/diskstats`, whatever the sector size of the disk is (iostats.rst).
pub(crate) const SECTOR: f64 = 512.0;

pub(super) fn expose(exposition: &mut Exposition) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    // SAFETY: sysconf has no precondition.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    for (mode, spent) in cpu(&read("/proc/stat")) {
        let seconds = (ticks > 0).then_some(spent as f64 / ticks as f64);
        exposition.counter(all::HOST_CPU, &[("mode", label(mode))], seconds);
    }
    for device in network(&read("/proc/net/dev")).into_iter().take(DEVICES) {
        for (direction, bytes, errors) in
            [("receive", device.received, device.wrong[0]), ("transmit", device.sent, device.wrong[1])]
        {
            let labels = [("device", label(&device.name)), ("direction", label(direction))];
            exposition.counter(all::HOST_NETWORK, &labels, bytes as f64);
            exposition.counter(all::HOST_NETWORK_ERRORS, &labels, errors as f64);
        }
    }
    let is_disk = |name: &str| fs::metadata(format!("/sys/block/{name}")).is_ok();
    for Disk { name, read, written } in disks(&read("/proc/diskstats"), is_disk).into_iter().take(DEVICES) {
        for (direction, sectors) in [("read", read), ("write", written)] {
            let labels = [("device", label(&name)), ("direction", label(direction))];
            exposition.counter(all::HOST_DISK, &labels, sectors as f64 * SECTOR);
        }
    }
    let memory = read("/proc/meminfo");
    exposition.gauge(all::HOST_MEMORY, &[], kilobytes(&memory, "MemTotal:"));
    exposition.gauge(all::HOST_MEMORY_AVAILABLE, &[], kilobytes(&memory, "MemAvailable:"));
}

/// Clock ticks in each mode, over all processors (`proc_stat(5)`).
pub(crate) fn cpu(stat: &str) -> Vec<(&'static str, u64)> {
    const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks = line.into_iter().flat_map(str::split_whitespace).map(str::parse);
    MODES.into_iter().zip(ticks).filter_map(|(mode, ticks)| Some((mode, ticks.ok()?))).collect()
}

pub(crate) struct Network {
    pub(crate) name: String,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Errors and drops in each direction.
    wrong: [u64; 2],
}

/// All devices except the loopback device (`proc_pid_net(5)`).
pub(crate) fn network(text: &str) -> Vec<Network> {
    let device = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> = counts.split_whitespace().map_while(|count| count.parse().ok()).collect();
        let [received, _, r_errors, r_drops, _, _, _, _, sent, _, s_errors, s_drops, ..] = counts[..] else {
            return None;
        };
        let wrong = [r_errors + r_drops, s_errors + s_drops];
        Some(Network { name: name.trim().to_owned(), received, sent, wrong })
    };
    text.lines().filter_map(device).filter(|device| device.name != "lo").collect()
}

/// Sectors read and written.
#[derive(Debug, PartialEq)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) read: u64,
    pub(crate) written: u64,
}

/// Whole disks (`proc_diskstats(5)`).
pub(crate) fn disks(text: &str, is_disk: impl Fn(&str) -> bool) -> Vec<Disk> {
    let disk = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (name, read, written) = (words.get(2)?, words.get(5)?, words.get(9)?);
        let is_real = !name.starts_with("loop") && !name.starts_with("ram") && is_disk(name);
        is_real.then_some(())?;
        Some(Disk { name: (*name).to_owned(), read: read.parse().ok()?, written: written.parse().ok()? })
    };
    text.lines().filter_map(disk).collect()
}

fn kilobytes(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_lines_of_the_kernel_are_read_and_others_skipped() {
        let spent = cpu("cpu  10 2 30 400 5 0 7 0 0 0\ncpu0 1 1 1 1\nintr 3\n");
        assert_eq!(spent[0], ("user", 10));
        assert_eq!((spent[3], spent.len()), (("idle", 400), 8));
        let text = "Inter-|   Receive\n face |bytes packets\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  eth0: 100 2 1 2 0 0 0 0 300 4 0 5 0 0 0 0\n bad: x\n";
        let devices = network(text);
        assert_eq!(devices.len(), 1);
        assert_eq!((devices[0].received, devices[0].sent, devices[0].wrong), (100, 300, [3, 5]));
        let text = " 259 0 nvme0n1 10 0 800 5 20 0 1600 7 0 1 1\n 259 1 nvme0n1p1 1 0 8 0 1 0 8 0 0 0 0\n   7 0 loop0 1 0 2 0 0 0 0 0 0 0 0\n";
        assert_eq!(
            disks(text, |name| name == "nvme0n1"),
            [Disk { name: "nvme0n1".to_owned(), read: 800, written: 1600 }]
        );
        assert_eq!(kilobytes("MemTotal:       8 kB\nMemAvailable: 4 kB\n", "MemAvailable:"), Some(4096.0));
        for text in ["", "cpu", "cpu \n", "a: b", "1 2 3", "\u{fffd}"] {
            assert!(cpu(text).is_empty() && network(text).is_empty() && disks(text, |_| true).is_empty());
        }
    }
}
