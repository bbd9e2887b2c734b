//! Whether the program's threads are all gone while its process is not: `pthread_exit` in `main` leaves it to the last thread to end it,
//! which must not be the hook's.

#![cfg_attr(not(test), allow(dead_code, reason = "asked by the hook's thread, once that is the only one"))]

use std::fs;

/// Whether the calling thread, which is not the main thread, is the last that runs. Reads one small file.
pub(crate) fn is_last_thread() -> bool {
    fs::read_to_string("/proc/self/stat").is_ok_and(|stat| has_one_left(&stat).unwrap_or(false))
}

/// `proc_pid_stat(5)`: the main thread's state stands after the name, which may hold any character; a main thread that has ended is a
/// zombie, and counts, until all have.
fn has_one_left(stat: &str) -> Option<bool> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    Some(state == "Z" && threads == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_main_thread_that_has_ended_leaves_one_alone() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) Z (b) {state} 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 987654 1 2")
        };
        assert_eq!(has_one_left(&stat("Z", 2)), Some(true));
        assert_eq!(has_one_left(&stat("Z", 3)), Some(false));
        assert_eq!(has_one_left(&stat("S", 2)), Some(false));
        assert_eq!(has_one_left("7 (a"), None);
        assert!(!is_last_thread());
    }
}
