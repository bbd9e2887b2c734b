//! Skipped tests. Each is printed, and noted for the end of `make test`. Under `CI=true` a skip is a failure,
//! except for what no CI machine provides.

use std::{env, fs::OpenOptions, io::Write as _, thread};

/// Skips a test because something that can be installed is missing.
///
/// # Panics
/// Under `CI=true`.
#[track_caller]
pub fn skipped(why: &str) {
    note(why);
    refuse(why, env::var("CI").ok().as_deref());
}

#[track_caller]
fn refuse(why: &str, ci: Option<&str>) {
    assert!(!matches!(ci, Some("true" | "1")), "skipped under CI=true: {why}");
}

/// What CI's containers usually lack, and no installation provides.
#[derive(Clone, Copy, Debug)]
pub enum Beyond {
    NetworkNamespaces,
    MountNamespaces,
    MemoryGroups,
    Systemd,
    Cores,
    PyTorch,
}

/// Skips a test because something is missing that may also be missing in CI.
pub fn skipped_beyond_ci(what: Beyond, why: &str) {
    note(&format!("{why} ({what:?}, which CI has not either)"));
}

fn note(why: &str) {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("{}: {why}\n", thread::current().name().unwrap_or("a test"));
    print!("SKIPPED: {line}");
    let Some(path) = env::var_os("XPU_TEST_SKIPPED") else { return };
    // Writes once, because tests run in parallel.
    let written = OpenOptions::new().append(true).create(true).open(path);
    written.and_then(|mut file| file.write_all(line.as_bytes())).expect("skipped tests can be written down");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_home_a_test_may_be_skipped() {
        refuse("no sshd", None);
        refuse("no sshd", Some("false"));
        skipped_beyond_ci(Beyond::Systemd, "no systemd-analyze");
    }

    #[test]
    #[should_panic(expected = "no sshd")]
    fn in_ci_a_skipped_test_is_a_failure() {
        refuse("no sshd", Some("true"));
    }
}
