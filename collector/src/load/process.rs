//! Reads the counters of a rank's process and of its descendants.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use xpu_wire::{
    frame::Traffic,
    id::Pid,
    unit::{Moment, Nanoseconds},
};

/// Largest number of one rank's processes that are read.
const MOST: usize = 128;

/// Counts since the previous reading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessCounts {
    pub processes: u32,
    pub cpu: Option<Nanoseconds>,
    pub disk: Traffic,
}

/// The totals of each process at its last reading, and the time of that reading.
#[derive(Debug, Default)]
pub(super) struct Processes(BTreeMap<Pid, (Moment, Totals)>);

#[derive(Clone, Copy, Debug)]
struct Totals {
    /// CPU time in nanoseconds.
    cpu: Option<u64>,
    disk: Traffic,
}

impl Processes {
    /// The activity of the process and its descendants. A new process counts from its next reading on:
    /// otherwise a process that changes its parent would appear as a burst.
    pub(super) fn difference(&mut self, pid: Pid, now: Moment) -> ProcessCounts {
        let mut sum = ProcessCounts::default();
        for process in tree(pid) {
            let totals = Totals::read(process);
            sum.processes += 1;
            let Some((_, before)) = self.0.insert(process, (now, totals)) else { continue };
            if let (Some(cpu), Some(before)) = (totals.cpu, before.cpu) {
                sum.cpu = Some(Nanoseconds(sum.cpu.unwrap_or_default().0 + cpu.saturating_sub(before)));
            }
            let moved = totals.disk.since(before.disk);
            let add = |sum: Option<u64>, more: Option<u64>| more.map(|more| sum.unwrap_or(0) + more).or(sum);
            sum.disk = Traffic {
                received: add(sum.disk.received, moved.received),
                sent: add(sum.disk.sent, moved.sent),
            };
        }
        sum
    }

    /// Forgets the processes that were not read at `now`.
    pub(super) fn forget(&mut self, now: Moment) {
        self.0.retain(|_, (at, _)| *at == now);
    }
}

impl Totals {
    fn read(pid: Pid) -> Self {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let bytes = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        Self {
            cpu: ticks(&stat).and_then(nanoseconds),
            disk: Traffic { received: bytes("read_bytes:"), sent: bytes("write_bytes:") },
        }
    }
}

/// Ticks of user and system mode: fields 14 and 15. The name before them may contain anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

pub(super) fn nanoseconds(ticks: u64) -> Option<u64> {
    // SAFETY: sysconf has no precondition.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    ticks.saturating_mul(1_000_000_000).checked_div(per_second)
}

/// The process, and the descendants that main threads started. A rank has hundreds of threads, but data
/// loaders start their workers from the main thread.
pub(super) fn tree(pid: Pid) -> BTreeSet<Pid> {
    let (mut found, mut left) = (BTreeSet::new(), vec![pid]);
    while let Some(next) = left.pop().filter(|_| found.len() < MOST) {
        if found.insert(next) {
            let children =
                fs::read_to_string(format!("/proc/{next}/task/{next}/children")).unwrap_or_default();
            left.extend(children.split_ascii_whitespace().filter_map(|child| child.parse().ok()).map(Pid));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_does_not_shift_fields() {
        let stat = "7 (a) (b 1 2) S 1 7 7 0 -1 4194304 1 0 0 0 250 30 1 1 20 0 1 0 99 1 1";
        assert_eq!(ticks(stat), Some(280));
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn a_process_that_is_gone_has_no_figures() {
        let mut processes = Processes::default();
        let gone = Pid(u32::MAX >> 1);
        for at in 1..4 {
            let counts = processes.difference(gone, Moment(at));
            assert!(counts.cpu.is_none() && !counts.disk.is_known(), "{counts:?}");
        }
        processes.forget(Moment(9));
        assert!(processes.0.is_empty());
    }
}
