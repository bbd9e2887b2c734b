//! Measures how long the kernel has held a process's control groups back by their CPU quotas.

use std::{fs, path::PathBuf};

use xpu_wire::{id::Pid, unit::Nanoseconds};

use crate::cgroup::Files;

const FILES: Files = Files { controller: "cpu", second: "cpu.stat", first: "cpu.stat" };

/// The groups with a counter, and the counters' last values.
#[derive(Debug)]
pub(super) struct Quota(Vec<(PathBuf, u64)>);

impl Quota {
    /// `None` if no group has a counter.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let counting = FILES.of(pid).into_iter().filter_map(|path| Some((throttled(&path)?, path)));
        let groups: Vec<_> = counting.map(|(count, path)| (path, count)).collect();
        (!groups.is_empty()).then_some(Self(groups))
    }

    /// The largest increase of any group since the last reading.
    pub(super) fn grown(&mut self) -> Option<Nanoseconds> {
        let grown = self.0.iter_mut().filter_map(|(path, before)| {
            let now = throttled(path)?;
            let grown = now.saturating_sub(*before);
            *before = now;
            Some(grown)
        });
        grown.max().map(Nanoseconds)
    }
}

fn throttled(path: &PathBuf) -> Option<u64> {
    parse(&fs::read_to_string(path).ok()?)
}

/// The counter in nanoseconds. Version 2 of cgroups counts microseconds.
fn parse(text: &str) -> Option<u64> {
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.find_map(|(name, count)| match name {
        "throttled_usec" => Some(count.parse::<u64>().ok()?.saturating_mul(1000)),
        "throttled_time" => count.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        assert_eq!(parse("usage_usec 7\nnr_throttled 2\nthrottled_usec 15\n"), Some(15_000));
        assert_eq!(parse("nr_periods 3\nnr_throttled 2\nthrottled_time 15\n"), Some(15));
        assert_eq!(parse("usage_usec 7\n"), None);
    }

    #[test]
    fn added_throttling_is_reported_once() {
        let path = std::env::temp_dir().join(format!("xpu-top-quota-{}", std::process::id()));
        fs::write(&path, "throttled_usec 5\n").unwrap();
        let mut quota = Quota(vec![(path.clone(), 5_000)]);
        assert_eq!(quota.grown(), Some(Nanoseconds(0)));
        fs::write(&path, "throttled_usec 12\n").unwrap();
        assert_eq!([quota.grown(), quota.grown()], [Some(Nanoseconds(7_000)), Some(Nanoseconds(0))]);
        fs::remove_file(path).unwrap();
    }
}
