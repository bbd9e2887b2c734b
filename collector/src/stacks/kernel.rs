//! The kernel's data about a process and its threads, from `/proc`.

use std::{fs, path::PathBuf};

use xpu_wire::{
    frame::{TaskState, ThreadStack},
    id::Pid,
};

use super::brief::brief;

/// Largest number of threads that are read. Further threads are only counted.
const LOOKED_AT: usize = 4096;

/// The process's thread ids, its first thread first, and their total number.
pub(super) fn threads(pid: Pid) -> (Vec<u32>, usize) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable_by_key(|&number| (number != pid.0, number));
    let all = numbers.len();
    numbers.truncate(LOOKED_AT);
    (numbers, all)
}

/// The kernel's data about a thread; `None` if the thread has ended.
pub(super) fn thread(pid: Pid, thread: u32) -> Option<ThreadStack> {
    let name = fs::read_to_string(task(pid, thread).join("comm")).ok()?;
    Some(ThreadStack {
        thread: Some(thread),
        name: brief(name.trim_end()),
        main: thread == pid.0,
        owns_gil: false,
        inside: None,
        task: task_state(pid, thread),
        frames: Vec::new(),
        more_frames: 0,
    })
}

/// The state of a thread. The kernel may hide `wchan` and `syscall` from processes that may not trace this
/// one: they are then unknown.
pub(super) fn task_state(pid: Pid, thread: u32) -> Option<TaskState> {
    let file = |name| fs::read_to_string(task(pid, thread).join(name)).ok();
    let waits_in = file("wchan").filter(|text| !text.is_empty() && text != "0");
    Some(TaskState {
        letter: letter(&file("stat")?)?,
        waits_in: waits_in.map(|text| brief(&text)),
        call: file("syscall").and_then(|text| text.split(' ').next()?.parse().ok()),
    })
}

fn task(pid: Pid, thread: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{thread}"))
}

/// `proc_pid_stat(5)`: the name is in parentheses and may hold any character.
fn letter(stat: &str) -> Option<char> {
    stat.get(stat.rfind(')')? + 1..)?.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use std::process::id;

    use super::*;

    #[test]
    fn this_thread_is_among_those_of_this_process() {
        let pid = Pid(id());
        // SAFETY: gettid has no conditions.
        let own = unsafe { libc::gettid() } as u32;
        let (all, count) = threads(pid);
        assert_eq!((all[0], all.len()), (pid.0, count));
        assert!(all.contains(&own));
        assert_eq!(thread(pid, own).and_then(|thread| thread.task).map(|task| task.letter), Some('R'));
        assert!(thread(pid, u32::MAX).is_none());
    }

    #[test]
    fn parentheses_in_a_name_do_not_hide_the_state() {
        assert_eq!(letter("7 (a) R (b) S 1 7"), Some('S'));
        assert_eq!(letter("7 (a"), None);
    }
}
