//! Detects that all threads of the program have ended but the process has not. After `pthread_exit` in
//! `main`, the process ends with its last thread; the hook's thread must not keep it alive.

use std::{
    ffi::{c_int, c_long, c_void},
    fs, ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Whether the main thread was ever seen running.
static WAS_THERE: AtomicBool = AtomicBool::new(false);

/// The process's exit code, if the calling thread is the only one that still runs. The calling thread is not
/// the main thread.
pub(crate) fn last_thread_ends_with() -> Option<c_int> {
    if is_main_thread_there() {
        return None;
    }
    match fs::read_to_string("/proc/self/stat") {
        Ok(stat) => code_of_one_left(&stat),
        // Without `/proc` or a free descriptor, this thread ends: any other running thread keeps the process
        // alive.
        Err(_) if WAS_THERE.load(Relaxed) => Some(0),
        Err(_) => None,
    }
}

/// Whether the main thread runs. Opens no file, because the program may expect the lowest free descriptor. A
/// running thread has a robust list, which the kernel clears when the thread ends (`get_robust_list(2)`).
/// `false` also if the answer is unknown.
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

/// The exit code in `/proc/self/stat`, if the main thread has ended and one other thread is left
/// (`proc_pid_stat(5)`). The main thread's state follows the name, which may contain any character. An ended
/// main thread is a zombie, and is counted until all threads have ended. The last field is the exit status in
/// the format of `wait(2)`.
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
    fn a_thread_is_alone_only_if_the_main_thread_has_ended() {
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
