//! Whether a process still lives, as the kernel reports it.
//!
//! A process is identified by its start time as well as its pid, because pids are reused. It is looked up in
//! `/proc`, not by a pidfd, because clusters still use kernels before 5.3.

use std::{fs, os::unix::fs::MetadataExt as _};

use crate::id::Pid;

/// A process as it was at the first look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Its start time in clock ticks after boot.
    Here { pid: Pid, started: u64 },
    /// In another process namespace (a container of its own): only its silence shows that it ended.
    Elsewhere,
}

impl Process {
    pub fn find(pid: Pid) -> Self {
        match read(pid) {
            Some(Stat { started, state, .. }) if !ended(state) => Self::Here { pid, started },
            _ => Self::Elsewhere,
        }
    }

    /// `None` when it cannot be known.
    pub fn lives(self) -> Option<bool> {
        match self {
            Self::Here { pid, started } => {
                Some(read(pid).is_some_and(|now| now.started == started && !ended(now.state)))
            }
            Self::Elsewhere => None,
        }
    }
}

/// The user who owns the process, from the kernel; `None` if the process cannot be seen.
pub fn owner(pid: Pid) -> Option<u32> {
    Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Its state in the kernel (`R`, `S`, `D`, `T`, ...); `None` if it is gone.
pub fn state(pid: Pid) -> Option<char> {
    read(pid).map(|stat| char::from(stat.state))
}

/// The kernel's name for the process; empty if it is gone.
pub fn name(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// How many processes may lie between one and the one that it belongs to: shells and launchers.
const BETWEEN: usize = 8;

/// Whether the process is `ancestor`, or was started by it.
pub fn is_of(pid: Pid, ancestor: Pid) -> bool {
    let parent = |pid: &Pid| read(*pid).map(|stat| stat.parent).filter(|parent| parent.0 > 0);
    std::iter::successors(Some(pid), parent).take(BETWEEN + 2).any(|known| known == ancestor)
}

struct Stat {
    state: u8,
    parent: Pid,
    started: u64,
}

/// Whether the process has ended. A zombie has: only its parent has not waited for it yet.
fn ended(state: u8) -> bool {
    matches!(state, b'Z' | b'X' | b'x')
}

fn read(pid: Pid) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `proc_pid_stat(5)`: the program's name is in parentheses and may hold any character, so fields count from
/// its end.
fn parse(line: &str) -> Option<Stat> {
    let mut fields = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = Pid(fields.next()?.parse().ok()?);
    let started = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, started })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};

    use super::*;

    #[test]
    fn this_process_lives() {
        assert_eq!(Process::find(Pid(id())).lives(), Some(true));
    }

    #[test]
    fn a_killed_child_is_gone_even_before_its_parent_looks() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(Pid(child.id()));
        assert_eq!(process.lives(), Some(true));
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while process.lives() == Some(true) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(process.lives(), Some(false));
        child.wait().unwrap();
        assert_eq!(process.lives(), Some(false));
    }

    #[test]
    fn a_reused_pid_is_not_the_old_process() {
        let process = Process::Here { pid: Pid(id()), started: 1 };
        assert_eq!(process.lives(), Some(false));
    }

    #[test]
    fn a_name_of_parentheses_and_spaces_does_not_shift_the_fields() {
        let line = "7 (a) R (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 2";
        let stat = parse(line).unwrap();
        assert_eq!((stat.state, stat.started), (b'S', 987_654));
        assert!(parse("7 (a").is_none());
        assert!(parse("").is_none());
    }

    #[test]
    fn a_process_of_another_namespace_is_unknown() {
        assert_eq!(Process::find(Pid(u32::MAX)).lives(), None);
    }
}
