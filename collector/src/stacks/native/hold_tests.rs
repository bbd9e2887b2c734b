use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
};

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

/// Starts a process while the kernel stops its parent in `vfork`, and waits for input on standard input.
const IN_THE_KERNEL: &str = "import os, sys
os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
input()";

struct Ended(Child, PathBuf);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // The child may still wait for a writer. Opening both ends does not block.
        let _ = fs::OpenOptions::new().read(true).write(true).open(&self.1);
    }
}

fn said(number: u32, what: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default().trim().to_owned()
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < DEADLINE, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_thread_that_does_not_stop_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = Command::new("python3").args(["-c", IN_THE_KERNEL]).arg(&pipe).spawn().unwrap();
    let number = child.id();
    let child = Ended(child, pipe.clone());
    let has_child = || {
        fs::read_to_string(format!("/proc/{number}/task/{number}/children")).is_ok_and(|all| !all.is_empty())
    };
    until("it waits in the kernel", || has_child() && said(number, "State:").starts_with('D'));
    assert!(copy(Pid(number), number).unwrap().is_none());
    until("it is let go", || said(number, "TracerPid:") == "0");
    // The child continues, and so does the thread. Until then, the thread does not stop.
    fs::write(&pipe, "").unwrap();
    until("it goes on", || !said(number, "State:").starts_with('D'));
    assert!(!said(number, "State:").starts_with('t'));
    drop(child);
}
