//! Tests with stacks of real Python processes, which the real program reads.

// A helper that cannot go on panics, as a test does.
#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use xpu_wire::{
    codec,
    frame::{Body, RankStacks, Reading, ThreadStack},
    id::Pid,
};

const READER: &str = env!("CARGO_BIN_EXE_xpu-collector");

/// A Python program whose main thread is in `hold_back`, and another thread in `work`.
const HOLDS: &str = "
import threading, sys
def work(): threading.Event().wait()
threading.Thread(target=work, name='worker', daemon=True).start()
def hold_back():
    print('ready', flush=True)
    sys.stdin.read()
def main(): hold_back()
main()";

struct Python(Child);

impl Python {
    fn start(script: &str) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as libc::pid_t, signal) }, 0);
    }

    fn letter(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn reader(pid: Pid) -> Command {
    let mut command = Command::new(READER);
    command.args(["--read-stacks", &pid.to_string()]);
    command
}

fn natively(pid: Pid) -> Command {
    let mut command = reader(pid);
    command.arg("--native");
    command
}

fn read(mut command: Command) -> RankStacks {
    let Output { stdout, stderr, status } = command.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let mut rest = &stdout[..];
    let mut last = None;
    while !rest.is_empty() {
        let length = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize + codec::HEADER;
        last = Some(codec::decode(&rest[..length]).unwrap().body);
        rest = &rest[length..];
    }
    match last {
        Some(Body::Stacks(stacks)) => stacks,
        other => panic!("{other:?}"),
    }
}

fn functions(thread: &ThreadStack) -> Vec<&str> {
    thread.frames.iter().map(|frame| frame.function.as_str()).collect()
}

fn assert_held(stacks: &RankStacks) {
    let main = &stacks.threads[0];
    assert_eq!((main.thread, main.main), (Some(stacks.pid.0), true), "{stacks:?}");
    assert_eq!(functions(main), ["<module>", "main", "hold_back"], "{stacks:?}");
    let worker = stacks.threads.iter().find(|thread| thread.name == "worker").unwrap();
    assert!(
        functions(worker).ends_with(&["work", "Event.wait", "Condition.wait"])
            || functions(worker).ends_with(&["work", "wait", "wait"]),
        "{worker:?}"
    );
    assert!(worker.thread.is_some_and(|number| number != stacks.pid.0) && !worker.main, "{worker:?}");
}

#[test]
fn frames_names_and_numbers_of_all_threads_are_read_without_stopping_it() {
    let python = Python::start(HOLDS);
    let stacks = read(reader(python.pid()));
    assert_held(&stacks);
    assert_eq!((stacks.reading, stacks.why.len()), (Reading::Running, 0), "{stacks:?}");
    assert_eq!(stacks.threads[0].frames[2].line, 7);
    assert!(stacks.threads.iter().all(|thread| thread.task.is_some()), "{stacks:?}");
}

#[test]
fn a_stopped_process_still_gives_its_stack() {
    let python = Python::start(HOLDS);
    python.signal(libc::SIGSTOP);
    until("it to stop", || (python.letter() == Some('T')).then_some(()));
    let stacks = read(reader(python.pid()));
    assert_held(&stacks);
    assert_eq!((stacks.state, stacks.reading), (Some('T'), Reading::Running));
}

#[test]
fn a_process_without_python_shows_its_kernel_state() {
    let sleep = Python(Command::new("sleep").arg("600").spawn().unwrap());
    let stacks = until("sleep to sleep", || {
        let stacks = read(reader(sleep.pid()));
        (stacks.threads.first()?.name == "sleep" && stacks.state == Some('S')).then_some(stacks)
    });
    assert_eq!((stacks.reading, stacks.threads.len()), (Reading::Kernel, 1));
    assert!(stacks.why[0].starts_with("no Python frames: "), "{stacks:?}");
}

/// The native frames called by Python's frames are below them. The frames that started the interpreter are
/// left out.
#[test]
fn native_frames_stand_below_those_of_python() {
    let python = Python::start(HOLDS);
    let stacks = read(natively(python.pid()));
    assert!(stacks.held_for_native.is_some() && stacks.why.is_empty(), "{stacks:?}");
    let main = &stacks.threads[0];
    assert_eq!(functions(main)[..3], ["<module>", "main", "hold_back"], "{stacks:?}");
    let leaf = main.frames.last().unwrap();
    assert!(leaf.function.contains("read") && leaf.file.contains("/libc"), "{main:?}");
    assert!(main.frames.iter().all(|frame| !frame.function.starts_with("_PyEval")), "{main:?}");
    // The process continues unchanged.
    until("it to sleep again", || (python.letter() == Some('S')).then_some(()));
}

#[test]
fn a_process_without_python_has_native_frames() {
    let sleep = Python(Command::new("sleep").arg("600").spawn().unwrap());
    let stacks = until("sleep to sleep", || {
        let stacks = read(natively(sleep.pid()));
        (stacks.threads.first()?.name == "sleep" && stacks.state == Some('S')).then_some(stacks)
    });
    assert!(functions(&stacks.threads[0]).contains(&"clock_nanosleep"), "{stacks:?}");
}

#[test]
fn a_stopped_process_is_stopped_after_it_was_held() {
    let python = Python::start(HOLDS);
    python.signal(libc::SIGSTOP);
    until("it to stop", || (python.letter() == Some('T')).then_some(()));
    let stacks = read(natively(python.pid()));
    assert!(functions(&stacks.threads[0]).len() > 3, "{stacks:?}");
    assert_eq!(python.letter(), Some('T'));
    python.signal(libc::SIGCONT);
    until("it to go on", || (python.letter() == Some('S')).then_some(()));
}

#[test]
fn an_ended_process_is_reported_as_gone() {
    let mut python = Python::start(HOLDS);
    python.0.kill().unwrap();
    python.0.wait().unwrap();
    let stacks = read(reader(python.pid()));
    assert_eq!((stacks.state, stacks.threads.len()), (None, 0));
    assert!(stacks.why[0].contains("is gone"), "{stacks:?}");
}

/// A process that is protected (not dumpable), and a reader that is not root.
#[test]
fn a_refusal_is_reported_with_advice() {
    let python =
        Python::start(&format!("import ctypes; assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0\n{HOLDS}"));
    // SAFETY: geteuid has no conditions.
    let stacks = if unsafe { libc::geteuid() } == 0 {
        // Other users may not have access to this program's folder.
        let copy = Copy::new();
        let mut command = Command::new(&copy.0);
        command.args(["--read-stacks", &python.pid().to_string()]).uid(65_534).gid(65_534).current_dir("/");
        read(command)
    } else {
        read(reader(python.pid()))
    };
    assert_eq!(stacks.reading, Reading::Kernel);
    assert!(stacks.why[0].contains("the kernel does not allow reading its memory"), "{stacks:?}");
    // The kernel's public data is still present.
    assert_eq!((stacks.state.is_some(), stacks.threads[0].thread), (true, Some(python.pid().0)));
}

/// A copy of the program that every user may execute.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("xpu-top-reader-{}", std::process::id()));
        std::fs::copy(READER, &path).unwrap();
        Self(path)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
