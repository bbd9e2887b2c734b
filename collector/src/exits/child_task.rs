//! A process with an input, an output, and a deadline.

use std::{
    fs::File,
    io::{self, PipeReader, Read as _, Seek as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use xpu_wire::text;

/// Largest output that is kept.
const MOST: usize = 1 << 20;

/// Part of the output that is logged.
const LOGGED: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct ChildTask {
    child: Child,
    pipe: PipeReader,
    said: Vec<u8>,
    deadline: Instant,
    is_reaped: bool,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) said: Vec<u8>,
    /// `None` if the process was killed at its deadline.
    pub(super) status: Option<ExitStatus>,
}

impl Outcome {
    /// Logs the output, line by line, and how the program with this time limit ended.
    pub(crate) fn log(&self, name: &str, limit: Duration) {
        let said = String::from_utf8_lossy(&self.said[..self.said.len().min(LOGGED)]).into_owned();
        for line in said.lines() {
            tracing::info!("{name}: {}", text::clean(line));
        }
        if self.said.len() > LOGGED {
            tracing::info!("{name}: ({} bytes more)", self.said.len() - LOGGED);
        }
        match self.status {
            None => tracing::warn!("{name}: killed after {} s", limit.as_secs()),
            Some(status) if !status.success() => tracing::warn!("{name}: {status}"),
            Some(_) => tracing::info!("{name}: done"),
        }
    }
}

impl ChildTask {
    /// Starts the command in a process group of its own, so that its children end with it.
    pub(crate) fn start(command: &mut Command, input: &[u8], deadline: Instant) -> io::Result<Self> {
        let (pipe, end) = io::pipe()?;
        // SAFETY: changes the flags of a descriptor this process owns.
        if unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        command.stdin(readable(input)?).stdout(end.try_clone()?).stderr(end).process_group(0);
        let child = command.env_remove("LD_PRELOAD").spawn();
        // The command's copies of the descriptor would keep the pipe open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: child?, pipe, said: Vec::new(), deadline, is_reaped: false })
    }

    /// Takes new output; `Some` once the process has ended, or was killed. Never waits.
    pub(crate) fn turn(&mut self, now: Instant) -> Option<Outcome> {
        let has_ended = self.has_ended();
        let mut piece = [0; 1 << 13];
        while let Ok(count @ 1..) = self.pipe.read(&mut piece) {
            let free = MOST - self.said.len();
            self.said.extend_from_slice(&piece[..count.min(free)]);
        }
        if !has_ended && now < self.deadline {
            return None;
        }
        self.kill();
        let status = if has_ended { self.reap() } else { None };
        Some(Outcome { said: std::mem::take(&mut self.said), status })
    }

    /// Whether the process is gone. After the kill, it may stay in an uninterruptible sleep, waiting for a
    /// disk or a network.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.reap();
        self.is_reaped
    }

    /// Whether the process has ended. Does not reap it, so that its process id, and its group's, are not
    /// reused.
    fn has_ended(&self) -> bool {
        // SAFETY: a siginfo_t is plain data, for which zeros are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: waitid writes the one siginfo_t it is given, which outlives the call.
        let waited = unsafe { libc::waitid(libc::P_PID, self.child.id(), &raw mut info, how) };
        // SAFETY: waitid filled the structure, or left it zero.
        waited != 0 || unsafe { info.si_pid() } != 0
    }

    fn reap(&mut self) -> Option<ExitStatus> {
        let waited = self.child.try_wait();
        // A process that cannot be waited for is not a child any more.
        self.is_reaped |= !matches!(waited, Ok(None));
        waited.ok().flatten()
    }

    /// Kills the whole group, including what the process left behind.
    fn kill(&mut self) {
        // SAFETY: the process leads a group of its own, and has not been waited for yet.
        unsafe { libc::kill(-(self.child.id().cast_signed()), libc::SIGKILL) };
    }
}

impl Drop for ChildTask {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            self.reap();
        }
    }
}

/// A memory file with this content. A pipe would fill up.
fn readable(bytes: &[u8]) -> io::Result<Stdio> {
    // SAFETY: the name is NUL-terminated and 'static.
    let file = unsafe { libc::memfd_create(c"xpu-top-child-task".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and has no other owner.
    let mut file = unsafe { File::from_raw_fd(file) };
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(script: &str, input: &[u8], limit: Duration) -> Outcome {
        let mut task =
            ChildTask::start(Command::new("sh").args(["-c", script]), input, Instant::now() + limit).unwrap();
        loop {
            if let Some(outcome) = task.turn(Instant::now()) {
                return outcome;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_child_task_gets_its_input_and_both_outputs_are_logged() {
        let outcome = over("cat; echo wrong >&2; exit 4", &vec![b'x'; 200_000], Duration::from_secs(30));
        assert_eq!((outcome.said.len(), outcome.status.and_then(|status| status.code())), (200_006, Some(4)));
    }

    #[test]
    fn leftover_and_hung_processes_end_with_the_task() {
        let outcome = over("sleep 600 & echo $!; exit 0", b"", Duration::from_secs(30));
        let left: i32 = String::from_utf8(outcome.said).unwrap().trim().parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        // SAFETY: signal 0 only checks whether the process exists.
        while unsafe { libc::kill(left, 0) } == 0 && Instant::now() < deadline {
            let state = std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
            if state.contains(") Z") {
                break;
            }
            std::thread::yield_now();
        }
        assert!(Instant::now() < deadline);
        assert!(over("sleep 600", b"", Duration::from_millis(50)).status.is_none());
    }

    /// The parent of a traced process sees its end only after the tracer has seen it.
    const HELD: &str = "
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616d61, -1, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    if libc.ptrace(0x4206, os.getppid(), None, None) == 0:
        print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(600)
";

    #[test]
    fn a_task_that_does_not_die_is_not_awaited() {
        let mut command = Command::new("python3");
        let begun = Instant::now();
        let mut task =
            ChildTask::start(command.args(["-c", HELD]), b"", begun + Duration::from_secs(30)).unwrap();
        while !task.said.ends_with(b"\n") {
            assert!(
                task.turn(begun).is_none() && begun.elapsed() < Duration::from_secs(30),
                "{:?}",
                task.said
            );
            std::thread::yield_now();
        }
        let tracer: i32 = String::from_utf8_lossy(&task.said).trim().parse().unwrap();
        let asked = Instant::now();
        let outcome = task.turn(begun + Duration::from_secs(30)).unwrap();
        assert!(
            outcome.status.is_none() && asked.elapsed() < Duration::from_secs(5),
            "{:?}",
            asked.elapsed()
        );
        // SAFETY: the tracer was started above, and nothing has waited for it.
        unsafe { libc::kill(tracer, libc::SIGKILL) };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !task.is_gone() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }
}
