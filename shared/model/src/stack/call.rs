//! The kernel's state of a thread, in words.

use xpu_wire::frame::TaskState;

/// Names of the x86-64 system calls in which threads wait.
const NAMES: [(u32, &str); 25] = [
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (16, "ioctl"),
    (17, "pread64"),
    (18, "pwrite64"),
    (23, "select"),
    (24, "sched_yield"),
    (34, "pause"),
    (35, "nanosleep"),
    (43, "accept"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (72, "fcntl"),
    (73, "flock"),
    (74, "fsync"),
    (202, "futex"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (247, "waitid"),
    (270, "pselect6"),
    (281, "epoll_pwait"),
];

/// A process's or thread's state in words.
pub(super) fn state(letter: char) -> &'static str {
    match letter {
        'R' => "running",
        'S' => "sleeping",
        'D' => "in uninterruptible sleep",
        'T' => "stopped by a signal",
        't' => "stopped by a debugger",
        'Z' | 'X' | 'x' => "ended, its parent has not reaped it yet",
        'I' => "idle",
        _ => "in a state this version does not know",
    }
}

/// `sleeping in futex, kernel futex_wait_queue`
pub(super) fn words(task: &TaskState) -> String {
    let mut text = state(task.letter).to_owned();
    if let Some(number) = task.call {
        let known = NAMES.iter().find(|(known, _)| *known == number);
        text += &known.map_or_else(|| format!(" in system call {number}"), |(_, name)| format!(" in {name}"));
    }
    if let Some(function) = &task.waits_in {
        text.push_str(", kernel ");
        text.push_str(function);
    }
    text
}
