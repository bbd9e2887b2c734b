//! A process that is given something to read, says something, and has until a deadline to end.

use std::{
    fs::File,
    io::{self, PipeReader, Read as _, Seek as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, ExitStatus, Stdio},
    time::Instant,
};

/// What is kept of what it says.
const MOST: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Errand {
    child: Child,
    pipe: PipeReader,
    said: Vec<u8>,
    deadline: Instant,
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) said: Vec<u8>,
    /// `None` if it was killed at its deadline.
    pub(super) status: Option<ExitStatus>,
}

impl Errand {
    /// In a process group of its own: with it ends what it started.
    pub(super) fn start(command: &mut Command, input: &[u8], deadline: Instant) -> io::Result<Self> {
        let (pipe, end) = io::pipe()?;
        // SAFETY: changes the flags of a descriptor this process owns.
        if unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        command.stdin(readable(input)?).stdout(end.try_clone()?).stderr(end).process_group(0);
        let child = command.env_remove("LD_PRELOAD").spawn();
        // What the command holds of the pipe would keep it open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: child?, pipe, said: Vec::new(), deadline })
    }

    /// Takes what it said; `Some` once it is over.
    pub(super) fn turn(&mut self, now: Instant) -> Option<Outcome> {
        let status = self.child.try_wait().ok().flatten();
        let mut piece = [0; 1 << 13];
        while let Ok(count @ 1..) = self.pipe.read(&mut piece) {
            let room = MOST - self.said.len();
            self.said.extend_from_slice(&piece[..count.min(room)]);
        }
        if status.is_none() && now < self.deadline {
            return None;
        }
        self.kill();
        Some(Outcome { said: std::mem::take(&mut self.said), status })
    }

    fn kill(&mut self) {
        // SAFETY: it was made the leader of a group of its own, and is not waited for before.
        unsafe { libc::kill(-(self.child.id().cast_signed()), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A file in memory that holds this: a pipe would fill up.
fn readable(bytes: &[u8]) -> io::Result<Stdio> {
    // SAFETY: the name is NUL-terminated and 'static.
    let file = unsafe { libc::memfd_create(c"xpu-top-errand".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made and belongs to nobody else.
    let mut file = unsafe { File::from_raw_fd(file) };
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn over(script: &str, input: &[u8], limit: Duration) -> Outcome {
        let mut errand =
            Errand::start(Command::new("sh").args(["-c", script]), input, Instant::now() + limit).unwrap();
        loop {
            if let Some(outcome) = errand.turn(Instant::now()) {
                return outcome;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn it_reads_what_it_is_given_and_both_its_outputs_are_heard() {
        let outcome = over("cat; echo wrong >&2; exit 4", &vec![b'x'; 200_000], Duration::from_secs(30));
        assert_eq!((outcome.said.len(), outcome.status.and_then(|status| status.code())), (200_006, Some(4)));
    }

    #[test]
    fn what_it_leaves_behind_ends_with_it_and_so_does_what_hangs() {
        let outcome = over("sleep 600 & echo $!; exit 0", b"", Duration::from_secs(30));
        let left: i32 = String::from_utf8(outcome.said).unwrap().trim().parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        // SAFETY: signal 0 only asks.
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
}
