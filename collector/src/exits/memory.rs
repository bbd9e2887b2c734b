//! Watches the kernel's out-of-memory killer: how often it killed in a process's control group, and whether
//! its log names the process.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use xpu_wire::{id::Pid, unit::Moment};

use crate::cgroup::Files;

/// Longest time that a killed process takes to free its memory.
const FREES_MEMORY_WITHIN: Duration = Duration::from_secs(30);

/// Records of the kernel's log that are searched.
const RECORDS: usize = 20_000;

const FILES: Files = Files { controller: "memory", second: "memory.events", first: "memory.oom_control" };

/// Watches the kill counts around one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemoryKills {
    /// The file with the kill count of the process's control group.
    group: Option<PathBuf>,
    counts: Counts,
    /// When the kill count of the group, and that of the whole host, last rose.
    in_group: Option<Moment>,
    on_host: Option<Moment>,
}

/// The kill counts of one look at all ranks. Ranks mostly share their groups, so each file is read once.
#[derive(Debug, Default)]
pub(crate) struct KillCounts(BTreeMap<PathBuf, Option<u64>>);

impl KillCounts {
    fn of(&mut self, path: &Path) -> Option<u64> {
        if let Some(count) = self.0.get(path) {
            return *count;
        }
        *self.0.entry(path.to_owned()).or_insert_with(|| count_in(path))
    }

    fn around(&mut self, group: Option<&Path>) -> Counts {
        Counts { group: group.and_then(|path| self.of(path)), host: self.of(Path::new("/proc/vmstat")) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    group: Option<u64>,
    host: Option<u64>,
}

impl MemoryKills {
    pub(crate) fn of(pid: Pid) -> Self {
        let group = FILES.of(pid).into_iter().find(|path| count_in(path).is_some());
        let counts = KillCounts::default().around(group.as_deref());
        Self { group, counts, in_group: None, on_host: None }
    }

    /// Reads the kill counts. Called regularly while the process lives, and once when it is gone.
    pub(crate) fn look(&mut self, kills: &mut KillCounts, now: Moment) {
        let counts = kills.around(self.group.as_deref());
        let rose = |before: Option<u64>, after: Option<u64>| {
            before.zip(after).is_some_and(|(before, after)| after > before)
        };
        if rose(self.counts.group, counts.group) {
            self.in_group = Some(now);
        }
        if rose(self.counts.host, counts.host) {
            self.on_host = Some(now);
        }
        self.counts = counts;
    }

    /// If a process that ended without a note was OOM-killed: whether that is certain, and the source.
    pub(crate) fn killed(&mut self, pid: Pid, now: Moment) -> Option<(bool, String)> {
        self.look(&mut KillCounts::default(), now);
        self.verdict(log_names(pid), now)
    }

    /// `named`: whether the kernel's log names the process; `None` if the log cannot be read. The host's
    /// count covers all groups, so it is used only if neither the log nor a group's count can be read.
    fn verdict(&self, named: Option<bool>, now: Moment) -> Option<(bool, String)> {
        if named == Some(true) {
            return Some((true, "the kernel's log names it".to_owned()));
        }
        let recent = |at: Option<Moment>| at.is_some_and(|at| now.since(at) <= FREES_MEMORY_WITHIN);
        if recent(self.in_group) {
            return Some((false, "its control group counts a kill".to_owned()));
        }
        let is_all = named.is_none() && self.group.is_none();
        (is_all && recent(self.on_host)).then(|| (false, "its host counts a kill".to_owned()))
    }
}

fn count_in(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Whether the kernel's log names this process as killed; `None` if the log cannot be read.
fn log_names(pid: Pid) -> Option<bool> {
    let open = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    let mut log = open.ok()?;
    let mut record = [0; 8192];
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(count @ 1..) => {
                if names(&String::from_utf8_lossy(&record[..count]), pid) {
                    return Some(true);
                }
            }
            // The record was overwritten. The next read continues after it.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(false),
            _ => return None,
        }
    }
    Some(false)
}

/// `Memory cgroup out of memory: Killed process 1234 (python3) total-vm:...`
fn names(record: &str, pid: Pid) -> bool {
    let after = record.split_once("Killed process ").map(|(_, after)| after);
    after.and_then(|after| after.split([' ', ',', '(']).next()?.parse().ok()) == Some(pid.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_a_process_by_its_whole_number() {
        let record = "3,1,2,-;Memory cgroup out of memory: Killed process 1234 (python3) total-vm:12kB";
        assert!(names(record, Pid(1234)));
        assert!(!names(record, Pid(123)) && !names("3,1,2,-;oom_reaper: reaped process 1234", Pid(1234)));
    }

    #[test]
    fn an_old_oom_kill_is_not_the_cause() {
        let kills = |at| MemoryKills { in_group: Some(at), ..MemoryKills::default() };
        let later = Moment(1).after(FREES_MEMORY_WITHIN * 2);
        assert_eq!(kills(Moment(1)).verdict(Some(false), later), None);
        assert!(matches!(kills(later).verdict(Some(false), later), Some((false, _))));
    }

    #[test]
    fn an_oom_kill_of_another_process_is_not_the_cause() {
        let now = Moment(1);
        let kills = |group: Option<&str>| MemoryKills {
            group: group.map(PathBuf::from),
            on_host: Some(now),
            ..MemoryKills::default()
        };
        assert_eq!(kills(None).verdict(Some(false), now), None, "the log would name it");
        assert_eq!(
            kills(Some("/sys/fs/cgroup/a/memory.events")).verdict(None, now),
            None,
            "its group would count it"
        );
        assert!(matches!(kills(None).verdict(None, now), Some((false, _))));
    }
}
