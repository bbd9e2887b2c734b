//! Finds the kernel's files with the counters of a process's control group (`cgroups(7)`).

use std::{
    fs,
    path::{Path, PathBuf},
};

use xpu_wire::id::Pid;

const ROOT: &str = "/sys/fs/cgroup";

/// A controller's file, in version 2 and in version 1 of cgroups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files {
    pub controller: &'static str,
    pub second: &'static str,
    pub first: &'static str,
}

impl Files {
    /// Candidate files of this process: those of its own group first, then those of the enclosing groups.
    /// Inside a container, the process's group is the root.
    pub(crate) fn of(self, pid: Pid) -> Vec<PathBuf> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        self.within(Path::new(ROOT), &text)
    }

    /// The candidate files, from the lines of `/proc/PID/cgroup`.
    fn within(self, root: &Path, text: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (root, file) = if controllers.is_empty() {
                (root.to_owned(), self.second)
            } else if controllers.split(',').any(|one| one == self.controller) {
                (root.join(self.controller), self.first)
            } else {
                continue;
            };
            let group = Path::new(path.trim_start_matches('/'));
            found.extend(group.ancestors().map(|group| root.join(group).join(file)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_name_the_files_of_a_group_and_of_those_around_it() {
        let files = Files { controller: "memory", second: "memory.events", first: "memory.oom_control" };
        let within = |text| {
            let found = files.within(Path::new("/r"), text);
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let second = ["/r/user.slice/job/memory.events", "/r/user.slice/memory.events", "/r/memory.events"];
        assert_eq!(within("0::/user.slice/job\n"), second);
        let first = ["/r/memory/job/memory.oom_control", "/r/memory/memory.oom_control", "/r/memory.events"];
        assert_eq!(within("5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n"), first);
        assert!(within("garbage\n\u{1b}").is_empty());
    }
}
