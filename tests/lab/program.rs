//! A program that runs for a test. It never outlives its deadline or the test.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, Write as _},
    os::unix::{fs::FileExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// Polling interval for conditions without notification.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Everything visible of a program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub status: ExitStatus,
}

#[derive(Debug)]
pub struct Program {
    child: Child,
    stdout: File,
    stderr: File,
}

impl Program {
    /// Starts the program in its own process group.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let file = || tempfile::tempfile().expect("a temporary file");
        let copy = |file: &File| file.try_clone().expect("a descriptor is left");
        let (stdout, stderr) = (file(), file());
        let child = command
            .stdin(Stdio::piped())
            .stdout(copy(&stdout))
            .stderr(copy(&stderr))
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
        Self { child, stdout, stderr }
    }

    /// The program's standard error so far.
    pub fn said(&self) -> String {
        so_far(&self.stderr)
    }

    /// The program's standard output so far.
    pub fn wrote(&self) -> String {
        so_far(&self.stdout)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the program's standard input.
    ///
    /// # Panics
    /// If the program has closed its input.
    #[track_caller]
    pub fn write_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("its input is open");
        writeln!(input, "{line}").expect("it reads its input");
    }

    /// Closes the program's input, and waits for the program to end.
    ///
    /// # Panics
    /// If it does not end before the deadline.
    #[track_caller]
    pub fn end(self) -> Outcome {
        self.end_watched(|_| ()).unwrap_or_else(|| panic!("waited {DEADLINE:?} for a program to end"))
    }

    /// As [`Self::end`], but calls `look` repeatedly, and returns `None` at the deadline.
    pub fn end_watched(mut self, mut look: impl FnMut(&Self)) -> Option<Outcome> {
        drop(self.child.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            if let Some(status) = self.child.try_wait().expect("it is this process's child") {
                let (stdout, stderr) = (read(&mut self.stdout), read(&mut self.stderr));
                return Some(Outcome { stdout, stderr, status });
            }
            look(&self);
            thread::sleep(LOOK_EVERY);
        }
        None
    }

    /// Sends a signal, given by its name: `STOP`, `KILL`.
    ///
    /// # Panics
    /// If there is no such process.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        assert!(kill(&format!("-{name}"), &self.pid().to_string()), "no process {} to signal", self.pid());
    }

    /// The process state as a letter of the kernel: `R`, `S`, or `T` for stopped.
    pub fn state(&self) -> Option<char> {
        stat(&Path::new("/proc").join(self.pid().to_string()))?.chars().next()
    }

    /// The peak of the program's memory so far, in KiB (`VmHWM`).
    pub fn peak_kib(&self) -> Option<u64> {
        peak_kib(self.pid())
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The largest number of hook threads in one process, over this program and those that it forked.
    pub fn hook_threads(&self) -> usize {
        let group = self.pid().to_string();
        let in_group = |stat: String| stat.split(' ').nth(2) == Some(&group);
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        processes
            .filter(|process| stat(process).is_some_and(in_group))
            .map(|process| {
                let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
                let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
                tasks.filter_map(|task| name(task).ok()).filter(|name| name.trim() == "xpu-top").count()
            })
            .max()
            .unwrap_or(0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Kills the whole group, because forked processes may outlive the program.
        kill("-KILL", &format!("-{}", self.pid()));
        let status = self.child.wait();
        if thread::panicking() {
            eprintln!("process {} ({status:?}) wrote:\n{}{}", self.pid(), self.wrote(), self.said());
        }
    }
}

/// The peak of the memory of any process, in KiB.
pub fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Runs a program, and waits for its end.
#[track_caller]
pub fn run(command: &mut Command) -> Outcome {
    Program::start(command).end()
}

/// Calls `look` until it returns a value.
///
/// # Panics
/// At the deadline, with the name of the awaited condition.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        thread::sleep(LOOK_EVERY);
    }
}

/// `/proc/<pid>/stat` from the state on: "state parent group ...".
fn stat(process: &Path) -> Option<String> {
    let text = fs::read_to_string(process.join("stat")).ok()?;
    text.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

fn kill(signal: &str, whom: &str) -> bool {
    let status = Command::new("kill").args([signal, "--", whom]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn so_far(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |file| file.len() as usize)];
    // Reads at an offset, because the program shares the file's position and writes there.
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

fn read(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a temporary file can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}
