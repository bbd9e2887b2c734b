//! The kernel's out-of-memory killer: how often it struck in a process's control group, and whether its log names the process.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use xpu_shared::{id::Pid, unit::Moment};

/// A process takes so long at most to give back its memory after it was killed.
const DYING: Duration = Duration::from_secs(30);

/// Records of the kernel's log that are looked at.
const RECORDS: usize = 20_000;

const ROOT: &str = "/sys/fs/cgroup";

/// Watches one process's surroundings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemoryKills {
    /// Where its control group counts kills.
    group: Option<PathBuf>,
    counts: Counts,
    /// When the group's count, and that of the whole host, last rose.
    in_group: Option<Moment>,
    on_host: Option<Moment>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    group: Option<u64>,
    host: Option<u64>,
}

impl MemoryKills {
    pub(crate) fn of(pid: Pid) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let group = candidates(Path::new(ROOT), &text).into_iter().find(|path| count_in(path).is_some());
        let counts = counts(group.as_deref());
        Self { group, counts, in_group: None, on_host: None }
    }

    /// Looks now and then while the process lives, and once when it is gone.
    pub(crate) fn look(&mut self, now: Moment) {
        let counts = counts(self.group.as_deref());
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

    /// Whether a process that ended without a word was killed so: for certain, and who says it.
    pub(crate) fn killed(&mut self, pid: Pid, now: Moment) -> Option<(bool, String)> {
        self.look(now);
        if log_names(pid) {
            return Some((true, "the kernel's log names it".to_owned()));
        }
        let recent = |at: Option<Moment>| at.is_some_and(|at| now.since(at) <= DYING);
        if recent(self.in_group) {
            return Some((false, "its control group counts a kill".to_owned()));
        }
        recent(self.on_host).then(|| (false, "its host counts a kill".to_owned()))
    }
}

/// Files that may hold the count, by `/proc/PID/cgroup` (`cgroups(7)`): of version 2, then of version 1, each also as seen from in a
/// container, where the group is the root.
fn candidates(root: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            found.push(root.join(path).join("memory.events"));
            found.push(root.join("memory.events"));
        } else if controllers.split(',').any(|one| one == "memory") {
            found.push(root.join("memory").join(path).join("memory.oom_control"));
            found.push(root.join("memory").join("memory.oom_control"));
        }
    }
    found
}

fn counts(group: Option<&Path>) -> Counts {
    Counts { group: group.and_then(count_in), host: count_in(Path::new("/proc/vmstat")) }
}

fn count_in(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Whether the kernel's log, if it may be read, says that it killed this process.
fn log_names(pid: Pid) -> bool {
    let open = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    let Ok(mut log) = open else { return false };
    let mut record = [0; 8192];
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(count @ 1..) => {
                if names(&String::from_utf8_lossy(&record[..count]), pid) {
                    return true;
                }
            }
            // A record was overwritten meanwhile: the next one is read.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            _ => return false,
        }
    }
    false
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
    fn both_versions_of_control_groups_are_found() {
        let root = Path::new("/sys/fs/cgroup");
        let second = candidates(root, "0::/user.slice/job\n");
        assert_eq!(second[0], root.join("user.slice/job/memory.events"));
        let first = candidates(root, "5:cpu,cpuacct:/x\n4:memory:/slurm/job_7\n0::/\n");
        assert_eq!(first[0], root.join("memory/slurm/job_7/memory.oom_control"));
        assert!(candidates(root, "garbage\n\u{1b}").is_empty());
    }

    #[test]
    fn the_log_names_a_process_by_its_whole_number() {
        let record = "3,1,2,-;Memory cgroup out of memory: Killed process 1234 (python3) total-vm:12kB";
        assert!(names(record, Pid(1234)));
        assert!(!names(record, Pid(123)) && !names("3,1,2,-;oom_reaper: reaped process 1234", Pid(1234)));
    }

    #[test]
    fn a_kill_of_long_ago_is_not_why() {
        let kills = |at| MemoryKills { in_group: Some(at), ..MemoryKills::default() };
        let later = Moment(1).after(DYING * 2);
        // No process has this number, so no log names it.
        let nobody = Pid(u32::MAX);
        assert_eq!(kills(Moment(1)).killed(nobody, later), None);
        assert!(matches!(kills(later).killed(nobody, later), Some((false, _))));
    }
}
