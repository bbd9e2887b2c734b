//! Whether all threads of the program have ended but its process has not. After `pthread_exit` in `main`, the
//! last thread ends the process; this must not be the hook's thread.

use std::{
    ffi::{c_int, c_long, c_void},
    fs, ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// The main thread was seen.
static WAS_THERE: AtomicBool = AtomicBool::new(false);

/// The process's exit code, if the calling thread, which is not the main thread, is the last that runs.
pub(crate) fn last_thread_ends_with() -> Option<c_int> {
    if is_main_thread_there() {
        return None;
    }
    match fs::read_to_string("/proc/self/stat") {
        Ok(stat) => code_of_one_left(&stat),
        // No `/proc`, or no descriptor: if others run they keep the process, and this thread leaves.
        Err(_) if WAS_THERE.load(Relaxed) => Some(0),
        Err(_) => None,
    }
}

/// Without opening a file: the lowest free descriptor is the program's. A running thread has a robust list,
/// which the kernel clears as the thread ends (`get_robust_list(2)`). `false` also if it is unknown.
pub(crate) fn is_main_thread_there() -> bool {
    let mut list = ptr::null_mut::<c_void>();
    let mut length = 0_usize;
    // SAFETY: the kernel writes the two words.
    let answer: c_long =
        unsafe { libc::syscall(libc::SYS_get_robust_list, libc::getpid(), &raw mut list, &raw mut length) };
    let is_there = answer == 0 && !list.is_null();
    if is_there {
        WAS_THERE.store(true, Relaxed);
    }
    is_there
}

/// `proc_pid_stat(5)`: the main thread's state follows the name, which may contain any character; an ended
/// main thread is a zombie, and counts, until all have ended. The last field is the exit status in the format
/// of `wait(2)`.
fn code_of_one_left(stat: &str) -> Option<c_int> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    let status: c_int = fields.last().and_then(|last| last.parse().ok()).unwrap_or(0);
    (state == "Z" && threads == 2).then_some(status >> 8 & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_main_thread_that_has_ended_leaves_one_alone() {
        let stat = |state: &str, threads: u32, status: u32| {
            format!(
                "7 (a) Z (b) {state} 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 987654 1 2 {status}\n"
            )
        };
        assert_eq!(code_of_one_left(&stat("Z", 2, 0)), Some(0));
        assert_eq!(code_of_one_left(&stat("Z", 2, 5 << 8)), Some(5));
        assert_eq!(code_of_one_left(&stat("Z", 3, 0)), None);
        assert_eq!(code_of_one_left(&stat("S", 2, 0)), None);
        assert_eq!(code_of_one_left("7 (a"), None);
        assert_eq!(last_thread_ends_with(), None);
    }

    #[test]
    fn a_main_thread_that_runs_is_seen_without_a_file() {
        assert!(is_main_thread_there());
    }
}
